"""Sums, products and quotients: handlers like those of ``rbnn.exporting.handlers``."""

from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rbnn.exporting.draft import Array
from rbnn.exporting.handlers import affine, linear
from rbnn.exporting.shapes import made_whole, reshaped
from rbnn.exporting.traced_call import Call, Place


def add(call: Call, a: Any, b: Any, *, alpha: float = 1) -> str:
    if isinstance(a, Place) and isinstance(b, Place):
        if alpha != 1:
            b = Place(affine(call, b, alpha, 0.0, ".times", b.value * alpha), b.value * alpha)
        return _two(call, "add", a, b)
    if isinstance(b, Place):
        return add(call, b, a) if alpha == 1 else _with_constant(call, b, a, scale=float(alpha))
    return _with_constant(call, a, b if alpha == 1 else b * alpha)


def sub(call: Call, a: Any, b: Any, *, alpha: float = 1) -> str:
    return add(call, a, b, alpha=-alpha)


def neg(call: Call, x: Place) -> str:
    return affine(call, x, -1.0, 0.0)


def mul(call: Call, a: Any, b: Any, *, value: Tensor | None = None, part: str = "") -> str:
    """``value``: the product, where it is not the result of the call."""
    if isinstance(a, Place) and isinstance(b, Place):
        return _two(call, "multiply", a, b)
    x, factor = (a, b) if isinstance(a, Place) else (b, a)
    values = _per_channel(call, x, factor)
    if values is not None:
        return affine(call, x, values, 0.0, part, value)
    factors = _constant_picture(call, x, factor, part)
    return call.write("multiply", {"a": x.buffer, "b": factors}, value=value, part=part)


def div(call: Call, a: Any, b: Any, *, rounding_mode: str | None = None) -> str:
    if rounding_mode is not None:
        raise call.fail("rounding_mode is not supported: leave it out")
    if isinstance(a, Place) and isinstance(b, Place):
        return _two(call, "divide", a, b)
    if isinstance(b, Place):
        return rdiv(call, b, a)
    return mul(call, a, 1 / (b.double() if isinstance(b, Tensor) else b))


def rdiv(call: Call, x: Place, other: Any) -> str:
    """A constant by x."""
    value = x.value.reciprocal()
    inverse = call.write(
        "activation", {"x": x.buffer}, attributes={"activation": ["power", -1.0]}, value=value, part=".inverse"
    )
    return mul(call, Place(inverse, value), other)


def rsub(call: Call, x: Place, other: Any, *, alpha: float = 1) -> str:
    """A constant, or another value, minus x."""
    return sub(call, other, x, alpha=alpha)


def maximum(call: Call, a: Any, b: Any) -> str:
    return _bound(call, "maximum", a, b)


def minimum(call: Call, a: Any, b: Any) -> str:
    return _bound(call, "minimum", a, b)


def _bound(call: Call, kind: str, a: Any, b: Any) -> str:
    if isinstance(a, Place) and isinstance(b, Place):
        return _two(call, kind, a, b)
    x, other = (a, b) if isinstance(a, Place) else (b, a)
    return call.write(kind, {"a": x.buffer, "b": _constant_picture(call, x, other)})


def matmul(call: Call, a: Any, b: Any) -> str:
    """Matrices that follow from the picture, or one of the model on the right."""
    if isinstance(a, Place) and isinstance(b, Tensor) and b.dim() == 2:
        return linear(call, a, b.t())
    if not isinstance(a, Place) or not isinstance(b, Place) or a.value.dim() != b.value.dim():
        raise call.fail(
            "both matrices must depend on the input, or the right one must be a constant with two dimensions"
        )
    if a.value.dim() == 4:
        return call.write("matmul", {"a": a.buffer, "b": b.buffer})
    if a.value.dim() != 3:
        raise call.fail("matrices must be (N, rows, columns) or (N, heads, rows, columns)")
    left, right = (reshaped(call, each, each.value[:, None], f".{side}") for each, side in ((a, "left"), (b, "right")))
    product = call.result[:, None]
    made = call.write("matmul", {"a": left, "b": right}, value=product, part=".product")
    return reshaped(call, Place(made, product), call.result)


def _two(call: Call, kind: str, a: Place, b: Place) -> str:
    if a.value.dim() != b.value.dim():
        raise call.fail(f"shapes {tuple(a.value.shape)} and {tuple(b.value.shape)} do not match")
    have = [call.draft.buffers[each.buffer].shape for each in (a, b)]
    if all(x == y or 1 in (x, y) for x, y in zip(*have, strict=True)):
        return call.write(kind, {"a": a.buffer, "b": b.buffer})
    return _of_many_dimensions(call, kind, [made_whole(call, each) for each in (a, b)])


def _of_many_dimensions(call: Call, kind: str, places: list[Place]) -> str:
    """Of five dimensions and more: those between the second and the last become two sides, such that each is repeated
    as a whole or not at all."""
    shapes = [tuple(each.value.shape) for each in places]
    middles, ends = [shape[2:] for shape in shapes], [shape[1] for shape in shapes]
    for at in range(len(middles[0]) + 1):
        sides = [(prod(middle[:at]), prod(middle[at:]), end) for middle, end in zip(middles, ends, strict=True)]
        whole = all(
            part[0] == part[1] or 1 in map(prod, part)
            for part in ([middle[:at] for middle in middles], [middle[at:] for middle in middles])
        )
        if whole:
            order = {"order": "hwc"}
            views = [
                call.write("reshape", {"x": each.buffer}, attributes=order, shape=shape, part=f".view{index}")
                for index, (each, shape) in enumerate(zip(places, sides, strict=True))
            ]
            shape = tuple(max(both) for both in zip(*sides, strict=True))
            made = call.write(kind, {"a": views[0], "b": views[1]}, shape=shape, part=".both")
            return call.write("reshape", {"x": made}, attributes=order)
    raise call.fail(f"shapes {shapes[0]} and {shapes[1]} cannot be combined")


def _with_constant(call: Call, x: Place, term: Any, scale: float = 1.0) -> str:
    values = _per_channel(call, x, term)
    if values is not None:
        return affine(call, x, scale, values)
    if scale != 1:
        x = Place(affine(call, x, scale, 0.0, ".times", x.value * scale), x.value * scale)
    return call.write("add", {"a": x.buffer, "b": _constant_picture(call, x, term)})


def _full(call: Call, x: Place, term: Any) -> Tensor:
    """A constant in as many dimensions as x has, the batch's 1."""
    tensor = torch.as_tensor(term)
    if tuple(call.result.shape) != tuple(x.value.shape):
        raise call.fail(f"a constant of the shape {tuple(tensor.shape)} would enlarge {tuple(x.value.shape)}")
    tensor = tensor.reshape(*[1] * (x.value.dim() - tensor.dim()), *tensor.shape)
    if not bool((tensor == tensor[:1]).all()):
        raise call.fail("a constant with a value for each picture of the batch fits only one batch")
    return tensor[:1]


def _per_channel(call: Call, x: Place, term: Any) -> Array | None:
    """One number per channel, if a constant is that, also one that was expanded to the size of x."""
    tensor = _full(call, x, term)
    corner: Any = (..., *[slice(1)] * (tensor.dim() - 2))
    first = tensor[corner]
    if not bool((tensor == first).all()):
        return None
    tensor = first
    return np.broadcast_to(call.array(tensor).reshape(-1), (x.value.shape[1],))


def _constant_picture(call: Call, x: Place, term: Any, part: str = "") -> str:
    tensor = _full(call, x, term)
    height, width, channels = call.shape_of(tensor)
    values = call.array(tensor).reshape(channels, height, width).transpose(1, 2, 0)
    return call.write("constant", {}, {"value": values}, shape=(height, width, channels), part=f"{part}.constant")
