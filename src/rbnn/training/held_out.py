"""Held-out training images, so that choices are made without looking at the test set."""

import numpy as np
from numpy.typing import NDArray

from rbnn.data import FolderSet, ImageSet
from rbnn.errors import ConfigError

SEED = 0
"""Fixed, so that runs with the same number of held-out images hold out the same ones, whatever their own seed."""


def split(dataset: ImageSet | FolderSet, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of the images to train on, and of ``count`` held-out images.  Every class has equally many of these,
    up to one if ``count`` is not a multiple of the number of classes."""
    classes = len(dataset.classes)
    random = np.random.default_rng(SEED)
    held = []
    for label in range(classes):
        share = count // classes + (label < count % classes)
        own = np.flatnonzero(dataset.labels == label)
        if share >= len(own):
            raise ConfigError(
                f"validation = {count} needs {share} images of class {dataset.classes[label]!r}, which has {len(own)}: "
                "hold out fewer"
            )
        held.append(random.permutation(own)[:share])
    chosen = np.sort(np.concatenate(held))
    return np.setdiff1d(np.arange(len(dataset)), chosen), chosen
