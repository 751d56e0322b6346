"""Files that are written whole or not at all."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".rbnn-tmp."
"""What the name of a file that is being written begins with; then the writer's process and the file's own name."""


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """``write(file)`` into a temporary file beside ``path``, onto the disk, then renamed: a crash at any moment leaves
    the old file or the new one.  A link is followed; a file that was there keeps its permissions."""
    target = _target(path)
    temporary = _beside(target)
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def check_place(path: Path) -> None:
    """Raises the OSError that ``write_whole(path, …)`` would begin with: for whoever works long before the writing."""
    temporary = _beside(_target(path))
    try:
        temporary.touch()
    except OSError as reason:
        raise OSError(reason.errno, reason.strerror, str(path)) from None
    temporary.unlink(missing_ok=True)


def _target(path: Path) -> Path:
    """The file that ``path`` leads to: to replace a link by a file would leave what it leads to as it was.  Raises
    where there is something else than an ordinary file, such as a directory, a device or a pipe."""
    target = Path(os.path.realpath(path))
    try:
        there = path.stat()
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(there.st_mode) or not target.exists():  # a descriptor's file may be deleted
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    if any(os.path.samestat(there, stream) for stream in _standard_streams()):
        raise OSError(errno.EINVAL, "it is where this command's own output goes", str(path))
    return target


def _standard_streams() -> list[os.stat_result]:
    streams = []
    for handle in (1, 2):
        with suppress(OSError):  # closed
            streams.append(os.fstat(handle))
    return streams


def _beside(target: Path) -> Path:
    return target.with_name(f"{TEMPORARY}{os.getpid()}.{target.name}")


def sync_folder(folder: Path) -> None:
    """Makes a rename in it survive a power cut; a system that cannot sync folders loses nothing but that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def keep_as(path: Path, name: Path) -> None:
    """Gives the file ``path`` a second name that survives when ``path`` is written anew; what had that name before is
    gone.  At every moment both names lead to a whole file.  Costs no space where the disk knows hard links."""
    source, target = Path(os.path.realpath(path)), _target(name)
    temporary = _beside(target)
    temporary.unlink(missing_ok=True)
    try:
        try:
            os.link(source, temporary)
        except OSError:  # a disk without hard links, as of cameras and some network shares
            shutil.copyfile(source, temporary)
        temporary.replace(target)
        temporary.unlink(missing_ok=True)  # renaming one name of a file to another of its names leaves both
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(directory: Path, names: Collection[str]) -> None:
    """Deletes what writers of the files ``names`` left when they were killed.  Nobody may be writing them now."""
    for path in directory.iterdir():
        if is_leftover(path.name, names) and path.is_file():
            path.unlink(missing_ok=True)


def is_leftover(name: str, names: Collection[str]) -> bool:
    """Whether a file of this name is what a writer of one of ``names`` left."""
    found = re.fullmatch(rf"{re.escape(TEMPORARY)}\d+\.(.+)", name)
    return found is not None and found[1] in names
