"""Sign, the estimators of its derivative, and their schedule against the formulas in NumPy."""

from math import sqrt

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rbnn.errors import UnknownName
from rbnn.functional import ESTIMATORS, estimator, gain, sharpness, sharpness_and_gain, sign, training_aware

X = np.concatenate([np.linspace(-150, 150, 2001), np.linspace(-2, 2, 4001), [-1.0, 0.0, 1.0]])
LN2 = np.log(2.0)


def derivative(name: str, x: np.ndarray, t: float, k: float) -> np.ndarray:
    size, z = np.abs(x), 5 * x
    return {
        "identity": np.ones_like(x),
        "ste": (size <= 1).astype(float),
        "ppf": np.maximum(2 - 2 * size, 0),
        "training-aware": np.maximum(k * (sqrt(2) * t - t**2 * size), 0),
        "ede": k * t * (1 - np.tanh(t * x) ** 2),
        # 1 + cosh z as exp(log(1 + cosh z)): numpy's cosh overflows beyond 710.
        "swish-sign": 5 * (2 - z * np.tanh(z / 2)) * np.exp(-np.logaddexp(0, np.logaddexp(z, -z) - LN2)),
        "annealed-tanh": t * (1 - np.tanh(t * x) ** 2),
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
        ("swish-sign", lambda t, k: 5.0, lambda k: 2.0, lambda t: 5.0),
        ("annealed-tanh", lambda t, k: t, lambda k: 2.0, lambda t: 12 / t),
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


def test_swish_sign_is_stable_in_float32_and_turns_negative() -> None:
    x = torch.tensor([-1e30, -1000, -20, -2.41 / 5, -2.38 / 5, 0, 2.38 / 5, 2.41 / 5, 20, 1000, 1e30])
    values = estimator("swish-sign", 1.0, 1.0)(x)
    assert bool(torch.isfinite(values).all())
    assert [v > 0 for v in values.tolist()] == [False] * 4 + [True] * 3 + [False] * 4
    assert values[3] < 0
    assert values[[0, 1, 9, 10]].tolist() == [0.0] * 4


def test_swish_sign_is_the_derivative_of_its_soft_form() -> None:
    x = torch.linspace(-3, 3, 501, dtype=torch.float64, requires_grad=True)
    s = torch.sigmoid(5 * x)
    (2 * s * (1 + 5 * x * (1 - s)) - 1).sum().backward()
    np.testing.assert_allclose(estimator("swish-sign", 1.0, 1.0)(x.detach()), x.grad, atol=1e-12)


@pytest.mark.parametrize(("progress", "beta"), [(0.0, 1.0), (0.5, sqrt(10)), (1.0, 10.0)])
def test_annealed_tanh_goes_from_1_to_10_in_any_method(progress: float, beta: float) -> None:
    for low, high in ((-2, 1), (-3, 1)):
        t, k = sharpness_and_gain("annealed-tanh", progress, low, high)
        assert t == pytest.approx(beta)
        assert float(estimator("annealed-tanh", t, k)(torch.zeros(1))) == pytest.approx(beta)
    assert sharpness_and_gain("ede", progress, -3, 1) == pytest.approx(
        (10 ** (4 * progress - 3), max(10 ** (3 - 4 * progress), 1))
    )


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
    x = x[np.abs(np.abs(x) - edge) > 1e-3 * edge]  # F' has a kink there
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
