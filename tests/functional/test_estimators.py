"""Sign, its stand-in derivatives, and their schedule against the formulas written out in NumPy."""

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rbnn.errors import UnknownName
from rbnn.functional import ESTIMATORS, estimator, gain, sharpness, sign, training_aware

X = np.concatenate([np.linspace(-150, 150, 2001), np.linspace(-2, 2, 4001), [-1.0, 0.0, 1.0]])


def derivative(name: str, x: np.ndarray, t: float, k: float) -> np.ndarray:
    size = np.abs(x)
    return {
        "identity": np.ones_like(x),
        "ste": (size <= 1).astype(float),
        "ppf": np.maximum(2 - 2 * size, 0),
        "training-aware": np.maximum(k * (sqrt(2) * t - t**2 * size), 0),
        "ede": k * t * (1 - np.tanh(t * x) ** 2),
    }[name]


def test_sign_has_two_values_and_zero_is_minus_one() -> None:
    x = torch.tensor([-2.0, -0.0, 0.0, 1e-45, 3.0, float("inf"), -float("inf")])
    assert sign(x).tolist() == [-1, -1, -1, 1, 1, 1, -1]
    assert sign(x.double()).dtype is torch.float64


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("t", "k"), [(0.01, 100.0), (1.0, 1.0), (10.0, 1.0), (0.3, 2.0)])
def test_derivative_is_the_formula(name: str, t: float, k: float) -> None:
    found = estimator(name, t, k)(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(found, derivative(name, X, t, k), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("name", "peak", "area", "support"),
    [
        ("ste", lambda t, k: 1.0, lambda k: 2.0, lambda t: 1.0),
        ("ppf", lambda t, k: 2.0, lambda k: 2.0, lambda t: 1.0),
        ("training-aware", lambda t, k: sqrt(2) * k * t, lambda k: 2 * k, lambda t: sqrt(2) / t),
        ("ede", lambda t, k: k * t, lambda k: 2 * k, lambda t: 12 / t),
    ],
)
@pytest.mark.parametrize("t", [0.01, 0.5, 1.0, 10.0])
def test_peak_area_and_support(name: str, peak, area, support, t: float) -> None:  # type: ignore[no-untyped-def]
    k = gain(t)
    end = support(t)
    x = torch.linspace(-end, end, 200_001, dtype=torch.float64)
    values = estimator(name, t, k)(x)
    assert float(values.max()) == pytest.approx(peak(t, k))
    assert float(torch.trapezoid(values, x)) == pytest.approx(area(k), rel=1e-4)
    assert float(estimator(name, t, k)(torch.tensor([1.001 * end], dtype=torch.float64))) < 1e-9 * peak(t, k)


def test_unknown_estimator_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'training-aware'"):
        estimator("training_aware", 1.0, 1.0)


@pytest.mark.parametrize(("progress", "t", "k"), [(0.0, 0.01, 100.0), (0.5, 10**-0.5, 10**0.5), (1.0, 10.0, 1.0)])
def test_schedule_of_sharpness_and_gain(progress: float, t: float, k: float) -> None:
    assert sharpness(progress, -2, 1) == pytest.approx(t)
    assert gain(t) == pytest.approx(k)


@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_training_aware_is_the_formula_and_its_estimator_the_derivative(progress: float) -> None:
    t = 10 ** (-2 + 3 * progress)
    k = max(1 / t, 1)
    edge = sqrt(2) / t
    x = np.linspace(-2 * edge, 2 * edge, 4001)
    x = x[np.abs(np.abs(x) - edge) > 1e-3 * edge]  # there F' has a corner
    inside = k * (-np.sign(x) * t**2 * x**2 / 2 + sqrt(2) * t * x)
    expected = np.where(np.abs(x) < edge, inside, k * np.sign(x))
    np.testing.assert_allclose(training_aware(torch.from_numpy(x), t, k), expected, rtol=1e-12, atol=1e-12)
    h = 1e-6 * edge
    slope = (training_aware(torch.from_numpy(x + h), t, k) - training_aware(torch.from_numpy(x - h), t, k)) / (2 * h)
    found = estimator("training-aware", t, k)(torch.from_numpy(x))
    np.testing.assert_allclose(found, slope, rtol=1e-5, atol=1e-5 * k * t)


@given(st.floats(0, 1))
def test_training_aware_is_continuous_where_it_saturates(progress: float) -> None:
    t = sharpness(progress, -2, 1)
    k = gain(t)
    edge = sqrt(2) / t
    x = torch.tensor([edge * (1 - 1e-9), edge * (1 + 1e-9)], dtype=torch.float64)
    assert training_aware(x, t, k).tolist() == pytest.approx([k, k])
