"""Operations that only move values: handlers like those of ``rbnn.exporting.handlers``."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rbnn.exporting.draft import pictures
from rbnn.exporting.moves import as_permutation
from rbnn.exporting.traced_call import Call, Place
from rbnn.packed.operations import Shape

AXES = ("h", "w", "c")


def axis_of(call: Call, x: Tensor, dim: int) -> int | None:
    """Which of height, width and channels a dimension of torch is; None if it is a part of the height."""
    dims = x.dim()
    place = dim % dims
    if place == 0:
        raise call.fail("images of a batch must stay separate: the first dimension is the batch")
    if place == 1:
        return 2
    if place == dims - 1:
        return 1
    return 0 if dims == 4 else None


def reshape(call: Call, x: Place, *_: Any, **__: Any) -> str:
    """flatten, view, reshape, squeeze, unsqueeze: everything that keeps torch's order of values."""
    return reshaped(call, x, call.result)


def reshaped(call: Call, x: Place, value: Tensor, part: str = "") -> str:
    """The values of x in torch's order, in the shape of ``value``."""
    before, after = call.shape_of(x.value), call.shape_of(value)
    if before == after:
        return x.buffer
    plain = 1 in (before[2], before[0] * before[1]) and 1 in (after[2], after[0] * after[1])
    order = {"order": "hwc" if plain else "chw"}
    return call.write("reshape", {"x": x.buffer}, attributes=order, value=value, part=part)


def move(call: Call, x: Place, *_: Any, **__: Any) -> str:
    """transpose, permute, pixel and channel shuffle: moving the indices of the values shows where each value goes."""
    numbers = torch.arange(x.value.numel(), dtype=torch.float64).reshape(x.value.shape)
    return _moved(call, x, call.again(numbers), call.result)


def permuted(call: Call, x: Place, order: Sequence[int], part: str) -> Place:
    """x with its dimensions in another order."""
    numbers = torch.arange(x.value.numel(), dtype=torch.float64).reshape(x.value.shape)
    value = x.value.permute(*order)
    return Place(_moved(call, x, numbers.permute(*order), value, part), value)


def _moved(call: Call, x: Place, moved: Tensor, value: Tensor, part: str = "") -> str:
    each = x.value[0].numel()
    if not torch.equal(moved, moved[:1] + (torch.arange(len(moved)) * each).view(-1, *[1] * (moved.dim() - 1))):
        raise call.fail("images of a batch must stay separate: keep the first dimension")
    return moved_by(call, x, moved[0], value, part)


def moved_by(call: Call, x: Place, sources: Tensor, value: Tensor, part: str) -> str:
    """All values of x in another order.  ``sources`` has, for each place, the index of its value in an image of x."""
    if torch.equal(sources.reshape(-1), torch.arange(sources.numel())):
        return reshaped(call, x, value, part)
    numbers = torch.arange(x.value[0].numel(), dtype=torch.float64).reshape(x.value[:1].shape)
    before, after = (pictures(each).reshape(-1).astype(np.int64) for each in (numbers, sources[None]))
    place = np.empty_like(before)
    place[before] = np.arange(len(before))
    found = as_permutation(place[after])
    if found is None:
        raise call.fail("it is not a permutation of the dimensions")
    sides, order = found
    if order == sorted(order):
        if call.shape_of(x.value) == call.shape_of(value):
            return x.buffer
        return call.write("reshape", {"x": x.buffer}, attributes={"order": "hwc"}, value=value, part=part)
    attributes = {"sides": sides, "order": order}
    return call.write("permute", {"x": x.buffer}, attributes=attributes, value=value, part=part)


# Dimensions of size 1


def expand(call: Call, x: Place, *_: Any, **__: Any) -> str:
    """Readers broadcast a dimension of size 1 if they can; for the others ``made_whole`` expands it."""
    if x.value.dim() != call.result.dim():
        raise call.fail(
            f"{tuple(x.value.shape)} becomes {tuple(call.result.shape)}: "
            "reshape it to the same number of dimensions first"
        )
    for dim in range(2, x.value.dim() - 1 if x.value.dim() > 4 else 0):  # no reader could tell these from the height
        if x.value.shape[dim] < call.result.shape[dim]:
            x = _spread(call, made_whole(call, x), dim, call.result.shape[dim], f".{dim}")
    return x.buffer


def _spread(call: Call, x: Place, dim: int, count: int, part: str) -> Place:
    """A dimension of size 1 between the second and the last, expanded."""
    buffer, (before, _, behind) = in_the_middle(call, x, dim, f"{part}.view")
    size = {"size": [before, count], "mode": "nearest"}
    wide = call.write("resize", {"x": buffer}, attributes=size, shape=(before, count, behind), part=f"{part}.wide")
    value = x.value.expand([count if each == dim else -1 for each in range(x.value.dim())])
    return Place(call.write("reshape", {"x": wide}, attributes={"order": "hwc"}, value=value, part=part), value)


def flat(*given: Any) -> list[Any]:
    """The numbers of ``f(2, 3)``, ``f((2, 3))`` or ``f(dims=(2, 3))``."""
    return [each for one in given for each in (one if isinstance(one, tuple | list) else [one])]


def repeat(call: Call, x: Place, *sizes: Any, repeats: Any = (), dims: Any = ()) -> str:
    counts = flat(*sizes, repeats, dims)
    if len(counts) != x.value.dim() or counts[0] != 1:
        raise call.fail("only channels, height and width can be repeated")
    if all(count == 1 or side == 1 for count, side in zip(counts, x.value.shape, strict=True)):
        return x.buffer
    place = made_whole(call, x)
    for dim, count in enumerate(counts):
        if count > 1:
            again = [1] * len(counts)
            again[dim] = count
            value = place.value.repeat(*again)
            place = Place(joined(call, [place] * count, dim, value, f".{dim}"), value)
    return place.buffer


def made_whole(call: Call, x: Place) -> Place:
    """A value with its dimensions of size 1 expanded, for readers that cannot broadcast."""
    (height, width, channels), have = call.shape_of(x.value), call.draft.buffers[x.buffer].shape
    buffer = x.buffer
    if have[:2] != (height, width):
        size = {"size": [height, width], "mode": "nearest"}
        buffer = call.write("resize", {"x": buffer}, attributes=size, shape=(height, width, have[2]), part=".wide")
    if have[2] != channels:
        ones = {"weight": np.ones((channels, 1, 1, 1))}
        shape = (height, width, channels)
        buffer = call.write("float_conv", {"x": buffer}, ones, {"kernel": [1, 1]}, shape=shape, part=".deep")
    return Place(buffer, x.value)


# Splitting and joining


def cat(call: Call, tensors: Any, dim: int = 0, **named: int) -> str:
    dim = named.get("axis", dim)
    parts = [each for each in tensors if not (isinstance(each, Tensor) and not each.numel())]  # such as no extra tokens
    places = [each if isinstance(each, Place) else _part(call, each, index) for index, each in enumerate(parts)]
    if call.result.dim() == 4 and len(call.result) != len(places[0].value):
        raise call.fail("images of a batch must stay separate: join along another dimension")
    return joined(call, places, int(dim), call.result, "")


def stack(call: Call, tensors: Any, dim: int = 0) -> str:
    dim = int(dim) % call.result.dim()
    places = []
    for index, each in enumerate(tensors):
        place = each if isinstance(each, Place) else _part(call, each, index)
        value = place.value.unsqueeze(dim)
        places.append(Place(reshaped(call, place, value, f".{index}"), value))
    return joined(call, places, dim, call.result, "")


def _part(call: Call, tensor: Any, index: int) -> Place:
    if not isinstance(tensor, Tensor):
        raise call.fail(f"one of the parts is a {type(tensor).__name__}")
    return placed_constant(call, tensor, f".constant{index}")


def placed_constant(call: Call, tensor: Tensor, part: str) -> Place:
    """A constant of the model as a value, the same for each image."""
    value = tensor.detach().float()
    if not bool((value == value[:1]).all()) or len(value) != len(call.result):
        raise call.fail("a constant with one value per image of the batch fits only one batch")
    call.array(value)  # checks that it is finite
    array = pictures(value[:1])[0].astype(np.float64)
    return Place(call.write("constant", {}, {"value": array}, shape=call.shape_of(value), part=part), value)


def joined(call: Call, places: list[Place], dim: int, value: Tensor, part: str) -> str:
    axis = axis_of(call, value, dim)
    if axis is not None:
        inputs = {f"x{index}": each.buffer for index, each in enumerate(places)}
        attributes = {} if axis == 2 else {"axis": AXES[axis]}
        return call.write("concat", inputs, attributes=attributes, value=value, part=part)
    inputs = {f"x{i}": in_the_middle(call, each, dim, f"{part}.view{i}")[0] for i, each in enumerate(places)}
    shape = _middle(value, dim)
    joined = call.write("concat", inputs, attributes={"axis": "w"}, shape=shape, part=f"{part}.joined")
    return call.write("reshape", {"x": joined}, attributes={"order": "hwc"}, value=value, part=part)


def _middle(value: Tensor, dim: int) -> Shape:
    """The shape in which dimension ``dim``, neither the second nor the last, is the width."""
    sides = tuple(value.shape)
    dim %= len(sides)
    return prod(sides[2:dim]), sides[dim], prod(sides[dim + 1 :]) * sides[1]


def in_the_middle(call: Call, x: Place, dim: int, part: str) -> tuple[str, Shape]:
    """x reshaped so that dimension ``dim``, neither the second nor the last, is its width."""
    shape = _middle(x.value, dim)
    return call.write("reshape", {"x": x.buffer}, attributes={"order": "hwc"}, shape=shape, part=part), shape


def cut(call: Call, x: Place, spans: dict[int, range], part: str = "") -> Place:
    """The given ranges of some dimensions."""
    index = tuple(_as_slice(spans[dim]) if dim in spans else slice(None) for dim in range(x.value.dim()))
    value = x.value[index]
    if value.shape == x.value.shape:
        return x
    if 0 in value.shape:
        raise call.fail("the slice is empty")
    if any(axis_of(call, x.value, dim) is None for dim in spans):
        for dim, span in spans.items():
            x = _cut_middle(call, x, dim, span, f"{part}.{dim}")
        return x
    ranges = [range(side) for side in call.shape_of(x.value)]
    for dim, span in spans.items():
        axis = axis_of(call, x.value, dim)
        assert axis is not None
        ranges[axis] = span
    return Place(_sliced(call, x.buffer, ranges, value, None, part), value)


def _as_slice(span: range) -> slice:
    return slice(span.start, span.stop, span.step)


def _cut_middle(call: Call, x: Place, dim: int, span: range, part: str) -> Place:
    if axis_of(call, x.value, dim) is not None:
        return cut(call, x, {dim: span}, part)
    buffer, shape = in_the_middle(call, x, dim, f"{part}.view")
    taken = _sliced(
        call, buffer, [range(shape[0]), span, range(shape[2])], None, (shape[0], len(span), shape[2]), f"{part}.part"
    )
    value = x.value.index_select(dim, torch.tensor(list(span)))
    return Place(call.write("reshape", {"x": taken}, attributes={"order": "hwc"}, value=value, part=part), value)


def _sliced(call: Call, buffer: str, ranges: list[range], value: Tensor | None, shape: Shape | None, part: str) -> str:
    return call.write(
        "slice", {"x": buffer},
        attributes={
            "start": [span[0] for span in ranges],
            "stop": [span[-1] + 1 for span in ranges],
            "step": [span.step for span in ranges],
        },
        value=value, shape=shape, part=part,
    )  # fmt: skip


def parts(call: Call, x: Place, *how: Any, dim: int | None = None, **named: Any) -> list[str]:
    """chunk and split: the length of each part follows from torch's results."""
    place = int(dim if dim is not None else how[1] if len(how) > 1 else 0) % x.value.dim()
    if place == 0:
        raise call.fail("images of a batch must stay together: split along dim=1")
    found, start = [], 0
    for index, each in enumerate(call.result):
        stop = start + each.shape[place]
        found.append(cut(call, x, {place: range(start, stop)}, f".{index}").buffer)
        start = stop
    return found


def unbind(call: Call, x: Place, dim: int = 0) -> list[str]:
    return [
        _one_of(call, x, int(dim), index, value, f".{index}") for index, value in enumerate(call.result)
    ]  # fmt: skip


def select(call: Call, x: Place, dim: int, index: int) -> str:
    return _one_of(call, x, int(dim), int(index), call.result, "")


def _one_of(call: Call, x: Place, dim: int, index: int, value: Tensor, part: str) -> str:
    place = dim % x.value.dim()
    if place == 0:
        raise call.fail("images of a batch must stay together: the first dimension is the batch")
    at = index % x.value.shape[place]
    return reshaped(call, cut(call, x, {place: range(at, at + 1)}, f"{part}.one"), value, part)


def narrow(call: Call, x: Place, dim: int, start: int, length: int) -> str:
    first = int(start) % x.value.shape[dim]
    return cut(call, x, {int(dim) % x.value.dim(): range(first, first + int(length))}).buffer


def spans_of(call: Call, x: Place, index: Any) -> tuple[dict[int, range], set[int]]:
    """What an index of slices and numbers takes from each dimension that it changes, and the dimensions that it indexes
    by a number."""
    given = as_list(index, x.value.dim())
    if not all(each is None or isinstance(each, slice | int) for each in given):
        raise call.fail("only slices and integers such as x[:, 2:8, ::2, 0] are supported")
    spans: dict[int, range] = {}
    ones: set[int] = set()
    for dim, each in enumerate(each for each in given if each is not None):
        side = x.value.shape[dim]
        span = range(each % side, each % side + 1) if isinstance(each, int) else range(side)[each]
        if dim == 0 and (isinstance(each, int) or span != range(side)):
            raise call.fail("images of a batch must stay together: the first slice must be a plain ':'")
        if isinstance(each, int):
            ones.add(dim)
        if span != range(side):
            spans[dim] = span
    return spans, ones


def as_list(index: Any, dims: int) -> list[Any]:
    """The parts of an index, with ``...`` expanded."""
    given = list(index) if isinstance(index, tuple) else [index]
    dots = [at for at, each in enumerate(given) if each is ...]
    if dots:
        used = sum(each is not None and each is not ... for each in given)
        given[dots[0] : dots[0] + 1] = [slice(None)] * (dims - used)
    return given


def getitem(call: Call, x: Place, index: Any) -> str:
    """Slices and numbers, ``...`` and None."""
    plain = all(isinstance(each, slice) for each in as_list(index, x.value.dim()))
    place = cut(call, x, spans_of(call, x, index)[0], "" if plain else ".part")
    return place.buffer if plain else reshaped(call, place, call.result)


# Padding


def pad(call: Call, x: Place, pad: Any, mode: str = "constant", value: float | None = None) -> str:
    widths = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)][::-1]  # the last dimension comes first
    around = [(0, 0)] * (x.value.dim() - len(widths)) + widths
    if x.value.dim() > 4 or around[0] != (0, 0):
        raise call.fail("only height, width and channels of images can be padded")
    if any(each < 0 for both in around for each in both):
        spans = {
            dim: range(max(-before, 0), side - max(-after, 0))
            for dim, (side, (before, after)) in enumerate(zip(x.value.shape, around, strict=True))
            if dim
        }
        x = cut(call, x, spans, ".cut")
        around = [(max(before, 0), max(after, 0)) for before, after in around]
    if not any(map(any, around)):
        return x.buffer
    return padded(call, x, around[1:], mode, float(value or 0.0), call.result, "")


def padded(
    call: Call,
    x: Place,
    around: Sequence[tuple[int, int]],
    mode: str,
    value: float,
    result: Tensor | None,
    part: str,
) -> str:
    """``around`` has the padding before and after, for each dimension except the batch.  Without a ``result``, torch
    has no such value."""
    deep, *places = around
    placed = [*([(0, 0)] * (2 - len(places))), *places, deep]
    attributes: dict[str, Any] = {"before": [each[0] for each in placed], "after": [each[1] for each in placed]}
    if mode != "constant":
        attributes["mode"] = mode
    elif value:
        attributes["value"] = value
    height, width, channels = (
        before + side + after for side, (before, after) in zip(call.shape_of(x.value), placed, strict=True)
    )
    shape = (height, width, channels) if result is None else None
    return call.write("pad", {"x": x.buffer}, attributes=attributes, value=result, shape=shape, part=part)


def zero_pad(call: Call, x: Place, padding: Any) -> str:
    return pad(call, x, padding)
