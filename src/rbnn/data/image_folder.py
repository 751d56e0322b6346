"""Your own images, or ImageNet: `DIR/train/<class>/*.jpg` and `DIR/val/<class>/*.jpg` (or `test`)."""

import os
from pathlib import Path

import numpy as np

from rbnn.data import _files
from rbnn.data._sets import FolderSet, Obtained, Split
from rbnn.errors import DataError, MissingData
from rbnn.text import plural

IMAGE_SIZE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff")
FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("val", "test")}
TREES = {split: f"{' or '.join(names)}/<class>/*.jpg" for split, names in FOLDERS.items()}


def load(directory: Path | None, split: Split) -> FolderSet:
    """List the images, which are decoded when needed. Classes are the sorted folders of `train`."""
    if directory is None:
        raise _files.no_directory("image-folder")
    root = _split_folder(directory, split)
    if root is None and not directory.exists():
        raise MissingData(f"{directory} does not exist: expected a directory with {TREES[split]}")
    if root is None:
        raise MissingData(f"no {split} images in {directory}: expected {TREES[split]}")
    classes = _classes(_split_folder(directory, "train") or root)
    unknown = sorted(set(_classes(root)) - set(classes))
    if unknown:
        raise DataError(f"{root} has the class {unknown[0]}, which has no training images: remove it")
    paths: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = _pictures(root / name)
        if not found and split == "train":
            raise DataError(f"{root / name} contains no images: expected {' '.join(ENDINGS)}")
        paths += found
        labels += [label] * len(found)
    if not paths and (loose := _pictures(root)):
        raise DataError(
            f"{root} contains {plural(len(loose), 'image')}, but not in folders of classes: move each to "
            f"{root / '<class>' / loose[0].name}"
        )
    if not paths:
        raise DataError(f"{root} contains no images: expected <class>/*.jpg, or {' '.join(ENDINGS[1:])}")
    numbers = np.array(labels, np.int64)
    return FolderSet("image-folder", tuple(paths), numbers, classes, MEAN, STD, IMAGE_SIZE, chosen=str(root))


def obtain(directory: Path) -> Obtained:
    """There is nothing to download; say what is there."""
    train, test = load(directory, "train"), load(directory, "test")
    return Obtained("image-folder", directory, "was already there", len(train), len(test), train.classes)


def _split_folder(directory: Path, split: Split) -> Path | None:
    roots = (directory / "image-folder", directory)
    return next((r / name for r in roots for name in FOLDERS[split] if (r / name).is_dir()), None)


def _classes(root: Path) -> tuple[str, ...]:
    names = (entry.name for entry in os.scandir(root) if entry.is_dir())
    return tuple(sorted(name for name in names if not name.startswith(".")))


def _pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    names = sorted(entry.name for entry in os.scandir(folder))
    return [folder / name for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")]
