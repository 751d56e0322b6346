"""External files: checksums, archives, and downloads that are complete or absent."""

import hashlib
import os
import sys
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rbnn.errors import DataError
from rbnn.files import sync_folder

if TYPE_CHECKING:
    from rich.progress import Progress

CONNECT_SECONDS = 10
CHUNK = 1 << 20
LARGEST_FILE = 1 << 30
"""No published archive comes near this size."""

# What the standard library raises for a damaged .gz or .tar.
BROKEN_ARCHIVE = (tarfile.TarError, EOFError, zlib.error, OSError)


def no_directory(name: str) -> DataError:
    """What to raise for a set of files without a directory, from a command or from Python."""
    return DataError(f"{name} is read from files: name their directory (--data-dir DIR, or the argument directory)")


def checksum(path: Path, algorithm: str) -> str:
    """The hexadecimal digest of a file; `algorithm` as hashlib names it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def verify(path: Path, algorithm: str, expected: str) -> None:
    """Refuse a file whose digest is not the published one.  A file that is far too large is not read."""
    if path.stat().st_size > LARGEST_FILE:
        raise DataError(f"{path} is not the published file: it has more than {LARGEST_FILE:,} bytes; download it again")
    found = checksum(path, algorithm)
    if found != expected:
        raise DataError(
            f"{path} is not the published file: expected {algorithm} {expected}, got {found}; "
            "delete it and download it again"
        )


def members(archive: Path, wanted: Collection[str], largest: int) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted members of a .tar.gz, in the archive's order, without writing anything to disk.

    Names are only ever compared, never used as paths, so a hostile name in the archive cannot reach the disk.
    `largest` bounds what one member may claim to need.
    """
    left = set(wanted)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                if member.name not in left or not member.isfile():
                    continue
                if member.size > largest:
                    raise DataError(
                        f"{archive}: expected at most {largest:,} bytes in {member.name}, got {member.size:,}"
                    )
                file = tar.extractfile(member)
                assert file is not None  # isfile() above
                left.remove(member.name)
                yield member.name, file.read()
                if not left:
                    return
    except BROKEN_ARCHIVE as error:
        raise DataError(f"{archive} could not be read ({error}); delete it and download it again") from error
    raise DataError(f"{archive} does not contain {', '.join(sorted(left))}; delete it and download it again")


def download(url: str, target: Path, algorithm: str, expected: str) -> None:
    """Download `url` to `target` and verify it.  Raises OSError if the network or the server does not answer."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".partial-", dir=target.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url, timeout=CONNECT_SECONDS) as answer:
            size = answer.headers.get("Content-Length")
            with progress() as bar:
                task = bar.add_task(target.name, total=int(size) if size else None)
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
                    bar.advance(task, len(chunk))
            file.flush()
            os.fsync(file.fileno())
        found = checksum(partial, algorithm)
        if found != expected:
            raise DataError(f"{url} is not the published file ({algorithm} {found})")
        partial.chmod(0o644)
        partial.replace(target)
        sync_folder(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def progress() -> "Progress":
    """A bar on stderr, silent when that is not a terminal."""
    # Imported here, because reading a data set must not need rich.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )
