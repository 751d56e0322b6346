"""Training images that are held out, so that choices are made without a look at the test set."""

import numpy as np
from numpy.typing import NDArray

from rbnn.data import FolderSet, ImageSet
from rbnn.errors import ConfigError

SEED = 0
"""Fixed: runs with the same number of held-out images hold out the same ones, whatever their own seed."""


def split(dataset: ImageSet | FolderSet, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places of the images to learn from and of ``count`` to be held out, equally many of each class (up to one, where
    the classes do not divide ``count``)."""
    classes = len(dataset.classes)
    random = np.random.default_rng(SEED)
    held = []
    for label in range(classes):
        share = count // classes + (label < count % classes)
        own = np.flatnonzero(dataset.labels == label)
        if share >= len(own):
            raise ConfigError(
                f"validation = {count} takes {share} images of class {dataset.classes[label]!r}, which has {len(own)}: "
                "hold out fewer"
            )
        held.append(random.permutation(own)[:share])
    chosen = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(dataset)), chosen), chosen
