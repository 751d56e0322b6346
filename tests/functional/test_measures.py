"""Angle, error and flips against their definitions in NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rbnn.functional import angle, cosine, flip_rate, optimal_scale, quantisation_error, relative_quantisation_error


@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_the_error_at_the_optimal_scale_is_the_sine_of_the_angle(n: int, seed: int) -> None:
    w = np.random.default_rng(seed).standard_normal(n)
    b = np.where(w > 0, 1.0, -1.0)
    tw, tb = torch.from_numpy(w), torch.from_numpy(b)
    scale = np.abs(w).mean()  # least squares for signs of w itself
    error = ((w - scale * b) ** 2).sum()
    theta = np.arccos(np.clip(w @ b / np.linalg.norm(w) / np.sqrt(n), -1, 1))
    assert optimal_scale(tw, tb) == pytest.approx(scale)
    assert cosine(tw, tb) == pytest.approx(np.cos(theta))
    assert quantisation_error(tw, tb) == pytest.approx(error, abs=1e-12)
    assert quantisation_error(tw, tb) == pytest.approx((w @ w) * np.sin(theta) ** 2, abs=1e-6)
    assert relative_quantisation_error(tw, tb) == pytest.approx(error / (w @ w), abs=1e-9)
    assert angle(tw, tb) == pytest.approx(np.degrees(theta), abs=1e-4)


@given(st.integers(0, 2**32 - 1), st.floats(-2, 2))
def test_no_other_scale_has_a_smaller_error(seed: int, shift: float) -> None:
    w, b = np.random.default_rng(seed).standard_normal((2, 30))
    tw, tb = torch.from_numpy(w), torch.from_numpy(b)
    other = ((w - (optimal_scale(tw, tb) + shift) * b) ** 2).sum()
    assert quantisation_error(tw, tb) <= other + 1e-12


def test_a_zero_weight_has_cosine_zero() -> None:
    assert cosine(torch.zeros(4), torch.ones(4)) == 0.0
    assert angle(torch.zeros(4), torch.ones(4)) == pytest.approx(90)


def test_measures_do_not_depend_on_shape_or_dtype() -> None:
    w = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    b = torch.sign(w)
    assert cosine(w, b) == pytest.approx(cosine(w.double().flatten(), b.flatten()))
    assert angle(w, w) == pytest.approx(0, abs=1e-3)
    assert angle(w, -w) == pytest.approx(180, abs=1e-3)


def test_flip_rate_is_the_share_of_differing_signs() -> None:
    before = torch.tensor([1.0, -1, 1, 1])
    assert flip_rate(before, before) == 0
    assert flip_rate(before, torch.tensor([1.0, 1, 1, -1])) == 0.5
    assert flip_rate(before, -before) == 1
