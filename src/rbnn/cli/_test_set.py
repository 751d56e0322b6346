"""The test set of a network, for the commands that take --data-dir."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rbnn import data
from rbnn.data import FolderSet, ImageSet
from rbnn.errors import MissingData

if TYPE_CHECKING:
    from rbnn.training.config import TrainConfig

USUAL = Path("data")
"""The directory of the data sets, if neither the user nor the run names another one."""


def load_test_set(name: str, given: Path | None, trained: "TrainConfig | None" = None) -> ImageSet | FolderSet:
    """The test set ``name``.  Without ``given``, its files are in the directory that a run on the same set was
    ``trained`` with, if that still exists."""
    if given is not None:
        return data.load(name, given, "test")
    directory = USUAL
    if trained is not None and name == trained.data and os.path.isdir(trained.data_dir):
        directory = trained.data_dir
    try:
        return data.load(name, directory, "test")
    except MissingData as error:
        raise MissingData(f"{error}; if the files are elsewhere, add --data-dir DIR") from None
