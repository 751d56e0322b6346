"""Comparisons, whose results are 0 and 1, and selections: handlers like those of ``rbnn.exporting.handlers``."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rbnn.exporting.activations import STEEP
from rbnn.exporting.traced_call import Call, Handler, Place, without_infinities
from rbnn.packed.operations import Shape


def scaled_by(call: Call, buffer: str, scale: float, shift: float, shape: Shape, part: str) -> str:
    tensors = {"scale": np.full(shape[2], scale), "shift": np.full(shape[2], shift)}
    return call.write("affine", {"x": buffer}, tensors, shape=shape, part=part)


def _clamped(call: Call, buffer: str, low: float, high: float, shape: Shape, part: str) -> str:
    attributes = {"activation": ["hardtanh", low, high]}
    return call.write("activation", {"x": buffer}, attributes=attributes, shape=shape, part=part)


def positive(call: Call, buffer: str, shape: Shape, part: str) -> str:
    """1 if a value is above 0, otherwise 0."""
    small = _clamped(call, buffer, -1.0, 1.0, shape, f"{part}.small")
    return _clamped(call, scaled_by(call, small, STEEP, 0.0, shape, f"{part}.steep"), 0.0, 1.0, shape, part)


def _comparison(sign: float, of_equals: bool) -> Handler:
    """``a > b`` is ``sign (a − b) > 0``; ``a ≥ b`` is not ``b > a``."""

    def compare(call: Call, a: Any, b: Any) -> str:
        shape = call.shape_of(call.result)
        factor = -sign if of_equals else sign
        turned = scaled_by(call, _difference(call, a, b, shape), factor, 0.0, shape, ".turned")
        return _answer(call, positive(call, turned, shape, ".above"), of_equals)

    return compare


greater, less = _comparison(1.0, False), _comparison(-1.0, False)
greater_equal, less_equal = _comparison(1.0, True), _comparison(-1.0, True)


def equal(call: Call, a: Any, b: Any) -> str:
    return _answer(call, _apart(call, a, b), True)


def not_equal(call: Call, a: Any, b: Any) -> str:
    return _answer(call, _apart(call, a, b), False)


def _apart(call: Call, a: Any, b: Any) -> str:
    """1 if ``|a − b|`` is above 0, otherwise 0."""
    shape = call.shape_of(call.result)
    absolute = {"activation": ["abs"]}
    inputs = {"x": _difference(call, a, b, shape)}
    distance = call.write("activation", inputs, attributes=absolute, shape=shape, part=".distance")
    return positive(call, distance, shape, ".above")


def _answer(call: Call, buffer: str, inverted: bool) -> str:
    """The result of a comparison from its 0 and 1, or from 1 and 0."""
    channels = call.shape_of(call.result)[2]
    tensors = {"scale": np.full(channels, -1.0 if inverted else 1.0), "shift": np.full(channels, float(inverted))}
    return call.write("affine", {"x": buffer}, tensors, value=call.result.float())


def _difference(call: Call, a: Any, b: Any, shape: Shape) -> str:
    """a − b, for values and constants."""
    if isinstance(a, Place) and isinstance(b, Place):
        other = scaled_by(call, b.buffer, -1.0, 0.0, call.draft.buffers[b.buffer].shape, ".minus")
        return call.write("add", {"a": a.buffer, "b": other}, shape=shape, part=".difference")
    x, number = (a, b) if isinstance(a, Place) else (b, a)
    if isinstance(number, Tensor) and number.numel() != 1:
        raise call.fail("comparison with a constant tensor is not supported: subtract it and compare with 0")
    level = float(number)
    return scaled_by(call, x.buffer, *((1.0, -level) if x is a else (-1.0, level)), shape, ".difference")


def where(call: Call, condition: Any, a: Any, b: Any) -> str:
    """``condition · a + (1 − condition) · b``."""
    if isinstance(condition, Tensor):
        condition = Place(_numbers(call, condition.float(), ".condition"), condition)
    if not isinstance(condition, Place):
        raise call.fail("its condition is not a tensor")
    chosen = condition.buffer
    other = scaled_by(call, chosen, -1.0, 1.0, call.draft.buffers[chosen].shape, ".other")
    parts = []
    for value, mask, part in ((a, chosen, ".first"), (b, other, ".second")):
        buffer = value.buffer if isinstance(value, Place) else _numbers(call, torch.as_tensor(value).float(), part)
        shapes = (call.draft.buffers[each].shape for each in (mask, buffer))
        high, wide, deep = (max(sides) for sides in zip(*shapes, strict=True))
        parts.append(call.write("multiply", {"a": mask, "b": buffer}, shape=(high, wide, deep), part=f"{part}.kept"))
    return call.write("add", {"a": parts[0], "b": parts[1]})


def masked_fill(call: Call, x: Place, mask: Any, value: Any) -> str:
    return where(call, mask, value, x)


def _numbers(call: Call, tensor: Tensor, part: str) -> str:
    """Constants with as many dimensions as the result."""
    dims = call.result.dim()
    full = without_infinities(tensor.reshape(*[1] * (dims - tensor.dim()), *tensor.shape))
    if dims > 4 and set(full.shape[2:-1]) != {1}:  # only one dimension here, broadcast completely or not at all
        full = full.expand(-1, -1, *call.result.shape[2:-1], -1)
    if not bool((full == full[:1]).all()):
        raise call.fail("a constant with one value per image of the batch fits only one batch")
    height, width, channels = call.shape_of(full[:1])
    values = call.array(full[:1]).reshape(channels, height, width).transpose(1, 2, 0)
    return call.write("constant", {}, {"value": values}, shape=(height, width, channels), part=part)


def hardshrink(call: Call, x: Place, lambd: float = 0.5) -> str:
    """x if |x| is above λ, otherwise 0."""
    shape = call.shape_of(x.value)
    size = call.write("activation", {"x": x.buffer}, attributes={"activation": ["abs"]}, shape=shape, part=".abs")
    above = positive(call, scaled_by(call, size, 1.0, -float(lambd), shape, ".over"), shape, ".above")
    return call.write("multiply", {"a": x.buffer, "b": above})
