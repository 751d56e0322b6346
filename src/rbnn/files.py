"""Files that are written whole or not at all."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """``write(file)`` into a temporary file beside ``path``, onto the disk, then renamed: a crash at any moment leaves
    the old file or the new one."""
    temporary = _beside(path)
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def check_place(path: Path) -> None:
    """Raises the OSError that ``write_whole(path, …)`` would begin with: for whoever works long before the writing."""
    temporary = _beside(path)
    try:
        temporary.touch()
    except OSError as reason:
        raise OSError(reason.errno, reason.strerror, str(path)) from None
    temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    if path.is_dir():  # said here: . and / have no name to make another one from
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():  # /dev/null would be replaced by a file
        raise OSError(errno.EINVAL, "not an ordinary file", str(path))
    return path.with_name(f".{path.name}.{os.getpid()}")


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
    temporary = _beside(name)
    temporary.unlink(missing_ok=True)
    try:
        try:
            os.link(path, temporary)
        except OSError:  # a disk without hard links, as of cameras and some network shares
            shutil.copyfile(path, temporary)
        temporary.replace(name)
        temporary.unlink(missing_ok=True)  # renaming one name of a file to another of its names leaves both
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(directory: Path) -> None:
    """Deletes the temporary files of writers that were killed.  Nobody else may be writing there."""
    for path in directory.iterdir():
        if re.fullmatch(r"\..+\.\d+", path.name) and path.is_file():
            path.unlink(missing_ok=True)
