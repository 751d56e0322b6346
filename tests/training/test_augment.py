"""Batched augmentation against a slow loop."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rbnn.training import augment


@settings(deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(0, 6),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    channels=st.sampled_from([1, 3]),
    padding=st.integers(0, 4),
)
def test_crop_and_flip_equal_a_loop(
    seed: int, count: int, height: int, width: int, channels: int, padding: int
) -> None:
    random = np.random.default_rng(seed)
    images = random.integers(1, 256, (count, height, width, channels), dtype=np.uint8)
    top, left = random.integers(0, 2 * padding + 1, (2, count))
    flip = random.random(count) < 0.5
    found = augment.crop_and_flip(images, padding, top, left, flip)
    expected = np.zeros_like(images)
    for n in range(count):
        for y in range(height):
            for x in range(width):
                source_y = y + top[n] - padding
                source_x = (width - 1 - x if flip[n] else x) + left[n] - padding
                if 0 <= source_y < height and 0 <= source_x < width:
                    expected[n, y, x] = images[n, source_y, source_x]
    np.testing.assert_array_equal(found, expected)


def test_the_input_is_left_alone() -> None:
    images = np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3)
    before = images.copy()
    augment.crop_and_flip(images, 0, np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, bool))
    np.testing.assert_array_equal(images, before)


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 100))
def test_a_crop_window_lies_inside(height: int, width: int, seed: int) -> None:
    top, left, h, w = augment.crop_window(height, width, np.random.default_rng(seed))
    assert 0 <= top < top + h <= height
    assert 0 <= left < left + w <= width


def test_crop_windows_have_the_area_and_shape_asked_for() -> None:
    random = np.random.default_rng(0)
    windows = np.array([augment.crop_window(400, 500, random) for _ in range(3000)])
    area = windows[:, 2] * windows[:, 3] / (400 * 500)
    ratio = windows[:, 3] / windows[:, 2]
    assert 0.079 < area.min() < 0.09
    assert 0.9 < area.max() <= 1
    assert 0.74 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 1.35
    assert 0.4 < np.median(area) < 0.5  # below the midpoint of .08 to 1, because large areas often do not fit


def test_a_very_long_picture_gives_its_middle() -> None:
    assert augment.crop_window(10, 2000, np.random.default_rng(0)) == (0, 993, 10, 13)
    assert augment.crop_window(2000, 10, np.random.default_rng(0)) == (993, 0, 13, 10)


def test_random_resized_crop_has_the_size() -> None:
    image = np.full((50, 70, 3), 8, np.uint8)
    cropped = augment.random_resized_crop(image, 32, np.random.default_rng(0))
    assert cropped.shape == (32, 32, 3)
    assert (cropped == 8).all()
