"""What the tests of methods share: numbers in float64, and formulas without rbnn."""

from typing import Any

import numpy as np
import torch

from rbnn.functional import as_tensor
from rbnn.methods import create_method

SHAPES = [(3, 5, 3, 2), (5, 7), (2, 1, 1, 1), (1, 3, 1, 3)]
"""Shapes of weights of convolutions and linear layers, deliberately odd."""

Array = np.ndarray


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Random values, some beyond ±1, and one exact zero."""
    values = np.random.default_rng(seed).standard_normal(shape) * scale
    values.flat[0] = 0.0
    return values


def signs(x: Array) -> Array:
    return np.where(x > 0, 1.0, -1.0)


def slope(name: str, x: Array, progress: float = 0.0, low: float = -2.0, high: float = 1.0) -> Array:
    """d sign/dx by its formula."""
    t = 10 ** (low + progress * (high - low))
    k, beta = max(1 / t, 1), 10**progress
    return {
        "identity": lambda: np.ones_like(x),
        "ste": lambda: (np.abs(x) <= 1) * 1.0,
        "ppf": lambda: np.maximum(2 - 2 * np.abs(x), 0),
        "ede": lambda: k * t * (1 - np.tanh(t * x) ** 2),
        "training-aware": lambda: np.maximum(k * (np.sqrt(2) * t - t * t * np.abs(x)), 0),
        "swish-sign": lambda: 5 * (2 - 5 * x * np.tanh(2.5 * x)) / (1 + np.cosh(5 * x)),
        "annealed-tanh": lambda: beta * (1 - np.tanh(beta * x) ** 2),
    }[name]()


def over_filters(values: Array, w: Array) -> Array:
    return values.reshape(-1, *[1] * (w.ndim - 1))


def filter_means(w: Array) -> Array:
    """mean|w| of each filter, in a shape that multiplies w."""
    return over_filters(np.abs(w).reshape(len(w), -1).mean(1), w)


def made(name: str, w: Array, progress: float = 0.0, **options: Any) -> Any:
    method = create_method(name, torch.from_numpy(w.copy()), **options)
    method.begin_epoch(torch.from_numpy(w.copy()), progress * 8, 8)
    return method


def forward_and_gradient(function: Any, values: Array, g: Array) -> tuple[Array, Array]:
    """``function(values)`` and the gradient of ``Σ g·function(values)``."""
    tensor = torch.from_numpy(values.copy()).requires_grad_()
    out = function(tensor)
    out.backward(torch.from_numpy(g))
    assert tensor.grad is not None
    return out.detach().numpy(), tensor.grad.numpy()


def assert_weight(method: Any, w: Array, value: Array, gradient: Array, g: Array) -> None:
    found, slope_found = forward_and_gradient(lambda w: as_tensor(method.weight(w)), w, g)
    np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slope_found, gradient, rtol=1e-9, atol=1e-12)


def assert_activation(method: Any, estimator: str, progress: float = 0.0, **exponents: float) -> None:
    """Signs, and the estimator's slope."""
    x, g = numbers(2, 3, 5, 4, seed=7), numbers(2, 3, 5, 4, seed=8)
    found, slope_found = forward_and_gradient(method.activation, x, g)
    np.testing.assert_array_equal(found, signs(x))
    np.testing.assert_allclose(slope_found, g * slope(estimator, x, progress, **exponents), rtol=1e-9, atol=1e-12)
