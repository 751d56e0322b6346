"""The float operations: for each function of torch one of its name and parameters that writes its operations.

A handler takes its call and torch's own arguments, in which a tensor that flows through the network is a Place, and
returns the buffer of the result.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rbnn.exporting.draft import Array
from rbnn.exporting.traced_call import Call, Place, pair
from rbnn.models import RPReLU


def identity(call: Call, x: Place, *_: Any, **__: Any) -> str:
    return x.buffer


def dropout(call: Call, x: Place, p: float = 0.5, training: bool = True, inplace: bool = False) -> str:
    if training:
        raise call.fail("it is on in evaluation mode too: pass training=self.training")
    return x.buffer


# Convolution and linear


def conv(
    call: Call,
    x: Place,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    filters = constant(call, weight, "weight")
    check_sides(call, x, filters)
    filters = filters if filters.dim() == 4 else filters[:, :, None]
    strides, dilations = both_sides(x, stride, 1), both_sides(x, dilation, 1)
    padding = padding if isinstance(padding, str) else both_sides(x, padding, 0)
    around = sides(padding, list(filters.shape[2:]), dilations)
    buffer = x.buffer
    if any(before != after for before, after in around):  # "same" with an even kernel
        buffer = pad_picture(call, x, around)
        around = [(0, 0), (0, 0)]
    attributes = {
        "kernel": list(filters.shape[2:]),
        "stride": strides,
        "padding": [before for before, _ in around],
        "dilation": dilations,
        "groups": int(groups),
    }
    tensors = {"weight": call.array(filters.permute(0, 2, 3, 1))} | bias_of(call, bias)
    return call.write("float_conv", {"x": buffer}, tensors, attributes)


def both_sides(x: Place, value: Any, of_height: int) -> list[int]:
    """What torch says of a window, one number or one per side, for height and width.  A signal (N, C, L) is a picture
    of height 1, over which a window has ``of_height``."""
    numbers = pair(value)
    return [of_height, numbers[-1]] if x.value.dim() == 3 else numbers


def check_sides(call: Call, x: Place, filters: Tensor) -> None:
    """torch's convolutions take one picture without a batch too; its channels would be taken for pictures here."""
    if x.value.dim() != filters.dim():
        wanted = "(N, C, H, W)" if filters.dim() == 4 else "(N, C, L)"
        raise call.fail(f"a batch {wanted} is expected, got {tuple(x.value.shape)}")


def linear(call: Call, x: Place, weight: Any, bias: Any = None) -> str:
    if x.value.dim() != 2:
        raise call.fail(f"a linear layer takes vectors (N, C), here it gets {tuple(x.value.shape)}: flatten first")
    filters = constant(call, weight, "weight")
    tensors = {"weight": call.array(filters[:, None, None])} | bias_of(call, bias)
    return call.write("float_conv", {"x": x.buffer}, tensors, {"kernel": [1, 1]})


def constant(call: Call, tensor: Any, what: str) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise call.fail(f"its {what} is computed from the pictures")
    return tensor


def bias_of(call: Call, bias: Any) -> dict[str, Array]:
    return {} if bias is None else {"shift": call.array(constant(call, bias, "bias"))}


def sides(padding: Any, kernel: list[int], dilation: list[int]) -> list[tuple[int, int]]:
    """Padding before and after, for height and width; torch puts the odd pixel of ``same`` behind."""
    if padding == "valid":
        return [(0, 0), (0, 0)]
    if padding == "same":
        reaches = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(reach // 2, reach - reach // 2) for reach in reaches]
    return [(each, each) for each in pair(padding)]


def pad_picture(call: Call, x: Place, around: list[tuple[int, int]]) -> str:
    (top, bottom), (left, right) = around
    height, width, channels = call.shape_of(x.value)
    return call.write(
        "pad", {"x": x.buffer}, attributes={"before": [top, left, 0], "after": [bottom, right, 0]},
        shape=(height + top + bottom, width + left + right, channels), part=".pad",
    )  # fmt: skip


# Affine


def batch_norm(
    call: Call,
    x: Place,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> str:
    """``γ (x − mean)/√(var + ε) + β = scale x + shift``."""
    if training or running_mean is None or running_var is None:
        raise call.fail("a batch norm without running statistics depends on the other pictures of its batch")
    scale = 1 / np.sqrt(call.array(running_var) + eps)
    scale = scale if weight is None else scale * call.array(weight)
    shift = (0.0 if bias is None else call.array(bias)) - call.array(running_mean) * scale
    return affine(call, x, scale, shift)


def affine(call: Call, x: Place, scale: Any, shift: Any, part: str = "", value: Tensor | None = None) -> str:
    channels = (call.shape_of(x.value)[2],)
    tensors = {"scale": np.broadcast_to(scale, channels) * 1.0, "shift": np.broadcast_to(shift, channels) * 1.0}
    return call.write("affine", {"x": x.buffer}, tensors, part=part, value=value)


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


def mul(call: Call, a: Any, b: Any) -> str:
    if isinstance(a, Place) and isinstance(b, Place):
        return _two(call, "multiply", a, b)
    x, factor = (a, b) if isinstance(a, Place) else (b, a)
    values = _per_channel(call, x, factor)
    if values is not None:
        return affine(call, x, values, 0.0)
    return call.write("multiply", {"a": x.buffer, "b": _constant_picture(call, x, factor)})


def div(call: Call, a: Any, b: Any, *, rounding_mode: str | None = None) -> str:
    if isinstance(b, Place) or rounding_mode is not None:
        raise call.fail("only a division by a constant is")
    return mul(call, a, 1 / (b.double() if isinstance(b, Tensor) else b))


def _two(call: Call, kind: str, a: Place, b: Place) -> str:
    if a.value.dim() != b.value.dim():
        raise call.fail(f"shapes {tuple(a.value.shape)} and {tuple(b.value.shape)} do not stand side by side")
    return call.write(kind, {"a": a.buffer, "b": b.buffer})


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
        raise call.fail(f"a constant of the shape {tuple(tensor.shape)} makes {tuple(x.value.shape)} larger")
    tensor = tensor.reshape(*[1] * (x.value.dim() - tensor.dim()), *tensor.shape)
    if tensor.shape[0] != 1:
        raise call.fail("a constant with a value for each picture of the batch belongs to one batch alone")
    return tensor


def _per_channel(call: Call, x: Place, term: Any) -> Array | None:
    """One number per channel, if a constant is that."""
    tensor = _full(call, x, term)
    if any(side != 1 for side in tensor.shape[2:]):
        return None
    return np.broadcast_to(call.array(tensor).reshape(-1), (x.value.shape[1],))


def _constant_picture(call: Call, x: Place, term: Any) -> str:
    tensor = _full(call, x, term)
    height, width, channels = call.shape_of(tensor)
    values = call.array(tensor).reshape(channels, height, width).transpose(1, 2, 0)
    return call.write("constant", {}, {"value": values}, shape=(height, width, channels), part=".constant")


# Activations


def _activation(call: Call, x: Place, *words: Any) -> str:
    return call.write("activation", {"x": x.buffer}, attributes={"activation": list(words)})


def hardtanh(call: Call, x: Place, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> str:
    return _activation(call, x, "hardtanh", float(min_val), float(max_val))


def clamp(call: Call, x: Place, min: Any = None, max: Any = None) -> str:
    if not isinstance(min, int | float) or not isinstance(max, int | float):
        raise call.fail("both ends of a clamp must be numbers")
    return hardtanh(call, x, min, max)


def relu(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "relu")


def relu6(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "relu6")


def leaky_relu(call: Call, x: Place, negative_slope: float = 0.01, inplace: bool = False) -> str:
    return _activation(call, x, "leaky_relu", float(negative_slope))


def prelu(call: Call, x: Place, weight: Any) -> str:
    return _prelu(call, x, constant(call, weight, "slope"))


def _prelu(call: Call, x: Place, weight: Tensor, value: Tensor | None = None, part: str = "") -> str:
    slope = np.broadcast_to(call.array(weight), (x.value.shape[1],)) * 1.0
    attributes = {"activation": ["prelu"]}
    return call.write("activation", {"x": x.buffer}, {"slope": slope}, attributes, value=value, part=part)


def sigmoid(call: Call, x: Place) -> str:
    return _activation(call, x, "sigmoid")


def hardswish(call: Call, x: Place, inplace: bool = False) -> str:
    return _activation(call, x, "hardswish")


# Pools and means


def max_pool(
    call: Call,
    x: Place,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> str:
    if return_indices:
        raise call.fail("the places of the maxima are not kept")
    attributes = _window(x, kernel_size, stride, padding, ceil_mode) | {"dilation": both_sides(x, dilation, 1)}
    return call.write("max_pool", {"x": x.buffer}, attributes=attributes)


def avg_pool(
    call: Call,
    x: Place,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> str:
    if divisor_override is not None:
        raise call.fail("divisor_override is not supported")
    attributes = _window(x, kernel_size, stride, padding, ceil_mode) | {"count_padding": bool(count_include_pad)}
    return call.write("avg_pool", {"x": x.buffer}, attributes=attributes)


def _window(x: Place, kernel: Any, stride: Any, padding: Any, ceil: bool) -> dict[str, Any]:
    stride = kernel if stride is None or stride == [] else stride
    return {
        "kernel": both_sides(x, kernel, 1), "stride": both_sides(x, stride, 1), "padding": both_sides(x, padding, 0),
        "ceil": bool(ceil),
    }  # fmt: skip


def adaptive_avg_pool(call: Call, x: Place, output_size: Any) -> str:
    return call.write("adaptive_avg_pool", {"x": x.buffer}, attributes={"size": list(call.shape_of(call.result)[:2])})


def adaptive_max_pool(call: Call, x: Place, output_size: Any, return_indices: bool = False) -> str:
    if return_indices:
        raise call.fail("the places of the maxima are not kept")
    return call.write("adaptive_max_pool", {"x": x.buffer}, attributes={"size": list(call.shape_of(call.result)[:2])})


def mean(call: Call, x: Place, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> str:
    dims = x.value.dim()
    given = range(dims) if dim is None else dim if isinstance(dim, tuple | list) else [dim]
    over = {int(each) % dims for each in given}
    if over == set(range(2, dims)):
        return call.write("mean", {"x": x.buffer}, attributes={"over": "hw"})
    if over == {1} and keepdim:
        return call.write("mean", {"x": x.buffer}, attributes={"over": "c"})
    raise call.fail("a mean is taken over height and width, or over channels with keepdim=True")


# Modules of ours


def option_a(call: Call, x: Place, stride: int, margin: int) -> str:
    """Every ``stride``-th pixel, ``margin`` channels of zeros on both sides."""
    taken = x.buffer
    if stride > 1:
        height, width, channels = call.shape_of(x.value)
        taken = call.write(
            "slice", {"x": x.buffer},
            attributes={"start": [0, 0, 0], "stop": [height, width, channels], "step": [stride, stride, 1]},
            value=x.value[:, :, ::stride, ::stride], part=".pixels" if margin else "",
        )  # fmt: skip
    if not margin:
        return taken
    return call.write("pad", {"x": taken}, attributes={"before": [0, 0, margin], "after": [0, 0, margin]})


def rprelu(call: Call, x: Place, shift_in: Tensor, weight: Tensor, shift_out: Tensor) -> str:
    """``prelu(x + shift_in; weight) + shift_out``."""
    shape = (-1, *[1] * (x.value.dim() - 2))
    moved = x.value + shift_in.detach().view(shape)
    bent = torch.nn.functional.prelu(moved, weight.detach())
    inner = Place(affine(call, x, 1.0, call.array(shift_in), ".in", moved), moved)
    return affine(call, Place(_prelu(call, inner, weight, bent, ".bent"), bent), 1.0, call.array(shift_out))


def join(call: Call, branch: Place, shortcut: Place, activation: nn.Module) -> str:
    """``activation(branch + shortcut)``."""
    total = branch.value + shortcut.value
    place = Place(call.write("add", {"a": branch.buffer, "b": shortcut.buffer}, value=total, part=".add"), total)
    match activation:
        case nn.Hardtanh():
            return hardtanh(call, place)
        case nn.ReLU():
            return relu(call, place)
        case nn.PReLU():
            return prelu(call, place, activation.weight)
        case RPReLU():
            return rprelu(call, place, activation.shift_in, activation.weight, activation.shift_out)
        case nn.Identity():
            return place.buffer
    raise call.fail(f"behind a sum, nn.{type(activation).__name__} is not supported")
