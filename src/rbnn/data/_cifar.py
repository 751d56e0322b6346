"""The file formats that CIFAR-10 and CIFAR-100 share.

Whatever the container (binary files, pickles, either in a .tar.gz), a batch becomes the canonical records:
an array of bytes (pictures, labels + 3072), one or two label bytes and then the R, G and B planes of 32 x 32
pixels. All checks are made on those records, so they hold for every container.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rbnn.data import _files, _unpickle
from rbnn.data._sets import ImageSet, Obtained, Split
from rbnn.errors import DataError, MissingData

IMAGE_SIZE = 32
PIXELS = 3 * IMAGE_SIZE * IMAGE_SIZE
LARGEST_MEMBER = 256 << 20
OFFICIAL = "https://www.cs.toronto.edu/~kriz"

Records = NDArray[np.uint8]


@dataclass(frozen=True)
class Cifar:
    """The differences between the two sets."""

    name: str
    batches: Mapping[Split, tuple[str, ...]]
    """File names without ending."""
    pictures: Mapping[Split, int]
    """Per batch file."""
    label_keys: tuple[str, ...]
    """The labels' names in the pickles, in the order of the label bytes; the last one is the class."""
    label_counts: tuple[int, ...]
    """How many values each label has."""
    binary: str
    """Folder of the `.bin` files."""
    pickles: str
    """Folder of the pickles, as torchvision unpacks it."""
    archives: Mapping[str, str]
    """Official archives and their MD5 sums, binary first."""
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    sha1: Mapping[str, str] = field(default_factory=dict)
    """SHA-1 of the records of a batch, if published."""


@dataclass(frozen=True)
class Container:
    """Where the batches of a set were found: a folder or an archive."""

    path: Path
    inside: str
    """Folder within the archive; empty for a folder on disk."""
    pickled: bool

    @property
    def is_archive(self) -> bool:
        return bool(self.inside)


def find(cifar: Cifar, directory: Path) -> Container | None:
    """The first container under `directory/NAME` or `directory`, in the order: binary, archives, pickles."""
    roots = (directory / cifar.name, directory)
    binary, python = cifar.archives
    for root in roots:
        if folder := _folder(cifar, root, cifar.binary, ".bin"):
            return Container(folder, "", pickled=False)
    for archive, inside in ((binary, cifar.binary), (python, cifar.pickles)):
        for root in roots:
            if (root / archive).is_file():
                return Container(root / archive, inside, pickled=archive == python)
    for root in roots:
        if folder := _folder(cifar, root, cifar.pickles, ""):
            return Container(folder, "", pickled=True)
    return None


def load(cifar: Cifar, directory: Path | None, split: Split) -> ImageSet:
    """Read one split from the container that is found."""
    if directory is None:
        raise _files.no_directory(cifar.name)
    container = find(cifar, directory)
    if container is None:
        raise MissingData(
            f"{cifar.name} was not found in {directory}: run `rbnn data {cifar.name} --dir {directory}`, "
            f"or put {next(iter(cifar.archives))} into {directory / cifar.name}"
        )
    return read(cifar, container, split)


def obtain(cifar: Cifar, directory: Path) -> Obtained:
    """Get the verified set in `directory`: existing files, otherwise the official archive."""
    how = "was already there"
    container = find(cifar, directory)
    if container is None:
        how = "was downloaded"
        container = _download(cifar, directory)
    if container.is_archive:
        _files.verify(container.path, "md5", cifar.archives[container.path.name])
    train, test = read(cifar, container, "train"), read(cifar, container, "test")
    return Obtained(cifar.name, container.path, how, len(train), len(test), train.classes)


def _download(cifar: Cifar, directory: Path) -> Container:
    """The binary archive; it is read as it is."""
    archive, md5 = next(iter(cifar.archives.items()))
    target = directory / cifar.name / archive
    try:
        _files.download(f"{OFFICIAL}/{archive}", target, "md5", md5)
    except (DataError, OSError, HTTPException) as error:
        raise DataError(
            f"{cifar.name} could not be downloaded ({error}): put {archive} from {OFFICIAL}/cifar.html into "
            f"{target.parent} and run this command again"
        ) from None
    return Container(target, cifar.binary, pickled=False)


def read(cifar: Cifar, container: Container, split: Split) -> ImageSet:
    """Read and check one split."""
    found = records(cifar, container, split)
    for name in cifar.batches[split]:
        check_batch(cifar, name, found[name], split, container.path)
    together = np.concatenate([found[name] for name in cifar.batches[split]])
    labels = together[:, len(cifar.label_keys) - 1].astype(np.int64)
    counts = np.bincount(labels, minlength=len(cifar.classes))
    if counts.min() != counts.max():
        raise DataError(
            f"{container.path}: expected equally many images per class in the {cifar.name} {split} split, got "
            f"{counts.min()} to {counts.max()}; replace it with the published files"
        )
    planes = together[:, len(cifar.label_keys) :].reshape(-1, 3, IMAGE_SIZE, IMAGE_SIZE)
    return ImageSet(
        name=cifar.name,
        images=np.ascontiguousarray(planes.transpose(0, 2, 3, 1)),
        labels=labels,
        classes=cifar.classes,
        mean=cifar.mean,
        std=cifar.std,
        crop_padding=4,
        flip=True,
    )


def records(cifar: Cifar, container: Container, split: Split) -> dict[str, Records]:
    """The records of each batch of a split, not yet checked."""
    files = {name + ("" if container.pickled else ".bin"): name for name in cifar.batches[split]}
    if container.is_archive:
        wanted = {f"{container.inside}/{file}": name for file, name in files.items()}
        raw = _files.members(container.path, wanted, LARGEST_MEMBER)
        return {wanted[member]: parse(cifar, data, container, member) for member, data in raw}
    return {name: parse(cifar, _bytes(container.path / file), container, file) for file, name in files.items()}


def parse(cifar: Cifar, raw: bytes, container: Container, file: str) -> Records:
    """The records in one batch file."""
    where = f"{container.path}: {file}"
    width = len(cifar.label_keys) + PIXELS
    if not container.pickled:
        if not raw or len(raw) % width:
            raise DataError(f"{where}: expected a multiple of {width} bytes, got {len(raw):,}; download it again")
        return np.frombuffer(raw, np.uint8).reshape(-1, width)
    batch = _unpickle.batch(raw, where)
    pixels = batch.get("data")
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise DataError(f"{where}: expected `data`, an array with {PIXELS} bytes per image; download it again")
    found = np.empty((len(pixels), width), np.uint8)
    found[:, len(cifar.label_keys) :] = pixels
    for column, key in enumerate(cifar.label_keys):
        labels = batch.get(key)
        if (
            not isinstance(labels, list)
            or len(labels) != len(pixels)
            or not all(isinstance(label, int) and 0 <= label < 256 for label in labels)
        ):
            raise DataError(f"{where}: expected `{key}`, one small number per image; download it again")
        found[:, column] = labels
    return found


def check_batch(cifar: Cifar, name: str, found: Records, split: Split, where: Path) -> None:
    """Check the number of images, the range of the labels and, if published, the checksum."""
    expected = cifar.pictures[split]
    if len(found) != expected:
        raise DataError(f"{where}: expected {expected:,} images in {name}, got {len(found):,}; download it again")
    for column, count in enumerate(cifar.label_counts):
        largest = found[:, column].max()
        if largest >= count:
            raise DataError(f"{where}: expected labels below {count} in {name}, got {largest}; download it again")
    if name in cifar.sha1 and hashlib.sha1(found.data, usedforsecurity=False).hexdigest() != cifar.sha1[name]:
        raise DataError(
            f"{where}: {name} is damaged (its SHA-1 is not the published one); delete it and download it again"
        )


def _folder(cifar: Cifar, root: Path, name: str, ending: str) -> Path | None:
    """`root/name`, or `root` itself if it contains every batch."""
    if (root / name).is_dir():
        return root / name
    batches = [batch + ending for split in cifar.batches.values() for batch in split]
    return root if all((root / batch).is_file() for batch in batches) else None


def _bytes(path: Path) -> bytes:
    try:
        if (size := path.stat().st_size) > LARGEST_MEMBER:
            raise DataError(f"{path}: expected at most {LARGEST_MEMBER:,} bytes, got {size:,}; download it again")
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"{path} could not be read ({error.strerror}): make sure that {path.parent} is complete"
        ) from error
