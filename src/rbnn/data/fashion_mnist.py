"""Fashion-MNIST: 60,000 + 10,000 grey images of 28 x 28 pixels in 10 classes (Xiao et al., 2017)."""

import gzip
import math
from http.client import HTTPException
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rbnn.data import _files
from rbnn.data._sets import ImageSet, Obtained, Split
from rbnn.errors import DataError, MissingData

IMAGE_SIZE = 28
OFFICIAL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
PREFIX: dict[Split, str] = {"train": "train", "test": "t10k"}
PICTURES: dict[Split, int] = {"train": 60_000, "test": 10_000}
CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
UNSIGNED_BYTE = 8  # the idx code of the set's only element type


def find(directory: Path | None) -> Path | None:
    """The folder of the idx files: ours, the directory itself, torchvision's or Debian's."""
    folders = [DEBIAN]
    if directory is not None:
        folders = [directory / "fashion-mnist", directory, directory / "FashionMNIST" / "raw", DEBIAN]
    return next((f for f in folders if all((f / name).is_file() for name in MD5)), None)


def load(directory: Path | None, split: Split) -> ImageSet:
    """From the four idx files."""
    folder = find(directory)
    if folder is None:
        raise MissingData(
            f"fashion-mnist was not found in {directory or DEBIAN}: "
            f"run `rbnn data fashion-mnist --dir {directory or 'DIR'}`, or put {', '.join(MD5)} there"
        )
    return read(folder, split, PICTURES[split])


def read(folder: Path, split: Split, pictures: int) -> ImageSet:
    """Read and check one split of `pictures` images."""
    images = read_idx(folder / f"{PREFIX[split]}-images-idx3-ubyte.gz", (pictures, IMAGE_SIZE, IMAGE_SIZE))
    labels = read_idx(folder / f"{PREFIX[split]}-labels-idx1-ubyte.gz", (pictures,))
    counts = np.bincount(labels, minlength=len(CLASSES))
    if len(counts) > len(CLASSES) or counts.min() != counts.max():
        raise DataError(
            f"{folder}: expected {pictures // len(CLASSES)} images in each of {len(CLASSES)} classes of the {split} "
            f"split, got {counts.tolist()}; download it again"
        )
    return ImageSet(
        name="fashion-mnist",
        images=images[..., None],
        labels=labels.astype(np.int64),
        classes=CLASSES,
        mean=(0.2860,),
        std=(0.3530,),
        crop_padding=2,
        flip=True,
    )


def read_idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """An idx file: two zeros, type, number of dimensions, each dimension in four bytes, the values."""
    header = bytes([0, 0, UNSIGNED_BYTE, len(shape)]) + np.array(shape, ">u4").tobytes()
    values = math.prod(shape)
    try:
        with gzip.open(path) as file:
            raw = file.read(len(header) + values + 1)  # one byte more than expected, never a whole decompression bomb
    except _files.BROKEN_ARCHIVE as error:
        raise DataError(f"{path} could not be read ({error}); delete it and download it again") from error
    if not raw.startswith(header) or len(raw) != len(header) + values:
        raise DataError(f"{path}: expected an idx file of {' x '.join(map(str, shape))} bytes; download it again")
    return np.frombuffer(raw, np.uint8, offset=len(header)).reshape(shape)


def obtain(directory: Path) -> Obtained:
    """Existing files, Debian's files, or the official ones."""
    how = "was already there"
    folder = find(directory)
    if folder is None:
        folder, how = directory / "fashion-mnist", "was downloaded"
        try:
            for name, md5 in MD5.items():
                if not (folder / name).is_file():
                    _files.download(f"{OFFICIAL}/{name}", folder / name, "md5", md5)
        except (DataError, OSError, HTTPException) as error:
            raise DataError(
                f"fashion-mnist could not be downloaded ({error}): put {', '.join(MD5)} into {folder}, "
                "or install the Debian package dataset-fashion-mnist"
            ) from error
    if folder != DEBIAN:  # Debian packs the files itself
        for name, md5 in MD5.items():
            _files.verify(folder / name, "md5", md5)
    train, test = (read(folder, split, PICTURES[split]) for split in PREFIX)
    return Obtained("fashion-mnist", folder, how, len(train), len(test), train.classes)
