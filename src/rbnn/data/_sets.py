"""A loaded data set: images as NumPy bytes, or the paths of image files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rbnn.text import as_shape, listed, plural

Split = Literal["train", "test"]


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """A set that fits into memory. `mean` and `std` are per channel, of pixels scaled to [0, 1]."""

    name: str
    images: NDArray[np.uint8]
    """(N, height, width, channels)"""
    labels: NDArray[np.int64]
    """(N,)"""
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_padding: int
    """Training crops are cut at random from the image with this many zero pixels around it."""
    flip: bool
    """Whether a mirrored image still shows its class."""
    chosen: str = ""
    """Which images of the source these are, if the source has no split of its own."""
    split: Split | None = None
    """Which split `load` loaded."""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"ImageSet({_summary(self, (self.channels, *self.images.shape[1:3]))})"

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The images as a network takes them, (N, channels, height, width), normalised by `mean` and `std`, and their
        labels."""
        from rbnn.data.preprocess import normalise  # imports Pillow, which is slow

        return normalise(self.images, self.mean, self.std), self.labels

    @property
    def image_size(self) -> int:
        return int(self.images.shape[1])

    @property
    def channels(self) -> int:
        return int(self.images.shape[3])


@dataclass(frozen=True, eq=False, repr=False)
class FolderSet:
    """A set of image files, decoded to RGB when needed."""

    name: str
    paths: tuple[Path, ...]
    labels: NDArray[np.int64]
    """(N,)"""
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_size: int
    """The default size of the images that a network sees."""
    flip: bool = True
    chosen: str = ""
    """The folder."""
    split: Split | None = None
    """Which split `load` loaded."""

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"FolderSet({_summary(self, (self.channels, self.image_size, self.image_size))})"

    @property
    def channels(self) -> int:
        return 3


def _summary(images: ImageSet | FolderSet, shape: tuple[int, ...]) -> str:
    """Name, split, number and shape of the images, and their classes, in one line."""
    name = f"{images.name}, {images.split}" if images.split else images.name
    classes = f"{len(images.classes):,} classes ({listed(images.classes)})"
    return f"{name}: {plural(len(images), 'image')} of {as_shape(shape)}, {classes}"


@dataclass(frozen=True)
class Obtained:
    """Where the files of a verified data set are, how they got there, and what they contain."""

    name: str
    path: Path | None
    """None if the set is part of an installed package."""
    how: str
    """As the end of a sentence: "was downloaded"."""
    train: int
    """Number of images."""
    test: int
    classes: tuple[str, ...]
