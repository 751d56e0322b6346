"""Free height and width: the network is traced at other sizes too, and every difference must follow from the size.

Only what torch does counts: a file takes a size if the network derived for that size equals the network that torch's
trace at that size gives.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import gcd

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from rbnn.errors import ExportError, PackError
from rbnn.packed.graph import Graph, default_shape
from rbnn.packed.operations import Operation
from rbnn.packed.site import Follows, Number
from rbnn.packed.sizes import ROLES, SHAPE, Free, strides
from rbnn.text import quoted

LARGEST_DIVISOR = 8
"""The largest divisor of a side that is divided and rounded down."""

WAY_OUT = "leave out free_size, or let the network end in convolutions or in global average pooling"

Factors = dict[str, list[float]]
Pack = Callable[[Tensor], Graph]
"""Returns the network for images of some size, compared with torch."""


def freed(graph: Graph, factors: Factors, images: Tensor, pack: Pack) -> Graph:
    """``graph``, which was traced with ``images``, with free sizes.  The steps are 1 if torch takes such sizes and
    everything follows from them; otherwise they are the smallest steps for which that is true.  ``factors`` are those
    of its draft."""
    if images.dim() == 2:
        raise ExportError("free_size is for images (N, C, H, W) and signals (N, C, L), but the example has vectors")
    coarsest = strides(graph.operations, graph.buffers, graph.input.buffer)
    refused: ExportError | None = None
    for steps in _steps(coarsest, signal=images.dim() == 3):
        try:
            return _in_steps(graph, factors, images, pack, steps)
        except ExportError as reason:
            refused = reason
    assert refused is not None, "the coarsest steps were tried"
    raise refused


def _steps(coarsest: tuple[int, int], *, signal: bool) -> Iterator[tuple[int, int]]:
    """Single pixels first, the strides of the network last."""
    most = max(coarsest)
    for part in (each for each in range(most, 0, -1) if most % each == 0):
        height, width = (side // gcd(side, part) for side in coarsest)
        yield 0 if signal else height, width


def _in_steps(graph: Graph, factors: Factors, images: Tensor, pack: Pack, steps: tuple[int, int]) -> Graph:
    """Derive from two more sizes what follows from the size.  The sizes differ enough from the first that no map of one
    has the sides of another."""
    coarsest = strides(graph.operations, graph.buffers, graph.input.buffer)
    others = []
    for wide, narrow in (((1, 3), (1, 2)), ((2, 1), (3, 1))):
        more = [w * side + n * step for w, side, n, step in zip(wide, coarsest, narrow, steps, strict=True)]
        pictures = _enlarged(images, [each if step else 0 for each, step in zip(more, steps, strict=True)])
        try:
            others.append(pack(pictures))
        except ExportError as reason:
            raise ExportError(f"free_size: for other sizes {reason}; {WAY_OUT}") from None
    signals = images.dim() == 3
    found = _following([graph, *others], factors, steps, signals=signals)
    for wanted in others:
        height, width, _ = wanted.buffers[wanted.input.buffer].shape
        try:
            derived = found.at(height, width)
        except PackError as reason:
            raise ExportError(f"free_size: {reason}; {WAY_OUT}") from None
        _check_same(derived, wanted, signals=signals)
    return found


def _enlarged(images: Tensor, more: Sequence[int]) -> Tensor:
    """Two of the images, some pixels higher and wider."""
    sides = [side + each for side, each in zip(images.shape[2:], more[-(images.dim() - 2) :], strict=True)]
    mode = "bilinear" if images.dim() == 4 else "linear"
    return F.interpolate(images[:2], size=sides, mode=mode, align_corners=False)


def _following(graphs: list[Graph], factors: Factors, steps: tuple[int, int], *, signals: bool) -> Graph:
    """The first graph, in which every number that differs in the others follows from the size."""
    first = graphs[0]
    for other in graphs[1:]:
        _check_alike(first, other)
    operations, written = [], [first.input.buffer]
    for index, operation in enumerate(first.operations):
        operations.append(_operation([graph.operations[index] for graph in graphs], graphs, written, factors))
        written += operation.outputs.values()
    shapes, own = {}, {}
    for name in sorted({name for graph in graphs for name in graph.shapes}):
        sides = [_shape_of_answer(graph, name, signals=signals) for graph in graphs]
        found = _numbers(sides, graphs, name, written)
        if found is None:
            raise ExportError(f"free_size: the shape of the output {name!r} cannot be derived from the size; {WAY_OUT}")
        shapes[name], own[name] = found, sides[0]
    return replace(first, operations=operations, shapes=own, free=Free(steps, shapes))


def _shape_of_answer(graph: Graph, name: str, *, signals: bool) -> tuple[int, ...]:
    signals = signals and isinstance(graph.output, str)
    return graph.shapes.get(name, default_shape(graph.buffers[name].shape, signals=signals))


def _operation(each: list[Operation], graphs: list[Graph], written: list[str], factors: Factors) -> Operation:
    """The first of corresponding operations in several graphs, and what follows from the size in it."""
    operation = each[0]
    made = next(iter(operation.outputs.values()))
    follows = {}
    for role in ROLES.get(operation.kind, ()):
        values = [graph.buffers[made].shape if role == SHAPE else same.attributes[role]
                  for same, graph in zip(each, graphs, strict=True)]  # fmt: skip
        if all(list(value) == list(values[0]) for value in values):
            continue
        found = _numbers(values, graphs, operation.inputs["x"], written, factors.get(made))
        if found is None:
            raise _fixed(operation, f"its {role} does not follow from the size of the picture")
        follows[role] = found
    return replace(operation, follows=follows)


def _numbers(
    values: Sequence[Sequence[int]],
    graphs: list[Graph],
    own: str,
    written: list[str],
    factor: list[float] | None = None,
) -> list[Number] | None:
    """How several numbers, with their values in each graph, follow from ``own`` or another buffer; None if they do
    not."""
    if len({len(each) for each in values}) != 1:
        return None
    found = []
    for place, numbers in enumerate(zip(*values, strict=True)):
        times = factor[place] if factor else None
        number = _number(numbers, graphs, own, written, times, "hwc"[place : place + 1])
        if number is None:
            return None
        found.append(number)
    return found


def _number(
    values: tuple[int, ...], graphs: list[Graph], own: str, written: list[str], factor: float | None, axis: str
) -> Number | None:
    """``axis`` is the side that such a number most likely follows from."""

    def fits(follows: Follows) -> bool:
        return all(
            follows.value(graph.buffers[follows.buffer].shape) == value
            for graph, value in zip(graphs, values, strict=True)
        )

    if len(set(values)) == 1:
        return values[0]
    if factor is not None:
        times = int(factor) if factor % 1 == 0 else factor
        return next((each for each in [Follows(own, axis, times)] if fits(each)), None)
    axes = sorted(("h", "w", "c", "hw"), key=lambda each: each != axis)
    equal = [Follows(buffer, each) for buffer in [own, *written] for each in axes]
    return next((each for each in [*equal, *_of_own(values[0], graphs[0], own, axes)] if fits(each)), None)


def _of_own(value: int, graph: Graph, own: str, axes: list[str]) -> Iterator[Follows]:
    """How ``value`` can follow from the sides of ``own``: as a multiple, a fraction, or with a constant added or
    subtracted."""
    for each in axes:
        side = Follows(own, each).value(graph.buffers[own].shape)
        ratio = Fraction(value, side)
        yield Follows(own, each, ratio.numerator, ratio.denominator)
        yield Follows(own, each, plus=value - side)
        yield from (Follows(own, each, over=over) for over in range(2, LARGEST_DIVISOR + 1))


def _check_alike(graph: Graph, other: Graph) -> None:
    """Check that both graphs have the same operations on the same buffers with the same weights."""
    for one, two in zip(graph.operations, other.operations, strict=False):
        if (one.kind, one.name, one.inputs, one.outputs) != (two.kind, two.name, two.inputs, two.outputs):
            raise _fixed(one, "the network goes another way for other sizes")
        if one.tensors.keys() != two.tensors.keys() or not all(
            np.array_equal(array, two.tensors[role]) for role, array in one.tensors.items()
        ):
            raise _fixed(one, "its numbers belong to one size of pictures")
        fixed = one.attributes.keys() - ROLES.get(one.kind, ())
        if one.attributes.keys() != two.attributes.keys() or any(
            one.attributes[role] != two.attributes[role] for role in fixed
        ):
            raise _fixed(one, "it works in another way for other sizes")
    if len(graph.operations) != len(other.operations):
        raise ExportError(f"free_size: the network has other operations for other image sizes; {WAY_OUT}")


def _check_same(derived: Graph, wanted: Graph, *, signals: bool) -> None:
    """Check that the graph derived for a size equals torch's trace at that size."""
    for one, two in zip(derived.operations, wanted.operations, strict=True):
        names = one.outputs.values()
        if any(list(one.attributes[role]) != list(two.attributes[role]) for role in one.follows if role != SHAPE) or (
            any(derived.buffers[name] != wanted.buffers[name] for name in names)
        ):
            raise _fixed(one, "what it gives does not follow from the size of the picture")
    shapes = ([_shape_of_answer(each, name, signals=signals) for name in each.outputs] for each in (derived, wanted))
    if next(shapes) != next(shapes):
        raise ExportError(f"free_size: the shapes of the outputs do not follow from the image size; {WAY_OUT}")


def _fixed(operation: Operation, why: str) -> ExportError:
    return ExportError(f"free_size: {operation.kind} {quoted(operation.name)}: {why}; {WAY_OUT}")
