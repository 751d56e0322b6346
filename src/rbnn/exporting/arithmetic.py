"""Sums, products and quotients: handlers like those of ``rbnn.exporting.handlers``."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rbnn.exporting.draft import Array
from rbnn.exporting.handlers import affine, linear
from rbnn.exporting.shapes import cut, joined, made_whole, placed_constant, reshaped
from rbnn.exporting.traced_call import Call, Place, without_infinities


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
    """``value`` is the product if it is not the result of the call."""
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
    """A constant divided by x."""
    value = x.value.reciprocal()
    inverse = call.write(
        "activation", {"x": x.buffer}, attributes={"activation": ["power", -1.0]}, value=value, part=".inverse"
    )
    return mul(call, Place(inverse, value), other)


def rsub(call: Call, x: Place, other: Any, *, alpha: float = 1) -> str:
    """A constant, or another value, minus x."""
    return sub(call, other, x, alpha=alpha)


def addcmul(call: Call, x: Any, a: Any, b: Any, *, value: float = 1) -> str:
    """``x + value · a · b``."""
    if not isinstance(a, Place) and not isinstance(b, Place):
        return add(call, x, a * b * value)
    first, second = (each.value if isinstance(each, Place) else each for each in (a, b))
    product = first * second
    made = mul(replace(call, result=product, name=f"{call.name}.product"), a, b)
    return add(call, x, Place(made, product), alpha=value)


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
    """A product of two matrices that depend on the input, or of one and a constant."""
    if isinstance(a, Place) and isinstance(b, Tensor) and b.dim() < 3:
        if b.dim() == 2:
            return linear(call, a, b.t())
        column = call.result.unsqueeze(-1)
        made = linear(replace(call, result=column, name=f"{call.name}.column"), a, b[None])
        return reshaped(call, Place(made, column), call.result)
    a, b = (_matrix(call, each, call.result.dim()) for each in (a, b))
    dims = call.result.dim()
    if dims < 3 or not a.value.dim() == b.value.dim() == dims:
        raise call.fail(
            "matrices must be (N, rows, columns) or (N, heads, rows, columns), with as many dimensions on both sides"
        )
    a, b = (_with_leading(call, each, call.result, f".{side}") for each, side in ((a, "left"), (b, "right")))
    if dims == 4:
        return call.write("matmul", {"a": a.buffer, "b": b.buffer})

    def of_heads(value: Tensor) -> Tensor:
        return value.reshape(len(value), -1, *value.shape[-2:])

    left, right = (reshaped(call, each, of_heads(each.value), f".{side}") for each, side in ((a, "left"), (b, "right")))
    product = of_heads(call.result)
    made = call.write("matmul", {"a": left, "b": right}, value=product, part=".product")
    return reshaped(call, Place(made, product), call.result)


def _matrix(call: Call, matrix: Any, dims: int) -> Place:
    """One side of a product; a constant is the same for each image."""
    if isinstance(matrix, Place):
        return matrix
    full = matrix.reshape(*[1] * (dims - matrix.dim()), *matrix.shape)
    return placed_constant(call, full.expand(len(call.result), *full.shape[1:]), ".constant")


def _with_leading(call: Call, x: Place, product: Tensor, part: str) -> Place:
    """x with the heads, and all dimensions before rows and columns, of the product."""
    for dim in range(1, product.dim() - 2):
        if x.value.shape[dim] < product.shape[dim]:
            x = _repeated(call, x, dim, product.shape[dim], f"{part}.heads")
    return x


def softsign(call: Call, x: Place) -> str:
    """``x/(1 + |x|)``."""
    shape = call.shape_of(x.value)
    size = call.write("activation", {"x": x.buffer}, attributes={"activation": ["abs"]}, shape=shape, part=".abs")
    ones = np.ones(shape[2])
    more = call.write("affine", {"x": size}, {"scale": ones, "shift": ones}, shape=shape, part=".more")
    return call.write("divide", {"a": x.buffer, "b": more})


def tanhshrink(call: Call, x: Place) -> str:
    """``x − tanh x``."""
    value = x.value.tanh()
    bent = call.write("activation", {"x": x.buffer}, attributes={"activation": ["tanh"]}, value=value, part=".tanh")
    return sub(call, x, Place(bent, value))


def softshrink(call: Call, x: Place, lambd: float = 0.5) -> str:
    """``x`` minus ``x`` clamped to ±λ."""
    value = x.value.clamp(-lambd, lambd)
    ends = {"activation": ["hardtanh", -float(lambd), float(lambd)]}
    inner = call.write("activation", {"x": x.buffer}, attributes=ends, value=value, part=".inner")
    return sub(call, x, Place(inner, value))


def glu(call: Call, x: Place, dim: int = -1) -> str:
    """The first half, multiplied by the sigmoid of the second."""
    dim %= x.value.dim()
    half = x.value.shape[dim] // 2
    first, second = (
        cut(call, x, {dim: span}, part) for span, part in ((range(half), ".first"), (range(half, 2 * half), ".second"))
    )
    attributes = {"activation": ["sigmoid"]}
    gate = call.write(
        "activation", {"x": second.buffer}, attributes=attributes, value=second.value.sigmoid(), part=".gate"
    )
    return _two(call, "multiply", first, Place(gate, second.value))


def _two(call: Call, kind: str, a: Place, b: Place) -> str:
    if a.value.dim() != b.value.dim():
        raise call.fail(f"shapes {tuple(a.value.shape)} and {tuple(b.value.shape)} do not match")
    have = [call.draft.buffers[each.buffer].shape for each in (a, b)]
    if all(x == y or 1 in (x, y) for x, y in zip(*have, strict=True)):
        return call.write(kind, {"a": a.buffer, "b": b.buffer})
    return _of_many_dimensions(call, kind, [made_whole(call, each) for each in (a, b)])


def _of_many_dimensions(call: Call, kind: str, places: list[Place]) -> str:
    """For five and more dimensions.  The dimensions between the second and the last become two, such that each is
    broadcast completely or not at all.  If that is impossible, dimensions of size 1 are expanded first."""
    shapes = [tuple(each.value.shape) for each in places]
    at = _where_to_part([shape[2:] for shape in shapes])
    while at is None:
        smaller = min(range(2), key=lambda index: places[index].value.numel())
        short = [dim for dim in range(1, len(shapes[0])) if shapes[smaller][dim] < shapes[1 - smaller][dim]]
        if not short:
            smaller = 1 - smaller
            short = [dim for dim in range(1, len(shapes[0])) if shapes[smaller][dim] < shapes[1 - smaller][dim]]
        places[smaller] = _repeated(call, places[smaller], short[0], shapes[1 - smaller][short[0]], f".repeat{smaller}")
        shapes = [tuple(each.value.shape) for each in places]
        at = _where_to_part([shape[2:] for shape in shapes])
    sides = [(prod(shape[2 : 2 + at]), prod(shape[2 + at :]), shape[1]) for shape in shapes]
    order = {"order": "hwc"}
    views = [
        call.write("reshape", {"x": each.buffer}, attributes=order, shape=shape, part=f".view{index}")
        for index, (each, shape) in enumerate(zip(places, sides, strict=True))
    ]
    high, wide, deep = (max(both) for both in zip(*sides, strict=True))
    made = call.write(kind, {"a": views[0], "b": views[1]}, shape=(high, wide, deep), part=".both")
    return call.write("reshape", {"x": made}, attributes=order)


def _where_to_part(middles: list[tuple[int, ...]]) -> int | None:
    """After how many of these dimensions the first of the two ends."""
    for at in range(len(middles[0]) + 1):
        parts = [middle[:at] for middle in middles], [middle[at:] for middle in middles]
        if all(part[0] == part[1] or 1 in map(prod, part) for part in parts):
            return at
    return None


def _repeated(call: Call, x: Place, dim: int, count: int, part: str) -> Place:
    sides = [count if each == dim else 1 for each in range(x.value.dim())]
    value = x.value.repeat(*sides)
    return Place(joined(call, [x] * count, dim, value, f"{part}.{dim}"), value)


def _with_constant(call: Call, x: Place, term: Any, scale: float = 1.0) -> str:
    if isinstance(term, Tensor):
        term = without_infinities(term)
    values = _per_channel(call, x, term)
    if values is not None:
        return affine(call, x, scale, values)
    if scale != 1:
        x = Place(affine(call, x, scale, 0.0, ".times", x.value * scale), x.value * scale)
    return call.write("add", {"a": x.buffer, "b": _constant_picture(call, x, term)})


def _full(call: Call, x: Place, term: Any) -> Tensor:
    """A constant with as many dimensions as x, and 1 for the batch."""
    tensor = torch.as_tensor(term)
    same = tuple(call.result.shape) == tuple(x.value.shape)
    if not same and (x.value.dim() > 4 or call.result.dim() != x.value.dim()):
        raise call.fail(f"a constant of the shape {tuple(tensor.shape)} would enlarge {tuple(x.value.shape)}")
    tensor = tensor.reshape(*[1] * (x.value.dim() - tensor.dim()), *tensor.shape)
    if not bool((tensor == tensor[:1]).all()):
        raise call.fail("a constant with one value per image of the batch fits only one batch")
    return tensor[:1]


def _per_channel(call: Call, x: Place, term: Any) -> Array | None:
    """One number per channel, if a constant has that form, even if it was expanded to the size of x."""
    tensor = _full(call, x, term)
    if tuple(call.result.shape) != tuple(x.value.shape):
        return None
    corner: Any = (..., *[slice(1)] * (tensor.dim() - 2))
    first = tensor[corner]
    if not bool((tensor == first).all()):
        return None
    tensor = first
    return np.broadcast_to(call.array(tensor).reshape(-1), (x.value.shape[1],))


def _constant_picture(call: Call, x: Place, term: Any, part: str = "") -> str:
    tensor = _full(call, x, term)
    middle = tensor.shape[2:-1]
    if x.value.dim() > 4 and set(middle) != {1}:  # only one dimension here, broadcast completely or not at all
        tensor = tensor.expand(-1, -1, *x.value.shape[2:-1], -1)
    height, width, channels = call.shape_of(tensor)
    values = call.array(tensor).reshape(channels, height, width).transpose(1, 2, 0)
    return call.write("constant", {}, {"value": values}, shape=(height, width, channels), part=f"{part}.constant")
