"""The oracle's formulas for operations that do more than move and add values.

Arrays are (images, height, width, channels); sums and functions are computed in double and rounded once.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Inputs = dict[str, Array]

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
CUBIC = -0.75
"""The parameter of torch's bicubic kernel."""


# Activations


def activation(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    name, *numbers = attributes["activation"]
    if name == "hardtanh":
        return np.minimum(np.maximum(x, np.float32(numbers[0])), np.float32(numbers[1]))
    if name == "relu":
        return np.maximum(x, 0)
    if name == "relu6":
        return np.minimum(np.maximum(x, 0), 6)
    if name in ("prelu", "leaky_relu"):
        slope = tensors["slope"] if name == "prelu" else np.float32(numbers[0])
        return np.asarray(np.where(x > 0, x, np.minimum(x, 0) * slope))
    if name == "sigmoid":
        return np.asarray(1 / (1 + np.exp(-x.astype(np.float64).clip(-500, 500))), np.float32)
    if name == "hardswish":
        return np.asarray(x * np.minimum(np.maximum(x + 3, 0), 6) / 6)
    if name == "abs":
        return np.asarray(np.abs(x))
    return np.asarray(_SMOOTH[name](x.astype(np.float64), *numbers), np.float32)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, np.float64(np.float32(alpha)) * np.expm1(np.minimum(x, 0)))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.maximum(x, -700))))


def _softplus(x: Array, beta: float, threshold: float) -> Array:
    beta, threshold = float(np.float32(beta)), float(np.float32(threshold))
    linear = x * beta > threshold
    return np.where(linear, x, np.log1p(np.exp(np.where(linear, 0, x * beta))) / beta)


def _gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float64])(x * math.sqrt(0.5))
    return np.asarray(0.5 * x * (1 + erf))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))))


_SMOOTH: dict[str, Callable[..., Array]] = {
    "elu": _elu,
    "selu": lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0))),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": _softplus,
    "tanh": np.tanh,
    "hardsigmoid": lambda x: np.minimum(np.maximum(x + 3, 0), 6) / 6,
    "mish": lambda x: x * np.tanh(_softplus(x, 1.0, 20.0)),
    "exp": np.exp,
    "power": lambda x, exponent: np.power(x, np.float64(np.float32(exponent))),
}


# Operations along axes


def _axes(over: str) -> tuple[int, ...]:
    return tuple(1 + "hwc".index(axis) for axis in over)


def mean(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    return np.asarray(x.mean(_axes(attributes["over"]), keepdims=True, dtype=np.float64))


def reduce(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    functions: dict[str, Callable[..., Any]] = {"sum": np.sum, "max": np.max, "min": np.min}
    return np.asarray(functions[attributes["how"]](x.astype(np.float64), axis=_axes(attributes["over"]), keepdims=True))


def softmax(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    axes = _axes(attributes["over"])
    below = x.astype(np.float64) - x.max(axes, keepdims=True)
    total = np.exp(below).sum(axes, keepdims=True)
    return np.asarray(below - np.log(total) if attributes.get("log") else np.exp(below) / total)


def standardize(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    """(x − mean)/√(variance + eps), for each group of channels separately."""
    images, height, width, channels = x.shape
    groups, eps = attributes.get("groups", 1), np.float64(np.float32(attributes["eps"]))
    apart = x.reshape(images, height, width, groups, channels // groups).astype(np.float64)
    axes = tuple({"h": 1, "w": 2, "c": 4}[axis] for axis in attributes["over"])
    centred = apart - apart.mean(axes, keepdims=True)
    variance = (centred * centred).mean(axes, keepdims=True)
    return np.asarray((centred / np.sqrt(variance + eps)).reshape(x.shape))


def local_norm(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    """x / (k + alpha · mean of x² over ``window`` channels)^beta; missing channels count as 0."""
    window, (alpha, beta, k) = attributes["window"], (
        np.float64(np.float32(attributes[role])) for role in ("alpha", "beta", "k")
    )  # fmt: skip
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (0, 0), (0, 0), (window // 2, (window - 1) // 2)))
    sums = np.lib.stride_tricks.sliding_window_view(squares, window, 3).sum(-1)
    return np.asarray(x / np.power(k + alpha * sums / window, beta))


def matmul(a: Array, b: Array) -> Array:
    """The product of two matrices (height, width) for each channel."""
    product = np.einsum("nykc,nkxc->nyxc", a.astype(np.float64), b.astype(np.float64))
    return np.asarray(product, np.float32)


# Other sizes


def resize(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    """Each side separately: rows first, then columns.  Values in between are double."""
    scale = attributes.get("scale", (None, None))
    rows, columns = (
        taps(before, after, attributes["mode"], attributes.get("align", False), factor)
        for before, after, factor in zip(x.shape[1:3], attributes["size"], scale, strict=True)
    )
    high: Any = sum(weight[:, None, None] * x[:, index].astype(np.float64) for index, weight in rows)
    return np.asarray(sum(weight[:, None] * high[:, :, index] for index, weight in columns))


def taps(side: int, count: int, mode: str, align: bool, scale: float | None) -> list[tuple[Array, Array]]:
    """For each of ``count`` output pixels, the input pixels that it is made of, and their weights."""
    if mode in ("nearest", "nearest_exact"):  # in float32, as in torch, so that the nearest pixel is the same
        half = np.float32(0.5 if mode == "nearest_exact" else 0)
        index = np.floor((np.arange(count, dtype=np.float32) + half) * _step(side, count, scale)).astype(np.int64)
        return [(np.minimum(index, side - 1), np.ones(count))]
    at = positions(side, count, align, scale)
    if mode == "bilinear":
        at = np.maximum(at, 0)
        first = np.minimum(np.floor(at).astype(np.int64), side - 1)
        rest = np.minimum(at - first, 1.0)
        return [(first, 1 - rest), (np.minimum(first + 1, side - 1), rest)]
    first = np.floor(at).astype(np.int64)
    rest = at - first
    weights = [_outer(rest + 1), _inner(rest), _inner(1 - rest), _outer(2 - rest)]
    return [
        (np.clip(first + offset, 0, side - 1), weight) for offset, weight in zip(range(-1, 3), weights, strict=True)
    ]


def positions(side: int, count: int, align: bool, scale: float | None) -> Array:
    """The position of each output pixel of an interpolation among the input pixels; some are beyond the first or the
    last."""
    places = np.arange(count)
    if align:
        return np.asarray(places * ((side - 1) / (count - 1) if count > 1 else 0.0))
    return np.asarray((places + 0.5) * np.float64(_step(side, count, scale)) - 0.5)


def _step(side: int, count: int, scale: float | None) -> np.float32:
    return np.float32(1 / scale) if scale is not None else np.float32(side) / np.float32(count)


def _inner(t: Array) -> Array:
    """Bicubic interpolation: the weight of a pixel at a distance below one."""
    return np.asarray(((CUBIC + 2) * t - (CUBIC + 3)) * t * t + 1)


def _outer(t: Array) -> Array:
    """The weight of a pixel at a distance from one to two."""
    return np.asarray(((CUBIC * t - 5 * CUBIC) * t + 8 * CUBIC) * t - 4 * CUBIC)


def pad(x: Array, tensors: Inputs, attributes: dict[str, Any]) -> Array:
    margins = [(0, 0), *zip(attributes["before"], attributes["after"], strict=True)]
    mode = attributes.get("mode", "constant")
    if mode == "constant":
        return np.pad(x, margins, constant_values=attributes.get("value", 0.0))
    named: Any = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}[mode]
    return np.pad(x, margins, named)
