"""Values whose first dimension is not the batch: (length, N, channels), or several crops of each image together in the
first dimension.  They are lowered with the images first, whatever the order in torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rbnn.exporting import activations, arithmetic, handlers, pools, reductions, resizing, selections, shapes
from rbnn.exporting.products import attention, multi_head_attention
from rbnn.exporting.traced_call import Call, Handler, Place

APART = "images of a batch must stay separate: keep the first dimension"


@dataclass(frozen=True)
class Layout:
    """Dimension ``dim`` contains all images ``outer`` times, and each image ``inner`` times in a row."""

    dim: int = 0
    outer: int = 1
    inner: int = 1

    @property
    def shares(self) -> list[int]:
        """What else is in the dimension of the images."""
        return [side for side in (self.outer, self.inner) if side > 1]

    def first(self, tensor: Tensor) -> Tensor:
        """The images first, then the dimensions before theirs, what shared their dimension, and the dimensions after
        it."""
        sides, count = list(tensor.shape), tensor.shape[self.dim] // (self.outer * self.inner)
        before, behind = sides[: self.dim], sides[self.dim + 1 :]
        apart = tensor.reshape(*before, self.outer, count, self.inner, *behind).movedim(self.dim + 1, 0)
        return apart.reshape(count, *before, *self.shares, *behind)

    def back(self, tensor: Tensor) -> Tensor:
        """The order of torch again."""
        sides, count = list(tensor.shape), len(tensor)
        before, behind = sides[1 : 1 + self.dim], sides[1 + self.dim + len(self.shares) :]
        apart = tensor.reshape(count, *before, self.outer, self.inner, *behind).movedim(0, self.dim + 1)
        return apart.reshape(*before, self.outer * count * self.inner, *behind)

    def place_of(self, call: Call, dim: int, dims: int) -> int:
        """The place of dimension ``dim`` of ``dims`` when the images are first."""
        dim %= dims
        if dim == self.dim:
            raise call.fail("images of a batch must stay separate: this is the batch dimension")
        return dim + 1 if dim < self.dim else dim + len(self.shares)

    def of_constant(self, tensor: Tensor, dims: int) -> Tensor:
        """Constants that are combined with a value of this layout."""
        full = tensor.reshape(*[1] * (dims - tensor.dim()), *tensor.shape)
        if full.shape[self.dim] > 1:
            return self.first(full)
        sides = list(full.shape)
        return full.reshape(1, *sides[: self.dim], *[1] * len(self.shares), *sides[self.dim + 1 :])


PLAIN = Layout()


@dataclass(frozen=True)
class Batched:
    """A value with its images first, and its layout in torch."""

    place: Place
    layout: Layout
    dims: int
    """Dimensions of torch's tensor."""


def layout_of(pictures: Tensor, count: int) -> Layout | None:
    """The layout of a tensor that contains, for each value, the number of its image; None if there is no such
    layout."""
    for dim in range(pictures.dim()):
        line = pictures.movedim(dim, 0).reshape(pictures.shape[dim], -1)
        row = line[:, 0]
        if not torch.equal(line, row[:, None].expand_as(line)) or len(row) % count:
            continue
        inner = int((row != row[0]).nonzero()[0]) if bool((row != row[0]).any()) else len(row)
        outer, rest = divmod(len(row), count * inner)
        if rest == 0 and torch.equal(row, torch.arange(count).repeat_interleave(inner).repeat(outer)):
            return Layout(dim, outer, inner)
    return None


def picture_numbers(tensor: Tensor) -> Tensor:
    """The number of the image for each value of a tensor with its images first."""
    return torch.arange(len(tensor)).reshape(-1, *[1] * (tensor.dim() - 1)).expand(tensor.shape)


Made = list[tuple[str, Layout]]
"""The buffer and the layout of each result."""


def leaves_the_batch(call: Call, handler: Handler, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call on Values that begin with the batch returns one that does not."""
    if not isinstance(call.result, Tensor):
        return False
    if handler is shapes.reshape:
        return len(call.result) != len(args[0].tensor)
    if handler is shapes.move:
        return layout_of(call.again(picture_numbers(args[0].tensor)), len(args[0].tensor)) != PLAIN
    if handler in (shapes.stack, shapes.cat):
        return _dim_of_join(args, kwargs) % call.result.dim() == 0
    return handler is selections.repeat_interleave and len(call.result) != len(args[0].tensor)


def _dim_of_join(args: Sequence[Any], kwargs: dict[str, Any]) -> int:
    return int(kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else 0)))


def lowered(call: Call, handler: Handler, args: Any, kwargs: dict[str, Any], found: list[Batched]) -> Made:
    """``args`` and ``kwargs`` contain Batched values; ``found`` is the list of them."""
    if handler is shapes.reshape or (handler in MOVERS and len(found) == 1):  # reshape_as also has a model of its shape
        return _moved(call, found[0])
    if handler is selections.repeat_interleave and found[0].layout == PLAIN:
        return [_several_times(call, found[0])]
    if handler in (shapes.stack, shapes.cat):
        return [_joined(call, handler, list(args[0]), _dim_of_join(args, kwargs))]
    if handler is shapes.pad and found[0].place.value.dim() <= 4:  # only dimensions after that of the images
        return _along(call, handler, args, kwargs, found)
    if handler in ALONG:
        return _along(call, handler, args, kwargs, found)
    if handler in MERGED and isinstance(call.result, Tensor) and all(each.layout.dim == 0 for each in found):
        return [_merged(call, handler, args, kwargs, found[0])]
    if handler in ELEMENTWISE:
        return [_elementwise(call, handler, args, kwargs, found)]
    raise call.fail(APART)


# Operations that only move values


def _moved(call: Call, x: Batched) -> Made:
    """Moving the indices of the values shows where each value goes."""
    numbers = torch.arange(x.place.value.numel(), dtype=torch.float64).reshape(x.place.value.shape)
    given = call.again(x.layout.back(numbers))
    several = not isinstance(given, Tensor)
    results, outcomes = (list(each) if several else [each] for each in (call.result, given))
    made = []
    for index, (result, outcome) in enumerate(zip(results, outcomes, strict=True)):
        layout = layout_of(outcome.long() // x.place.value[0].numel(), len(numbers))
        if layout is None:
            raise call.fail(APART)
        part = f".{index}" if several else ""
        whole = shapes.made_whole(call, x.place)
        made.append((_gathered(call, whole, layout.first(outcome), layout.first(result), part), layout))
    return made


def _gathered(call: Call, x: Place, sources: Tensor, value: Tensor, part: str) -> str:
    """``value``, each element of which is at ``sources`` in x.  A part is cut out first, then its order is changed."""
    each = x.value[0].numel()
    steps = (torch.arange(len(sources)) * each).reshape(-1, *[1] * (sources.dim() - 1))
    if not torch.equal(sources, sources[:1] + steps):
        raise call.fail(APART)
    taken = np.unravel_index(sources[0].long().numpy().reshape(-1), tuple(x.value.shape[1:]))
    spans, inside = {}, []
    for dim, at in enumerate(taken, start=1):
        used, where = np.unique(at, return_inverse=True)
        step = int(used[1] - used[0]) if len(used) > 1 else 1
        span = range(int(used[0]), int(used[-1]) + 1, step)
        if not np.array_equal(used, np.array(span)):
            raise call.fail("only values that form a slice can be taken")
        if len(span) < x.value.shape[dim]:
            spans[dim] = span
        inside.append((where.reshape(-1), len(used)))
    sides = [length for _, length in inside]
    if prod(sides) != value[0].numel():
        raise call.fail("only values that form a slice can be taken")
    part_of_x = shapes.cut(call, x, spans, f"{part}.cut") if spans else x
    order = np.ravel_multi_index([where for where, _ in inside], sides)
    return shapes.moved_by(call, part_of_x, torch.from_numpy(order).reshape(value.shape[1:]), value, part)


def _several_times(call: Call, x: Batched) -> tuple[str, Layout]:
    """Each image several times in a row."""
    layout = Layout(0, 1, len(call.result) // len(x.place.value))
    one = x.place.value.unsqueeze(1)
    place = Place(shapes.reshaped(call, x.place, one, ".one"), one)
    return shapes.expand(replace(call, result=layout.first(call.result)), place), layout


# Operations that join values


def _joined(call: Call, handler: Handler, parts: list[Any], dim: int) -> tuple[str, Layout]:
    batched = [each for each in parts if isinstance(each, Batched)]
    layout, dims = batched[0].layout, batched[0].dims
    if any((each.layout, each.dims) != (layout, dims) for each in batched):
        raise call.fail(APART)
    count, dim = len(batched[0].place.value), dim % call.result.dim()
    places = [each.place if isinstance(each, Batched) else layout.first(each.detach()) for each in parts]
    if handler is shapes.stack:
        layout = replace(layout, dim=layout.dim + 1) if dim <= layout.dim else layout
        place = layout.place_of(call, dim, call.result.dim())
        return shapes.stack(replace(call, result=layout.first(call.result)), places, place), layout
    if dim != layout.dim:
        place = layout.place_of(call, dim, dims)
        return shapes.cat(replace(call, result=layout.first(call.result)), places, place), layout
    if layout != PLAIN or any(len(each.place.value) != count for each in batched) or len(batched) != len(parts):
        raise call.fail(APART)
    layout = Layout(0, len(parts), 1)  # several batches, one after the other
    return shapes.stack(replace(call, result=layout.first(call.result)), places, 1), layout


# Elementwise operations, and operations along dimensions other than the batch


def _elementwise(
    call: Call, handler: Handler, args: Any, kwargs: dict[str, Any], found: list[Batched]
) -> tuple[str, Layout]:
    dims = call.result.dim()
    aligned = {id(each): _with_dims(call, each, dims) for each in found}
    layouts = {each.layout for each in aligned.values()}
    if len(layouts) != 1:
        raise call.fail(APART)
    layout = layouts.pop()

    def put(value: Any) -> Any:
        if isinstance(value, Batched):
            return aligned[id(value)].place
        return layout.of_constant(value, dims) if isinstance(value, Tensor) and value.dim() else value

    args, kwargs = tuple(map(put, args)), {name: put(value) for name, value in kwargs.items()}
    return handler(replace(call, result=layout.first(call.result)), *args, **kwargs), layout


def _with_dims(call: Call, x: Batched, dims: int) -> Batched:
    """x with leading dimensions of size 1, as torch adds them."""
    if x.dims == dims:
        return x
    more, value = dims - x.dims, x.place.value
    seen = value.reshape(len(value), *[1] * more, *value.shape[1:])
    layout = replace(x.layout, dim=x.layout.dim + more)
    place = Place(shapes.reshaped(call, shapes.made_whole(call, x.place), seen, ".seen"), seen)
    return Batched(place, layout, dims)


def _along(call: Call, handler: Handler, args: Any, kwargs: dict[str, Any], found: list[Batched]) -> Made:
    layout, dims = found[0].layout, found[0].dims
    if any((each.layout, each.dims) != (layout, dims) for each in found):
        raise call.fail(APART)
    free = {
        "linear": 1, "matmul": 2, "bmm": 2, "multi_head_attention_forward": 1, "layer_norm": 1,
        "scaled_dot_product_attention": 2,
    }  # fmt: skip
    if layout.dim >= dims - free.get(call.what, 0) and call.what in free:
        raise call.fail(APART)
    if handler is attention:  # its masks are not weights, but values like the others

        def apart(value: Any) -> Any:
            return layout.of_constant(value, dims) if isinstance(value, Tensor) else value

        args, kwargs = tuple(map(apart, args)), {name: apart(value) for name, value in kwargs.items()}
    plain = [_place(call, each) for each in args]
    named = {name: _place(call, value) for name, value in kwargs.items()}
    place_of, dim_at = layout.place_of, ALONG.get(handler)
    after = layout
    if dim_at is not None:
        dim = named.pop("axis", named.get("dim", plain[dim_at] if len(plain) > dim_at else None))
        if dim is None:
            raise call.fail("images of a batch must stay separate: name the dimensions")
        wanted = [int(each) % dims for each in (dim if isinstance(dim, tuple | list) else [dim])]
        moved: Any = [place_of(call, each, dims) for each in wanted]
        moved = moved if isinstance(dim, tuple | list) else moved[0]
        if len(plain) > dim_at:
            plain[dim_at] = moved
        else:
            named["dim"] = moved
        result = call.result if isinstance(call.result, Tensor) else call.result[0]
        if result.dim() < dims:
            after = replace(layout, dim=layout.dim - sum(each < layout.dim for each in wanted))
    results = [call.result] if isinstance(call.result, Tensor) else list(call.result)
    # The weights of attention begin with the batch, even if the other values do not.
    found_in = [after, PLAIN] if handler is multi_head_attention else [after] * len(results)
    first = [None if each is None else at.first(each) for each, at in zip(results, found_in, strict=False)]
    canonical = first[0] if isinstance(call.result, Tensor) else tuple(first)
    made = handler(replace(call, result=canonical), *plain, **named)
    return list(zip([made] if isinstance(made, str) else made, found_in, strict=False))


def _place(call: Call, value: Any) -> Any:
    return shapes.made_whole(call, value.place) if isinstance(value, Batched) else value


# Layers on several crops of each image: the crops become channels of one image, and the weights are repeated


def _merged(call: Call, handler: Handler, args: Any, kwargs: dict[str, Any], x: Batched) -> tuple[str, Layout]:
    pieces = prod(x.layout.shares)

    def side_by_side(value: Tensor) -> Tensor:
        first = x.layout.first(value)
        return first.reshape(len(first), -1, *value.shape[2:])

    def put(value: Any) -> Any:
        if isinstance(value, Batched):
            whole = shapes.made_whole(call, value.place)
            wide = side_by_side(value.layout.back(value.place.value))
            return Place(shapes.reshaped(call, whole, wide, ".pieces"), wide)
        if isinstance(value, Tensor) and value.dim():
            return value.detach().repeat(pieces, *[1] * (value.dim() - 1))
        return value

    plain = [put(each) for each in args]
    named = {name: put(value) for name, value in kwargs.items()}
    if handler in GROUPED:
        name, at = GROUPED[handler]
        if len(plain) > at:
            plain[at] = plain[at] * pieces
        else:
            named[name] = named.get(name, 1) * pieces
    wide = side_by_side(call.result)
    made = Place(handler(replace(call, result=wide), *plain, **named), wide)
    value = x.layout.first(call.result)
    return shapes.reshaped(call, made, value, ".together"), x.layout


MOVERS = (
    shapes.reshape, shapes.move, selections.getitem, shapes.parts, shapes.unbind, shapes.select, shapes.narrow,
)  # fmt: skip
ALONG: dict[Callable[..., Any], int | None] = {
    reductions.mean: 1, reductions.total: 1, reductions.amax: 1, reductions.amin: 1, reductions.largest: 1,
    reductions.smallest: 1, reductions.var: 1, reductions.std: 1, reductions.softmax: 1, reductions.log_softmax: 1,
    reductions.softmin: 1, reductions.logsumexp: 1, reductions.norm: 2, reductions.vector_norm: 2,
    reductions.normalize: 2, arithmetic.glu: 1,
    handlers.linear: None, arithmetic.matmul: None, reductions.layer_norm: None,
    multi_head_attention: None, attention: None,
}  # fmt: skip
"""Handlers that work along some dimensions, and the index of the argument that names them."""
MERGED = (
    handlers.conv, handlers.batch_norm, pools.max_pool, pools.avg_pool, pools.adaptive_avg_pool,
    pools.adaptive_max_pool, reductions.group_norm, reductions.instance_norm, resizing.interpolate,
    activations.prelu, shapes.pad,
)  # fmt: skip
"""Handlers that treat each crop as an image."""
GROUPED: dict[Callable[..., Any], tuple[str, int]] = {
    handlers.conv: ("groups", 6), reductions.group_norm: ("num_groups", 1),
}  # fmt: skip
ELEMENTWISE = (
    *(getattr(activations, name) for name in (
        "hardtanh", "clamp", "clamp_min", "clamp_max", "relu", "relu6", "leaky_relu", "sigmoid", "hardswish",
        "hardsigmoid", "tanh", "elu", "selu", "gelu", "silu", "mish", "softplus", "absolute", "exp", "power", "square",
        "sqrt", "rsqrt", "reciprocal", "celu", "rrelu", "logsigmoid", "threshold", "sign",
    )),
    *(getattr(arithmetic, name) for name in (
        "add", "sub", "rsub", "neg", "mul", "div", "rdiv", "addcmul", "maximum", "minimum", "softsign", "tanhshrink",
        "softshrink",
    )),
    reductions.largest, reductions.smallest,
    handlers.identity, handlers.same_numbers, handlers.dropout, shapes.expand,
)  # fmt: skip
