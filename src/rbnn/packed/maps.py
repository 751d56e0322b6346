"""Writes the outputs of a network that is not a classifier to files: arrays, and maps of classes as images."""

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.files import write_whole
from rbnn.packed.graph import named, unused

LONGEST_NAME = 80
MOST_CLASSES = 256
"""The number of classes that a pixel of a PNG can distinguish."""


def save(answer: Any, directory: Path, stem: str) -> list[Path]:
    """Write ``STEM.npz`` with every array of the output for one image, and ``STEM.NAME.png`` for each map (1, C, H, W)
    of two to 256 channels: the index of the largest channel, with a colour for each."""
    arrays: dict[str, NDArray[np.float32]] = {}
    for name, array in named(answer):
        arrays[unused(_plain(name), arrays)] = array
    written = [directory / f"{stem}.npz"]
    write_whole(written[0], lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
    for name, array in arrays.items():
        if array.ndim == 4 and 2 <= array.shape[1] <= MOST_CLASSES and min(array.shape[2:]) > 1:
            data = _png(array[0].argmax(0).astype(np.uint8))
            written.append(directory / f"{stem}.{name}.png")
            write_whole(written[-1], lambda file, data=data: file.write(data))  # type: ignore[misc]
    return written


def _plain(name: str) -> str:
    """A name from a file as a part of another file's name.  It cannot be a path or an argument of ``savez``."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:LONGEST_NAME]
    return f"{plain}_" if plain in ("file", "allow_pickle") else plain


def _png(classes: NDArray[np.uint8]) -> bytes:
    from PIL import Image  # slow to import

    picture = Image.fromarray(classes)
    picture.putpalette(_palette().reshape(-1).tolist())
    file = BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def _palette() -> NDArray[np.uint8]:
    """Class 0 is black, and each other colour differs from those before: the bits of the number, spread over the
    channels."""
    numbers = np.arange(MOST_CLASSES)
    colours = np.zeros((MOST_CLASSES, 3), np.uint8)
    for bit in range(8):
        colours[:, bit % 3] |= ((numbers >> bit & 1) << (7 - bit // 3)).astype(np.uint8)
    return colours
