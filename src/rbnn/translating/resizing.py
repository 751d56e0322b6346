"""Resizing: by the engine's own operator if it finds the same pixels, otherwise pixel by pixel."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from rbnn.packed.formulas import positions, taps
from rbnn.translating.builder import Builder

V = TypeVar("V")

FARTHEST = 1e-5
"""The allowed error of a position, in pixels: other engines compute it in float32."""


def resized(builder: Builder[V], x: V, sides: tuple[int, int], attributes: dict[str, Any]) -> V:
    """``sides`` are the height and width of x."""
    mode, align = attributes["mode"], attributes.get("align", False)
    size, scale = tuple(attributes["size"]), attributes.get("scale")
    given = list(zip(sides, size, scale or (None, None), strict=True))
    if all(is_known(side, count, mode, align, factor) for side, count, factor in given):
        plain = mode.removesuffix("_exact")
        return builder.resize(x, size, plain, align, None if scale is None or plain == "nearest" else tuple(scale))
    for axis, (side, count, factor) in zip((2, 3), given, strict=True):
        x = _mixed(builder, x, taps(side, count, mode, align, factor), axis)
    return x


def is_known(side: int, count: int, mode: str, align: bool, scale: float | None) -> bool:
    """Whether the usual formula in float32 finds the right pixels along a side, with nearly the right weights."""
    if mode in ("nearest", "nearest_exact"):
        ((places, _),) = taps(side, count, mode, align, scale)
        return count % side == 0 and bool((places == np.arange(count) // (count // side)).all())
    factor = np.float32(count) / np.float32(side) if scale is None else np.float32(scale)
    if scale is not None and int(np.float32(side) * factor) != count:
        return False
    pixels = np.arange(count, dtype=np.float32)
    at = (pixels + np.float32(0.5)) / factor - np.float32(0.5)
    if align:
        at = pixels * np.float32(side - 1) / np.float32(max(count - 1, 1))
    return bool((np.abs(at - positions(side, count, align, scale)) <= FARTHEST).all())


def _mixed(builder: Builder[V], x: V, mixture: Sequence[tuple[Any, Any]], axis: int) -> V:
    """Rows or columns that are weighted sums of others."""
    total: V | None = None
    for places, weights in mixture:
        part = builder.gather(x, places, axis)
        if (weights != 1).any():
            column = weights.astype(np.float32).reshape((1, 1, -1, 1) if axis == 2 else (1, 1, 1, -1))
            part = builder.pairwise("multiply", builder.constant(column), part)
        total = part if total is None else builder.pairwise("add", total, part)
    assert total is not None
    return total
