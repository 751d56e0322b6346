"""Random crops and flips of training images, as NumPy bytes.

Every function gets its random numbers from the caller, so a batch depends only on (seed, epoch, place in the epoch).
"""

import math

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from rbnn.data import preprocess
from rbnn.data.preprocess import Picture

SCALE = (0.08, 1.0)
"""Share of the image area that a random-resized crop covers (Szegedy et al., 2015)."""
RATIO = (3 / 4, 4 / 3)
"""Ratio of its width to its height."""
ATTEMPTS = 10


def crop_and_flip(
    images: NDArray[np.uint8],
    padding: int,
    top: NDArray[np.int64],
    left: NDArray[np.int64],
    flip: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Pad each image with `padding` zero pixels, crop it to its original size at (top, left), mirror it if `flip` is
    set.

    `images` is (N, H, W, C); `top` and `left` are (N,) from 0 to 2 * padding.
    """
    count, height, width, channels = images.shape
    padded = np.zeros((count, height + 2 * padding, width + 2 * padding, channels), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = images
    # With rows as plain bytes, a window consists of `height` contiguous runs, which are copied one by one.
    rows = padded.reshape(count, height + 2 * padding, (width + 2 * padding) * channels)
    windows: NDArray[np.uint8] = sliding_window_view(rows, (height, width * channels), axis=(1, 2))
    cropped: NDArray[np.uint8] = windows[np.arange(count), top, left * channels].reshape(images.shape)
    mirrored = np.flatnonzero(flip)
    # torch, because NumPy's [:, :, ::-1] takes five times as long.
    cropped[mirrored] = torch.from_numpy(cropped[mirrored]).flip(2).numpy()
    return cropped


def random_resized_crop(image: Picture, size: int, random: np.random.Generator) -> Picture:
    """Crop a random part of random shape and scale it to size x size (Szegedy et al., 2015)."""
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
    # For a long, narrow image: the largest centre crop of an allowed shape.
    crop_height = min(height, round(width / RATIO[0])) or 1
    crop_width = min(width, round(height * RATIO[1])) or 1
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width
