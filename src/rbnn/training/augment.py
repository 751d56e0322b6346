"""Random crops and flips of training pictures, as NumPy bytes.

Every function is told its random numbers: a batch depends on nothing but (seed, epoch, place in the epoch).
"""

import math

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rbnn.data import preprocess
from rbnn.data.preprocess import Picture

SCALE = (0.08, 1.0)
"""Share of the picture's area that a random-resized crop takes (Szegedy et al., 2015)."""
RATIO = (3 / 4, 4 / 3)
"""Its width over its height."""
ATTEMPTS = 10


def crop_and_flip(
    images: NDArray[np.uint8],
    padding: int,
    top: NDArray[np.int64],
    left: NDArray[np.int64],
    flip: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Pad each picture with `padding` zero pixels, cut its own size at (top, left), mirror where `flip` says.

    `images` is (N, H, W, C); `top` and `left` are (N,) from 0 to 2 * padding.
    """
    count, height, width, channels = images.shape
    padded = np.zeros((count, height + 2 * padding, width + 2 * padding, channels), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = images
    # Rows as plain bytes: a window is then `height` runs of contiguous memory, copied run by run.
    rows = padded.reshape(count, height + 2 * padding, (width + 2 * padding) * channels)
    windows: NDArray[np.uint8] = sliding_window_view(rows, (height, width * channels), axis=(1, 2))
    cropped: NDArray[np.uint8] = windows[np.arange(count), top, left * channels].reshape(images.shape)
    mirrored = np.flatnonzero(flip)
    # torch, because NumPy's own [:, :, ::-1] takes five times as long.
    cropped[mirrored] = torch.from_numpy(cropped[mirrored]).flip(2).numpy()
    return cropped


def random_resized_crop(image: Picture, size: int, random: np.random.Generator) -> Picture:
    """Cut a random part of random shape and scale it to size x size; after Szegedy et al. (2015)."""
    top, left, height, width = crop_window(image.shape[0], image.shape[1], random)
    return preprocess.resize(image[top : top + height, left : left + width], size, size)


def crop_window(height: int, width: int, random: np.random.Generator) -> tuple[int, int, int, int]:
    """`(top, left, height, width)` of a random-resized crop."""
    for _ in range(ATTEMPTS):
        area = height * width * random.uniform(*SCALE)
        ratio = math.exp(random.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        crop_height, crop_width = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < crop_height <= height and 0 < crop_width <= width:
            top = int(random.integers(height - crop_height + 1))
            left = int(random.integers(width - crop_width + 1))
            return top, left, crop_height, crop_width
    # A long, narrow picture: the largest middle part of an allowed shape.
    crop_height = min(height, round(width / RATIO[0])) or 1
    crop_width = min(width, round(height * RATIO[1])) or 1
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width
