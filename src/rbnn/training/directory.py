"""The directory of a run: what belongs there, and that one run at a time writes to it."""

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rbnn.errors import ConfigError
from rbnn.files import is_leftover, remove_leftovers
from rbnn.text import plural
from rbnn.training.checkpoint import BEST, LAST, PREVIOUS
from rbnn.training.config import CONFIG_NAME, TrainConfig, as_table, difference, read_recipe, with_all_options
from rbnn.training.distributed import Processes
from rbnn.training.layer_measures import INITIAL
from rbnn.training.log import LOG

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

FILES = (CONFIG_NAME, LOG, INITIAL, LAST, PREVIOUS, BEST)
EVENTS = "events.out.tfevents."
"""Prefix of TensorBoard's files."""
OF_REPRODUCE = ("output.txt", ".lock")
"""Files that `rbnn reproduce` creates before it starts the run."""
LOCK = ".rbnn-run.lock"
MOST_WORDS = 200
"""At most this many bytes of a lock's description of its holder are read."""
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Error codes of a disk without locks."""

_held: set[Path] = set()
"""Directories that runs of this process write to.  The system's locks do not tell threads apart."""


class RunDirectory:
    """A run directory, held by one run from before its first read until after its last write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._real: Path | None = None

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return (self.path / LAST).exists() or (self.path / PREVIOUS).exists()

    def check(self, config: TrainConfig) -> None:
        """Raises if ``config`` would overwrite files that are not its own."""
        if not self.path.is_dir():
            return
        strangers = sorted(entry.name for entry in self.path.iterdir() if not self._belongs(entry.name))
        if self.begun:
            if not config.resume:
                raise ConfigError(
                    f"{self.path} already contains a run: add --resume to continue it, or choose another --out"
                )
        elif strangers:
            others = f" and {plural(len(strangers) - 1, 'other file')}" if len(strangers) > 1 else ""
            raise ConfigError(
                f"{self.path} is not a run directory, because it contains {strangers[0]}{others}: choose an empty or "
                "new directory for --out"
            )
        else:
            self._check_remains(config)

    def _belongs(self, name: str) -> bool:
        return name in (*FILES, *OF_REPRODUCE, LOCK) or name.startswith(EVENTS) or is_leftover(name, FILES)

    def _check_remains(self, config: TrainConfig) -> None:
        """A run that was killed in its first epoch leaves its configuration, and perhaps a best.pt.  Only the same run
        may start again over these."""
        recipe, log = self.path / CONFIG_NAME, self.path / LOG
        worth = (self.path / BEST).exists() or (log.exists() and log.stat().st_size > 0)
        changed = (
            difference(as_table(with_all_options(read_recipe(recipe))), as_table(config))
            if recipe.exists()
            else "no config.toml"
        )
        if worth and not (config.resume and changed is None):
            why = f"a run with {changed}" if config.resume else "a run"
            raise ConfigError(
                f"{self.path} contains the remains of {why}: choose another --out, or delete the directory"
            )

    def hold(self) -> None:
        """Raises if another run is writing to the directory.  The lock disappears with the process, however it ends."""
        if self._real is not None:
            return
        real = self.path.resolve()
        if real in _held:
            raise self._taken(f"process {os.getpid()}, this one")
        if fcntl is not None:
            self._lock = self._take(self.path / LOCK)
        self._real = real
        _held.add(real)

    def _take(self, path: Path) -> int | None:
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            try:
                # Not flock: forked workers would inherit the lock and hold it for a while after the parent is killed.
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(handle), path.stat()):
                    words = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%F %T')}"
                    os.ftruncate(handle, 0)
                    os.write(handle, words.encode()[:MOST_WORDS])
                    return handle
            except FileNotFoundError:  # its holder has just removed it
                pass
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    said = os.read(handle, MOST_WORDS).decode(errors="replace")
                    os.close(handle)
                    raise self._taken(said) from None
                if error.errno in NO_LOCKS:
                    os.close(handle)
                    path.unlink(missing_ok=True)
                    return None
                os.close(handle)
                raise
            os.close(handle)

    def _taken(self, holder: str) -> ConfigError:
        return ConfigError(f"{self.path} is in use by another run ({holder}): wait for it, or choose another --out")

    def release(self) -> None:
        """Give up the directory."""
        if self._real is None:
            return
        _held.discard(self._real)
        self._real = None
        if self._lock is not None:
            with suppress(OSError):  # on a disk that became read-only the file stays, without meaning
                (self.path / LOCK).unlink(
                    missing_ok=True
                )  # before the lock is released: afterwards the file may belong to another run
            os.close(self._lock)
            self._lock = None

    def remove_leftovers(self) -> None:
        """Delete the temporary files of killed runs."""
        remove_leftovers(self.path, FILES)


@contextmanager
def run_directory(config: TrainConfig, processes: Processes) -> Iterator[RunDirectory]:
    """The directory of ``config``, checked and held by the first process.  A directory that does not exist yet is held
    when it is created."""
    directory = RunDirectory(config.directory)
    trouble: Exception | None = None
    if processes.first:
        try:
            directory.check(config)
            if directory.path.is_dir():
                directory.hold()
                directory.check(config)  # again: another run may have written to it until a moment ago
        except OSError as error:
            trouble = cannot_write(directory.path, error)
        except Exception as error:
            trouble = error
    try:
        if processes.any(trouble is not None):  # all processes end; otherwise they would wait for the first one
            raise trouble or ConfigError(f"process 0 cannot use {directory.path}: see its error message")
        yield directory
    finally:
        directory.release()


def cannot_write(path: Path, error: OSError) -> ConfigError:
    """The error of a run that cannot write to its directory."""
    if in_the_way := [each for each in (path, *path.parents) if each.is_file()]:
        return ConfigError(
            f"the run directory {path} cannot be created, because {in_the_way[0]} is a file: choose another --out"
        )
    return ConfigError(f"cannot write to the run directory {path}: {error.strerror or error}")
