"""Data sets by name, as NumPy bytes or lists of picture files. Never imports torch.

A set is one file with two functions, `load(directory, split)` and `obtain(directory)`, and one line in the
table below.
"""

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from rbnn.data._sets import FolderSet, ImageSet, Obtained, Split
from rbnn.errors import UnknownName

__all__ = ["FolderSet", "ImageSet", "Obtained", "Split", "load", "names", "obtain"]

_MODULES = {
    "digits": "digits",
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "fashion-mnist": "fashion_mnist",
    "image-folder": "image_folder",
}


class _DataSet(Protocol):
    def load(self, directory: Path | None, split: Split) -> ImageSet | FolderSet: ...

    def obtain(self, directory: Path) -> Obtained: ...


def names() -> list[str]:
    """The data sets that `load` knows; the first needs no files."""
    return list(_MODULES)


def load(name: str, directory: Path | None, split: Split) -> ImageSet | FolderSet:
    """One split of a data set whose files lie under `directory/NAME` or `directory`."""
    return _data_set(name).load(directory, split)


def obtain(name: str, directory: Path) -> Obtained:
    """Have the files of a data set under `directory`, verified; an error says which file to put where."""
    return _data_set(name).obtain(directory)


def _data_set(name: str) -> _DataSet:
    # Imported when asked for, so that `rbnn.data.preprocess` alone stays light on a device.
    if name not in _MODULES:
        raise UnknownName("data set", name, _MODULES)
    return cast(_DataSet, import_module(f"rbnn.data.{_MODULES[name]}"))
