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

from rbnn.errors import ExportError

TEMPORARY = ".rbnn-tmp."
"""Prefix of a file that is being written.  The writer's process and the file's own name follow."""


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """``write(file)`` writes to a temporary file next to ``path``, which is flushed to the disk and then renamed.  A
    crash at any moment leaves the old file or the new one.  Links are followed, and an existing file keeps its
    permissions."""
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
    """Raises the OSError that ``write_whole(path, …)`` would raise, for callers that work for long before they
    write."""
    temporary = _beside(_target(path))
    try:
        temporary.touch()
    except OSError as reason:
        parent = path.absolute().parent
        why = reason.strerror if parent.exists() else f"the directory {path.parent} does not exist"
        raise OSError(reason.errno, why, str(path)) from None
    temporary.unlink(missing_ok=True)


def check_export_place(path: Path) -> None:
    """The same for an export, as an ExportError.  An export is the first thing that many write, and often into a
    directory that is not there yet."""
    if not path.absolute().parent.is_dir():
        raise ExportError(f"the directory {path.parent} does not exist: create it before the export to {path}")
    try:
        check_place(path)
    except OSError as reason:
        raise ExportError(
            f"cannot export to {path} ({reason.strerror}): name a file in a directory that you can write to"
        ) from None


def _target(path: Path) -> Path:
    """The file that ``path`` points to.  Replacing a link with a file would leave the link's target unchanged.  Raises
    if there is something other than a regular file, such as a directory, a device or a pipe."""
    target = Path(os.path.realpath(path))
    try:
        there = path.stat()
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory, but the output must be a file", str(path))
    if not stat.S_ISREG(there.st_mode) or not target.exists():  # a descriptor's file may be deleted
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if any(os.path.samestat(there, stream) for stream in _standard_streams()):
        raise OSError(errno.EINVAL, "this command's own output goes there", str(path))
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
    """Make a rename in ``folder`` survive a power cut, on systems that can sync folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def keep_as(path: Path, name: Path) -> None:
    """Give the file ``path`` a second name, which keeps the file when ``path`` is written again.  A file that had that
    name is replaced.  At every moment both names lead to a complete file.  With hard links this takes no space."""
    source, target = Path(os.path.realpath(path)), _target(name)
    temporary = _beside(target)
    temporary.unlink(missing_ok=True)
    try:
        try:
            os.link(source, temporary)
        except OSError:  # a disk without hard links, such as those of cameras and some network shares
            shutil.copyfile(source, temporary)
        temporary.replace(target)
        temporary.unlink(missing_ok=True)  # renaming one name of a file to another of its names keeps both
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(directory: Path, names: Collection[str]) -> None:
    """Delete the temporary files that killed writers of ``names`` left behind.  Nobody may be writing them now."""
    for path in directory.iterdir():
        if is_leftover(path.name, names) and path.is_file():
            path.unlink(missing_ok=True)


def is_leftover(name: str, names: Collection[str]) -> bool:
    """Whether ``name`` is a temporary file for one of ``names``."""
    found = re.fullmatch(rf"{re.escape(TEMPORARY)}\d+\.(.+)", name)
    return found is not None and found[1] in names
