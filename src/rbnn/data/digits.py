"""Handwritten digits: 1,437 + 360 grey images of 8 x 8 pixels in 10 classes, part of scikit-learn.

The images stay 8 x 8 x 1 and are not enlarged for a network for 32 x 32 RGB. The network takes its channels and its
size from the set (`set.channels`, `set.image_size`).
"""

from pathlib import Path

import numpy as np

from rbnn.data._sets import ImageSet, Obtained, Split
from rbnn.errors import DataError

LEVELS = 16


def load(directory: Path | None, split: Split) -> ImageSet:
    """`directory` is not used."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError("digits needs scikit-learn, which is not installed: pip install scikit-learn") from error
    found = load_digits()
    # Every fifth image, ordered by class, is for testing.  The split is stratified, and it is the same on every
    # machine, because it uses no random generator.
    for_test = np.zeros(len(found.target), bool)
    for_test[np.argsort(found.target, kind="stable")[::5]] = True
    chosen = for_test if split == "test" else ~for_test
    images = (found.images[chosen] * 255 / LEVELS).round().astype(np.uint8)
    return ImageSet(
        name="digits",
        images=images[..., None],
        labels=found.target[chosen].astype(np.int64),
        classes=tuple(str(digit) for digit in range(10)),
        mean=(0.3058,),
        std=(0.3761,),
        crop_padding=1,
        flip=False,
        chosen="every fifth, ordered by class" if split == "test" else "four of five, ordered by class",
    )


def obtain(directory: Path) -> Obtained:
    """There is nothing to download."""
    train, test = load(None, "train"), load(None, "test")
    return Obtained("digits", None, "is part of scikit-learn", len(train), len(test), train.classes)
