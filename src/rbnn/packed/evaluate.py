"""Accuracy of a packed network on a data set, without torch."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rbnn.data import FolderSet, ImageSet, preprocess
from rbnn.packed.graph import only_array
from rbnn.packed.session import Session


def evaluate(
    session: Session, tests: ImageSet | FolderSet, mean: Sequence[float], std: Sequence[float], batch_size: int
) -> dict[str, float]:
    """Top-1 and top-5 accuracy in percent, on images normalised by ``mean`` and ``std``."""
    hit1 = hit5 = 0
    for first, pictures in _pictures(tests, session.input_shape[1], batch_size):
        labels = tests.labels[first : first + len(pictures)]
        logits = only_array(session(preprocess.normalise(pictures, mean, std))).reshape(len(pictures), -1)
        ranked = np.argsort(-logits, axis=1, kind="stable")[:, :5] == labels[:, None]
        hit1 += int(ranked[:, 0].sum())
        hit5 += int(ranked.any(1).sum())
    return {"top1": 100 * hit1 / len(tests), "top5": 100 * hit5 / len(tests)}


def _pictures(tests: ImageSet | FolderSet, side: int, batch_size: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """The start of each batch, and its images as in validation; batches of large images are smaller."""
    batch_size = preprocess.at_once(batch_size, side, tests.channels)
    for first in range(0, len(tests), batch_size):
        if isinstance(tests, ImageSet):
            yield first, tests.images[first : first + batch_size]
        else:
            paths = tests.paths[first : first + batch_size]
            yield first, np.stack([preprocess.picture(path, side, tests.channels) for path in paths])
