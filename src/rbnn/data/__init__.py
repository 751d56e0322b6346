"""Data sets by name, as NumPy bytes or lists of image files. Never imports torch.

Each set is a file with two functions, `load(directory, split)` and `obtain(directory)`, and a line in the table below.
"""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol, cast, get_args, overload

from rbnn.data._sets import FolderSet, ImageSet, Obtained, Split
from rbnn.errors import DataError, UnknownName

__all__ = ["FolderSet", "ImageSet", "Obtained", "Split", "load", "names", "obtain"]

_MODULES = {
    "digits": "digits",
    "cifar10": "cifar10",
    "cifar100": "cifar100",
    "fashion-mnist": "fashion_mnist",
    "image-folder": "image_folder",
}

_EMBEDDED = ("digits",)
"""The sets that are part of a package and need no directory."""


class _DataSet(Protocol):
    def load(self, directory: Path | None, split: Split) -> ImageSet | FolderSet: ...

    def obtain(self, directory: Path) -> Obtained: ...


def names() -> list[str]:
    """The data sets that `load` knows; the first needs no files."""
    return list(_MODULES)


@overload
def load(name: Literal["digits"], directory: Path | str | None = None, split: Split = "train") -> ImageSet: ...
@overload
def load(name: str, directory: Path | str | None = None, split: Split = "train") -> ImageSet | FolderSet: ...
def load(name: str, directory: Path | str | None = None, split: Split = "train") -> ImageSet | FolderSet:
    """Load one split of a data set whose files are in `directory/NAME` or `directory`. `rbnn train` and `rbnn eval` use
    the same splits."""
    splits = get_args(Split)
    if split not in splits:
        raise UnknownName("split", split, splits)
    chosen, place = _data_set(name), None if directory is None else Path(directory).expanduser()
    # The commands pass the path of --data-dir for every set, so a path may be missing if the set needs none.
    maybe_split = isinstance(directory, str) and (name in _EMBEDDED or directory in splits)
    if maybe_split and place is not None and not place.exists():
        raise DataError(f'the directory {directory!r} does not exist: to choose a split, write split="test"')
    return replace(chosen.load(place, split), split=split)


def obtain(name: str, directory: Path | str) -> Obtained:
    """Get the verified files of a data set in `directory`. An error says which file to put where."""
    return _data_set(name).obtain(Path(directory).expanduser())


def _data_set(name: str) -> _DataSet:
    # Imported on demand, so that `rbnn.data.preprocess` alone loads quickly on a device.
    if name not in _MODULES:
        raise UnknownName("data set", name, _MODULES)
    return cast(_DataSet, import_module(f"rbnn.data.{_MODULES[name]}"))
