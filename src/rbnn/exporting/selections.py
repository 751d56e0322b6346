"""Selections by index, and assignments to parts: handlers like those of ``rbnn.exporting.handlers``."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rbnn.exporting.shapes import (
    AXES,
    as_list,
    axis_of,
    cut,
    flat,
    in_the_middle,
    joined,
    made_whole,
    placed_constant,
    reshaped,
    spans_of,
)
from rbnn.exporting.shapes import getitem as part_of
from rbnn.exporting.traced_call import Call, Place

MOST_RUNS = 8
"""Up to this number of parts are cut out and joined, because these can follow from a free image size, and copying long
parts is faster.  For more parts ``select`` lists every place."""


def taken(call: Call, x: Place, dim: int, places: Sequence[int], part: str = "") -> Place:
    """The values at ``places`` of dimension ``dim``, in that order."""
    dim %= x.value.dim()
    if dim == 0:
        raise call.fail("images of a batch must stay together: the first dimension is the batch")
    if not len(places):
        raise call.fail("it selects nothing")
    value = x.value.index_select(dim, torch.tensor(places))
    runs = _runs(places)
    if len(runs) > MOST_RUNS:
        return _selected(call, x, dim, places, value, part)
    pieces = [cut(call, x, {dim: run}, f"{part}.run{index}") for index, run in enumerate(runs)]
    return pieces[0] if len(pieces) == 1 else Place(joined(call, pieces, dim, value, part), value)


def _runs(places: Sequence[int]) -> list[range]:
    """``places`` as ranges without gaps."""
    runs: list[range] = []
    for place in places:
        if runs and runs[-1].stop == place:
            runs[-1] = range(runs[-1].start, place + 1)
        else:
            runs.append(range(place, place + 1))
    return runs


def _selected(call: Call, x: Place, dim: int, places: Sequence[int], value: Tensor, part: str) -> Place:
    axis = axis_of(call, x.value, dim)
    if axis is not None:
        attributes = {"places": list(places)} | ({} if axis == 2 else {"axis": AXES[axis]})
        return Place(call.write("select", {"x": x.buffer}, attributes=attributes, value=value, part=part), value)
    buffer, (before, _, behind) = in_the_middle(call, x, dim, f"{part}.view")
    attributes, shape = {"places": list(places), "axis": "w"}, (before, len(places), behind)
    chosen = call.write("select", {"x": buffer}, attributes=attributes, shape=shape, part=f"{part}.chosen")
    return Place(call.write("reshape", {"x": chosen}, attributes={"order": "hwc"}, value=value, part=part), value)


def index_select(call: Call, x: Place, dim: int, index: Any) -> str:
    return taken(call, x, dim, _constant_places(call, index)).buffer


def _constant_places(call: Call, index: Any) -> list[int]:
    if not isinstance(index, Tensor):
        raise call.fail("its index depends on the input")
    return [int(each) for each in index.reshape(-1)]


def roll(call: Call, x: Place, shifts: Any, dims: Any = None) -> str:
    if dims is None:
        raise call.fail("images of a batch must stay separate: name the dimensions")
    several = isinstance(dims, tuple | list)
    for dim, shift in zip(dims if several else [dims], shifts if several else [shifts], strict=True):
        side = x.value.shape[dim]
        x = taken(call, x, dim, [(place - int(shift)) % side for place in range(side)], f".{dim % x.value.dim()}")
    return x.buffer


def flip(call: Call, x: Place, *numbers: int, dims: Any = ()) -> str:
    for dim in flat(*numbers, dims):
        x = taken(call, x, dim, range(x.value.shape[dim])[::-1], f".{dim % x.value.dim()}")
    return x.buffer


def repeat_interleave(call: Call, x: Place, repeats: Any, dim: int | None = None, **_: Any) -> str:
    if dim is None or not isinstance(repeats, int):
        raise call.fail("images of a batch must stay separate: give a number and name the dimension")
    if repeats == 1:
        return x.buffer
    return taken(call, x, dim, [place for place in range(x.value.shape[dim]) for _ in range(repeats)]).buffer


def getitem(call: Call, x: Place, index: Any) -> str:
    """Slices and numbers, or ``x[:, [3, 1]]``: slices, with at most one list of numbers."""
    given = as_list(index, x.value.dim())
    if not any(isinstance(each, list | Tensor) for each in given):
        return part_of(call, x, index)
    return _listed(call, x, given)


def _listed(call: Call, x: Place, index: list[Any]) -> str:
    lists = [dim for dim, each in enumerate(index) if isinstance(each, list | Tensor)]
    rest = [each for dim, each in enumerate(index) if dim not in lists]
    if len(lists) != 1 or any(not isinstance(each, slice) or each != slice(None) for each in rest):
        raise call.fail("only slices and integers such as x[:, 2:8, ::2, 0], or one list of integers, are supported")
    dim, places = lists[0], index[lists[0]]
    numbers = torch.as_tensor(places)
    if numbers.dtype == torch.bool:
        if numbers.dim() != 1:
            raise call.fail("selection by a mask of several dimensions is not supported: flatten first")
        numbers = numbers.nonzero()[:, 0]
    found = taken(call, x, dim, [int(each) % x.value.shape[dim] for each in numbers.reshape(-1)], ".taken")
    return reshaped(call, found, call.result)


def setitem(call: Call, x: Any, index: Any, value: Any) -> str:
    """``x[:, 2:8] = value``: what is before, the value, and what is after, joined along each dimension."""
    base = x if isinstance(x, Place) else placed_constant(call, x, ".base")
    spans, ones = spans_of(call, base, index)
    if any(span.step != 1 for span in spans.values()):
        raise call.fail("assignment to a slice with a step is not supported: use torch.stack and reshape")
    if not all(spans.values()):  # nothing is assigned to
        return base.buffer
    sides = [len(spans.get(dim, range(side))) for dim, side in enumerate(base.value.shape)]
    piece = _as_part(call, value, sides, ones)
    dims = sorted(spans)
    for at in reversed(range(len(dims))):
        dim, span = dims[at], spans[dims[at]]
        around = {other: spans[other] for other in dims[:at]}
        pieces = [
            *([cut(call, base, around | {dim: range(span.start)}, f".before{dim}")] if span.start else []),
            piece,
            *(
                [cut(call, base, around | {dim: range(span.stop, base.value.shape[dim])}, f".behind{dim}")]
                if span.stop < base.value.shape[dim]
                else []
            ),
        ]
        whole = torch.cat([each.value for each in pieces], dim)
        piece = Place(joined(call, pieces, dim, whole, f".part{dim}" if at else ""), whole)
    return piece.buffer


def _as_part(call: Call, value: Any, sides: list[int], ones: set[int]) -> Place:
    """The assigned value in the shape of the part that it replaces; dimensions in ``ones`` were indexed by a number."""
    shape = [side for dim, side in enumerate(sides) if dim not in ones]
    if not isinstance(value, Place):
        tensor = torch.as_tensor(value).float()
        return placed_constant(call, tensor.expand(shape).reshape(sides), ".value")
    if value.value.dim() != len(shape):
        raise call.fail(f"a value of the shape {tuple(value.value.shape)} is written into {tuple(shape)}: reshape it")
    full = made_whole(call, Place(value.buffer, value.value.expand(shape)))
    result = full.value.reshape(sides)
    return Place(reshaped(call, full, result, ".value"), result)
