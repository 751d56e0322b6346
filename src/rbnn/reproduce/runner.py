"""Training runs as separate processes, several at a time."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import IO

from rbnn import plugins
from rbnn.errors import ConfigError
from rbnn.files import write_whole
from rbnn.reproduce.plan import Run
from rbnn.training.config import CONFIG_NAME, as_toml
from rbnn.training.directory import OF_REPRODUCE
from rbnn.training.stopping import signals_to

OUTPUT, LOCK = OF_REPRODUCE
PAUSE = 0.2
"""Seconds between two checks of the processes."""

Complaints = list[tuple[Run, str]]


@dataclass
class _Started:
    run: Run
    process: subprocess.Popen[bytes]
    lock: IO[bytes]


class Runner:
    """Starts runs as processes, at most ``jobs`` at a time, which share ``threads``."""

    def __init__(self, jobs: int, threads: int) -> None:
        if jobs < 1 or threads < 1:
            raise ConfigError(f"--jobs and --threads must be at least 1, got {jobs} and {threads}")
        self.jobs, self.threads = jobs, threads
        self.share = threads
        self.started: list[_Started] = []
        self.stopping = False

    def train(self, runs: list[Run], looked: Callable[[], object], ended: Callable[[Run], object]) -> Complaints:
        """Train all of them.  ``looked`` is called regularly, ``ended`` after each run.  Returns the errors of the runs
        that failed.  Ctrl-C lets each run write its checkpoint; a second Ctrl-C stops them at once."""
        self.share = max(1, self.threads // min(self.jobs, max(1, len(runs))))
        waiting = list(runs)
        failed: Complaints = []
        with signals_to(self._forward):
            try:
                while self.started or (waiting and not self.stopping):
                    while waiting and len(self.started) < self.jobs and not self.stopping:
                        self.started.append(self._start(waiting.pop(0)))
                    time.sleep(PAUSE)
                    looked()
                    for one in [one for one in self.started if one.process.poll() is not None]:
                        self._release(one)
                        if one.process.returncode and not self.stopping:
                            failed.append((one.run, _complaint(one)))
                        ended(one.run)
            except BaseException:
                self._send(signal.SIGINT)
                for one in list(self.started):
                    one.process.wait()
                    self._release(one)
                raise
        if self.stopping:
            raise KeyboardInterrupt
        return failed

    def _start(self, run: Run) -> _Started:
        """`rbnn train DIRECTORY`: the directory's config.toml is the recipe."""
        run.out.mkdir(parents=True, exist_ok=True)
        lock = (run.out / LOCK).open("ab")
        try:
            # The process inherits the lock, which holds as long as it trains here, even if this process is killed.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ConfigError(f"another process is training {run.out}: wait for it, or choose another --out") from None
        resume = ["--resume"] if run.begun() else []
        write_whole(run.out / CONFIG_NAME, lambda file: file.write(as_toml(run.config).encode()))
        with (run.out / OUTPUT).open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "rbnn", "train", str(run.out.absolute()), *resume, *plugins.flags()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_NUM_THREADS": str(self.share)},
                pass_fds=[lock.fileno()],
                start_new_session=True,  # otherwise Ctrl-C in a terminal would reach it twice and stop it at once
            )
        return _Started(run, process, lock)

    def _release(self, one: _Started) -> None:
        one.lock.close()
        self.started.remove(one)

    def _send(self, number: int) -> None:
        for one in self.started:
            one.process.send_signal(number)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True
        self._send(number)


def _complaint(one: _Started) -> str:
    """The last line that the run printed, or the signal that killed it."""
    if one.process.returncode < 0:
        name = signal.Signals(-one.process.returncode).name
        memory = ", perhaps because memory ran out: try fewer --jobs" if name == "SIGKILL" else ""
        return f"it was killed by {name}{memory}; --resume continues it"
    path = one.run.out / OUTPUT
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return said[-1].removeprefix("rbnn: ") if said else f"it ended without output: see {path}"
