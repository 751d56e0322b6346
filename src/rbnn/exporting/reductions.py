"""Means, sums, maxima and normalisations: handlers like those of ``rbnn.exporting.handlers``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from rbnn.exporting.activations import LARGEST
from rbnn.exporting.arithmetic import add, maximum, minimum, mul
from rbnn.exporting.handlers import affine, batch_norm
from rbnn.exporting.shapes import AXES, axis_of, in_the_middle, reshaped
from rbnn.exporting.traced_call import Call, Handler, Place
from rbnn.packed.operations import Shape

INDICES = ""
"""Stands for a missing buffer: the places of maxima."""


def axes(call: Call, x: Tensor, dims: Any) -> str:
    """Dimensions of torch as ``hw``, ``c`` and so on."""
    count = x.dim()
    given = dims if isinstance(dims, tuple | list) else [dims]
    wanted = {int(each) % count for each in given}
    middle = set(range(2, count - 1)) if count > 4 else set()
    if middle & wanted not in (set(), middle):
        raise call.fail(f"dimensions {sorted(wanted)} of {tuple(x.shape)} are not height, width and channels")
    found = {AXES[axis] for dim in wanted - middle if (axis := axis_of(call, x, dim)) is not None}
    found |= {"h"} if middle & wanted else set()
    return "".join(axis for axis in AXES if axis in found)


def _reduced(call: Call, x: Place, kind: str, attributes: dict[str, Any], dims: Any, value: Tensor) -> str:
    """One number for all values along ``dims``.  Dimensions of size 1 are then removed, if torch removes them."""
    if dims is None:
        raise call.fail("images of a batch must stay separate: name the dimensions")
    given = dims if isinstance(dims, tuple | list) else [dims]
    kept_sides = list(x.value.shape)
    for dim in given:
        kept_sides[dim] = 1
    kept = value.reshape(kept_sides)
    if _apart(x.value, given):
        for dim in given:
            x = _reduced_in_the_middle(call, x, kind, attributes, int(dim) % x.value.dim())
        return reshaped(call, Place(x.buffer, kept), value)
    over, picture = axes(call, x.value, dims), call.shape_of(x.value)
    shape = tuple(1 if axis in over else side for axis, side in zip(AXES, picture, strict=True))
    plain = call.shape_of(kept) == call.shape_of(value)
    made = call.write(
        kind, {"x": x.buffer}, attributes=attributes | {"over": over}, shape=None if plain else (*shape,),  # type: ignore[arg-type]
        value=value, part="" if plain else ".kept",
    )  # fmt: skip
    return made if plain else reshaped(call, Place(made, kept), value)


def _apart(x: Tensor, dims: Any) -> bool:
    """Whether ``dims`` contains only some of the dimensions that together are the height."""
    middle = set(range(2, x.dim() - 1)) if x.dim() > 4 else set()
    return middle & {int(dim) % x.dim() for dim in dims} not in (set(), middle)


def _reduced_in_the_middle(call: Call, x: Place, kind: str, attributes: dict[str, Any], dim: int) -> Place:
    """Reduce one of many dimensions, which then has size 1; torch has no such value."""
    kept = x.value.narrow(dim, 0, 1)
    if axis_of(call, x.value, dim) is not None:
        over = {"over": axes(call, x.value, dim)}
        shape = call.shape_of(kept)
        return Place(
            call.write(kind, {"x": x.buffer}, attributes=attributes | over, shape=shape, part=f".over{dim}"), kept
        )
    view, (before, _, behind) = in_the_middle(call, x, dim, f".view{dim}")
    made = call.write(
        kind, {"x": view}, attributes=attributes | {"over": "w"}, shape=(before, 1, behind), part=f".over{dim}"
    )
    back = call.write(
        "reshape", {"x": made}, attributes={"order": "hwc"}, shape=call.shape_of(kept), part=f".back{dim}"
    )
    return Place(back, kept)


def mean(call: Call, x: Place, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, **named: Any) -> str:
    return _reduced(call, x, "mean", {}, named.get("axis", dim), call.result)


def total(call: Call, x: Place, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, **named: Any) -> str:
    return _reduced(call, x, "reduce", {"how": "sum"}, named.get("axis", dim), call.result)


def amax(call: Call, x: Place, dim: Any = None, keepdim: bool = False) -> str:
    return _reduced(call, x, "reduce", {"how": "max"}, dim, call.result)


def amin(call: Call, x: Place, dim: Any = None, keepdim: bool = False) -> str:
    return _reduced(call, x, "reduce", {"how": "min"}, dim, call.result)


def _extreme(how: str, of_two: Handler) -> Handler:
    """torch.max and torch.min, of two tensors or along a dimension.  Along a dimension they also return the places,
    which nothing may read."""

    def extreme(call: Call, x: Any, dim: Any = None, keepdim: bool = False, **named: Any) -> Any:
        other = named.get("other", dim)
        if isinstance(other, Place | Tensor):
            return of_two(call, x, other)
        return [_reduced(call, x, "reduce", {"how": how}, dim, call.result[0]), INDICES]

    return extreme


largest, smallest = _extreme("max", maximum), _extreme("min", minimum)


def _spread_to(power: float) -> Handler:
    def spread(
        call: Call,
        x: Place,
        dim: Any = None,
        unbiased: bool = True,
        keepdim: bool = False,
        *,
        correction: int | None = None,
    ) -> str:
        return _spread(call, x, dim, 1 if correction is None and unbiased else correction or 0, power)

    return spread


var, std = _spread_to(1.0), _spread_to(0.5)


def var_mean(call: Call, x: Place, dim: Any = None, *more: Any, **named: Any) -> list[str]:
    """torch.var_mean and torch.std_mean: both results, as if computed by two calls."""
    spread = std if call.what == "std_mean" else var
    first, second = (replace(call, result=each, name=f"{call.name}.{index}") for index, each in enumerate(call.result))
    return [spread(first, x, dim, *more, **named), mean(second, x, dim)]


def _spread(call: Call, x: Place, dim: Any, correction: int, power: float) -> str:
    """(Σ (x − mean)²/(n − correction))^power"""
    if dim is None:
        raise call.fail("images of a batch must stay separate: name the dimensions")
    dims = list(dim) if isinstance(dim, tuple | list) else [dim]
    kept = x.value.var(dims, correction=correction, keepdim=True)
    picture, shape, over = call.shape_of(x.value), call.shape_of(kept), axes(call, x.value, dims)
    count = x.value.numel() // kept.numel()

    def write(kind: str, inputs: dict[str, str], part: str, shape: Shape, **attributes: Any) -> str:
        return call.write(kind, inputs, attributes=attributes, shape=shape, part=part)

    def scaled(buffer: str, factor: float, part: str) -> str:
        tensors = {"scale": np.full(shape[2], factor), "shift": np.zeros(shape[2])}
        return call.write("affine", {"x": buffer}, tensors, shape=shape, part=part)

    minus = scaled(write("mean", {"x": x.buffer}, ".mean", shape, over=over), -1.0, ".minus")
    centred = write("add", {"a": x.buffer, "b": minus}, ".centred", picture)
    squares = write("activation", {"x": centred}, ".squares", picture, activation=["power", 2.0])
    total = write("reduce", {"x": squares}, ".sum", shape, how="sum", over=over)
    made = scaled(total, 1 / (count - correction), ".var")
    if power != 1:
        made = write("activation", {"x": made}, ".root", shape, activation=["power", power])
    return reshaped(call, Place(made, kept), call.result)


def _softmax(**attributes: Any) -> Handler:
    def over(call: Call, x: Place, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> str:
        dim = (0 if x.value.dim() in (1, 3) else 1) if dim is None else int(dim) % x.value.dim()  # torch's old rule
        if not _apart(x.value, [dim]):
            return call.write("softmax", {"x": x.buffer}, attributes=attributes | {"over": axes(call, x.value, dim)})
        view, shape = in_the_middle(call, x, dim, ".view")
        made = call.write("softmax", {"x": view}, attributes=attributes | {"over": "w"}, shape=shape, part=".over")
        return call.write("reshape", {"x": made}, attributes={"order": "hwc"})

    return over


softmax, log_softmax = _softmax(), _softmax(log=True)


def softmin(call: Call, x: Place, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> str:
    """The softmax of −x."""
    made: str = softmax(call, Place(affine(call, x, -1.0, 0.0, ".minus", -x.value), -x.value), dim)
    return made


def logsumexp(call: Call, x: Place, dim: Any, keepdim: bool = False) -> str:
    """The mean of ``x − log_softmax(x)``, which is the same everywhere except for rounding."""
    dims = list(dim) if isinstance(dim, tuple | list) else [dim]
    over, shape = {"over": axes(call, x.value, dims)}, call.shape_of(x.value)
    logs = call.write("softmax", {"x": x.buffer}, attributes=over | {"log": True}, shape=shape, part=".logs")
    turned = {"scale": -np.ones(shape[2]), "shift": np.zeros(shape[2])}
    minus = call.write("affine", {"x": logs}, turned, shape=shape, part=".minus")
    totals = call.write("add", {"a": x.buffer, "b": minus}, shape=shape, part=".totals")
    return _reduced(call, Place(totals, x.value), "mean", {}, dims, call.result)


# Norms


def group_norm(call: Call, x: Place, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> str:
    attributes = {"over": "hwc", "groups": int(num_groups), "eps": float(eps)}
    return _standardized(call, x, attributes, weight, bias)


def instance_norm(
    call: Call,
    x: Place,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> str:
    if not use_input_stats:
        return batch_norm(call, x, running_mean, running_var, weight, bias, False, momentum, eps)
    return _standardized(call, x, {"over": "hw", "eps": float(eps)}, weight, bias)


def layer_norm(
    call: Call, x: Place, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> str:
    dims = x.value.dim()
    over = axes(call, x.value, list(range(dims - len(normalized_shape), dims)))
    return _standardized(call, x, {"over": over, "eps": float(eps)}, weight, bias, spread=True)


def _standardized(
    call: Call, x: Place, attributes: dict[str, Any], weight: Any, bias: Any, spread: bool = False
) -> str:
    """(x − mean)/√(var + ε), then the factor and the term of the norm: per channel, or over the last dimensions if
    ``spread``."""
    value = call.result
    if bias is not None:
        value = value - (bias.detach() if spread else _column(bias, x.value))
    if weight is not None or bias is not None:
        place = Place(
            call.write(
                "standardize", {"x": x.buffer}, attributes=attributes, shape=call.shape_of(x.value), part=".standard"
            ),
            value,
        )
        if not spread:
            channels = x.value.shape[1]
            factor = np.ones(channels) if weight is None else call.array(weight)
            return affine(call, place, factor, 0.0 if bias is None else call.array(bias))
        if weight is not None:
            part = ".weight" if bias is not None else ""
            place = Place(mul(call, place, weight.detach(), value=value, part=part), value)
        return place.buffer if bias is None else add(call, place, bias.detach())
    return call.write("standardize", {"x": x.buffer}, attributes=attributes)


def _column(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.detach().reshape(-1, *[1] * (like.dim() - 2))


def local_response_norm(
    call: Call, x: Place, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> str:
    numbers = {"alpha": float(alpha), "beta": float(beta), "k": float(k)}
    return call.write("local_norm", {"x": x.buffer}, attributes={"window": int(size)} | numbers)


def normalize(call: Call, x: Place, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None) -> str:
    """x / max(‖x‖, ε)"""
    length = _norm(call, x, p, dim, [float(eps), LARGEST])
    return call.write("divide", {"a": x.buffer, "b": length})


def vector_norm(call: Call, x: Place, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> str:
    return norm(call, x, ord, dim)


def norm(call: Call, x: Place, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> str:
    if dim is None:
        raise call.fail("images of a batch must stay separate: name the dimensions")
    kept = x.value.norm(p=2, dim=dim, keepdim=True)
    return reshaped(call, Place(_norm(call, x, p, dim, None), kept), call.result)


def _norm(call: Call, x: Place, p: Any, dim: Any, ends: list[float] | None) -> str:
    """√Σ x², clamped to ``ends``."""
    if p not in (2, 2.0, None, "fro"):
        raise call.fail(f"only the Euclidean norm is supported, not p={p}")
    picture, over = call.shape_of(x.value), axes(call, x.value, dim)
    height, width, channels = (1 if axis in over else side for axis, side in zip(AXES, picture, strict=True))
    shape = (height, width, channels)
    squares = call.write(
        "activation", {"x": x.buffer}, attributes={"activation": ["power", 2.0]}, shape=picture, part=".squares"
    )
    total = call.write("reduce", {"x": squares}, attributes={"how": "sum", "over": over}, shape=shape, part=".sum")
    root = call.write("activation", {"x": total}, attributes={"activation": ["power", 0.5]}, shape=shape, part=".root")
    if ends is None:
        return root
    return call.write(
        "activation", {"x": root}, attributes={"activation": ["hardtanh", *ends]}, shape=shape, part=".length"
    )
