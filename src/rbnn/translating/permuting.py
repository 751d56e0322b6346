"""Permutations of values, which the format defines in its own memory order, for images that are N×C×H×W."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import TypeVar

from rbnn.packed.operations import Shape
from rbnn.translating.builder import Builder

V = TypeVar("V")


def permuted(builder: Builder[V], x: V, before: Shape, sides: Sequence[int], order: Sequence[int], after: Shape) -> V:
    """The values of ``before`` in memory order (height, width, channels), taken as an array with dimensions ``sides``
    whose axes are permuted by ``order``, as ``after`` in memory order."""
    height, width, channels = after
    found = at_once(before, sides, order, after)
    if found is not None:
        shape, axes = found
        apart = builder.reshape(x, shape)
        return builder.reshape(builder.transpose(apart, (0, *(1 + axis for axis in axes))), (channels, height, width))
    apart = builder.reshape(builder.transpose(x, (0, 2, 3, 1)), tuple(sides))
    moved = builder.transpose(apart, (0, *(1 + axis for axis in order)))
    return builder.transpose(builder.reshape(moved, (height, width, channels)), (0, 3, 1, 2))


def at_once(
    before: Shape, sides: Sequence[int], order: Sequence[int], after: Shape
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """How (channels, height, width) are split, and the order in which the parts are joined again as (channels, height,
    width); None if a side would have to be split in two incompatible ways."""
    first = common_parts(before, sides)
    if first is None:
        return None
    sizes, of_before, of_sides = first
    moved = [part for axis in order for part in of_sides[axis]]
    second = common_parts([sizes[part] for part in moved], after)
    if second is None:
        return None
    finer, of_moved, of_after = second
    pieces = dict(zip(moved, of_moved, strict=True))
    high, wide, deep = ([piece for part in parts for piece in pieces[part]] for parts in of_before)
    there = [*deep, *high, *wide]
    high, wide, deep = of_after
    return tuple(finer[piece] for piece in there), tuple(there.index(piece) for piece in (*deep, *high, *wide))


def common_parts(
    first: Sequence[int], second: Sequence[int]
) -> tuple[list[int], list[list[int]], list[list[int]]] | None:
    """Dimensions that both arrays, with the same number of values, can be split into, and those that make up each
    side."""
    ends = sorted({*accumulate(first, mul), *accumulate(second, mul)} - {1})
    starts = [1, *ends][: len(ends)]
    if any(end % start for start, end in zip(starts, ends, strict=True)):
        return None

    def parts(sides: Sequence[int]) -> list[list[int]]:
        reached = list(accumulate(sides, mul))
        return [
            [number for number, each in enumerate(ends) if start < each <= end]
            for start, end in zip([1, *reached][: len(reached)], reached, strict=True)
        ]

    return [end // start for start, end in zip(starts, ends, strict=True)], parts(first), parts(second)
