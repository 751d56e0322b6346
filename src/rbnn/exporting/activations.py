"""Elementwise activations: handlers like those of ``rbnn.exporting.handlers``."""

from typing import Any

import numpy as np
from torch import Tensor

from rbnn.exporting.traced_call import Call, Place
from rbnn.packed.operations import Shape

LARGEST = 2.9e38
"""Stands for a missing end of a clamp."""
STEEP = 1e38
"""A factor that takes every float32 beyond 1, except the very smallest."""


def _activation(call: Call, x: Place, *words: Any) -> str:
    return call.write("activation", {"x": x.buffer}, attributes={"activation": list(words)})


def hardtanh(call: Call, x: Place, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> str:
    return _activation(call, x, "hardtanh", float(min_val), float(max_val))


def clamp(call: Call, x: Place, min: Any = None, max: Any = None) -> str:
    for end in (min, max):
        if end is not None and not isinstance(end, int | float):
            raise call.fail("the limits of a clamp must be numbers")
    return hardtanh(call, x, -LARGEST if min is None else min, LARGEST if max is None else max)


def clamp_min(call: Call, x: Place, min: Any) -> str:
    return clamp(call, x, min)


def clamp_max(call: Call, x: Place, max: Any) -> str:
    return clamp(call, x, None, max)


def relu(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "relu")


def relu6(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "relu6")


def leaky_relu(call: Call, x: Place, negative_slope: float = 0.01, inplace: bool = False) -> str:
    return _activation(call, x, "leaky_relu", float(negative_slope))


def prelu(call: Call, x: Place, weight: Any) -> str:
    if not isinstance(weight, Tensor):
        raise call.fail("its slope depends on the input")
    return prelu_of(call, x, weight)


def prelu_of(call: Call, x: Place, weight: Tensor, value: Tensor | None = None, part: str = "") -> str:
    slope = np.broadcast_to(call.array(weight), (x.value.shape[1],)) * 1.0
    attributes = {"activation": ["prelu"]}
    return call.write("activation", {"x": x.buffer}, {"slope": slope}, attributes, value=value, part=part)


def sigmoid(call: Call, x: Place) -> str:
    return _activation(call, x, "sigmoid")


def hardswish(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "hardswish")


def hardsigmoid(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "hardsigmoid")


def tanh(call: Call, x: Place) -> str:
    return _activation(call, x, "tanh")


def elu(call: Call, x: Place, alpha: float = 1.0, inplace: bool = False) -> str:
    return _activation(call, x, "elu", float(alpha))


def selu(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "selu")


def gelu(call: Call, x: Place, approximate: str = "none") -> str:
    return _activation(call, x, "gelu_tanh" if approximate == "tanh" else "gelu")


def silu(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "silu")


def mish(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "mish")


def softplus(call: Call, x: Place, beta: float = 1.0, threshold: float = 20.0) -> str:
    return _activation(call, x, "softplus", float(beta), float(threshold))


def absolute(call: Call, x: Place) -> str:
    return _activation(call, x, "abs")


def exp(call: Call, x: Place) -> str:
    return _activation(call, x, "exp")


def _of_parts(call: Call, x: Place, *steps: tuple[str, list[Any]]) -> str:
    """A sequence of activations and affines for whose intermediate values torch has no tensor."""
    buffer, shape = x.buffer, call.shape_of(x.value)
    for index, (kind, numbers) in enumerate(steps):
        last = index == len(steps) - 1
        named: dict[str, Any] = {} if last else {"shape": shape, "part": f".{index}"}
        if kind == "affine":
            scale, shift = (np.full(shape[2], float(each)) for each in numbers)
            buffer = call.write("affine", {"x": buffer}, {"scale": scale, "shift": shift}, **named)
        else:
            buffer = call.write("activation", {"x": buffer}, attributes={"activation": [kind, *numbers]}, **named)
    return buffer


def celu(call: Call, x: Place, alpha: float = 1.0, inplace: bool = False) -> str:
    """``α elu(x/α)``."""
    return _of_parts(call, x, ("affine", [1 / alpha, 0]), ("elu", [1.0]), ("affine", [alpha, 0]))


def rrelu(
    call: Call, x: Place, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> str:
    if training:
        raise call.fail("it is random in evaluation mode: pass training=self.training")
    return leaky_relu(call, x, (lower + upper) / 2)


def logsigmoid(call: Call, x: Place) -> str:
    """``−softplus(−x)``."""
    return _of_parts(call, x, ("affine", [-1, 0]), ("softplus", [1.0, 20.0]), ("affine", [-1, 0]))


def threshold(call: Call, x: Place, threshold: float, value: float, inplace: bool = False) -> str:
    if threshold != value:
        raise call.fail("its value must equal its threshold: otherwise the output jumps at the threshold")
    return clamp_min(call, x, float(threshold))


def sign(call: Call, x: Place) -> str:
    """−1, 0 or 1: clamp to ±1 after a multiplication that takes every value but 0 beyond ±1."""
    return _of_parts(call, x, ("hardtanh", [-1.0, 1.0]), ("affine", [STEEP, 0]), ("hardtanh", [-1.0, 1.0]))


def power(call: Call, x: Place, exponent: Any, shape: Shape | None = None, part: str = "") -> str:
    if isinstance(exponent, Tensor) and exponent.numel() == 1:
        exponent = float(exponent)
    if not isinstance(x, Place) or not isinstance(exponent, int | float):
        raise call.fail("the exponent must be a constant")
    attributes = {"activation": ["power", float(exponent)]}
    return call.write("activation", {"x": x.buffer}, attributes=attributes, shape=shape, part=part)


def square(call: Call, x: Place) -> str:
    return power(call, x, 2.0)


def sqrt(call: Call, x: Place) -> str:
    return power(call, x, 0.5)


def rsqrt(call: Call, x: Place) -> str:
    return power(call, x, -0.5)


def reciprocal(call: Call, x: Place) -> str:
    return power(call, x, -1.0)
