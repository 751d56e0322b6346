"""Handlers of float operations.  Each has the name and the parameters of a torch function and writes its operations.

A handler takes its call and torch's own arguments, in which a tensor that depends on the input is a Place.  It returns
the buffer of the result.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rbnn.exporting.activations import hardtanh, prelu, prelu_of, relu
from rbnn.exporting.draft import Array
from rbnn.exporting.shapes import made_whole, padded, permuted
from rbnn.exporting.traced_call import Call, Place, pair
from rbnn.models import RPReLU


def identity(call: Call, x: Place, *_: Any, **__: Any) -> str:
    return x.buffer


def same_numbers(call: Call, x: Place, *_: Any, **__: Any) -> str:
    """A change of type or device does nothing, because the packed network has only float32."""
    if not call.result.is_floating_point():
        raise call.fail(f"it returns {call.result.dtype}, but a packed network has only floats")
    return x.buffer


def dropout(call: Call, x: Place, p: float = 0.5, training: bool = True, inplace: bool = False) -> str:
    if training:
        raise call.fail("it is active in evaluation mode: pass training=self.training")
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
    padding_mode: str = "zeros",
) -> str:
    filters = constant(call, weight, "weight")
    check_sides(call, x, filters)
    filters = filters if filters.dim() == 4 else filters[:, :, None]
    strides, dilations = both_sides(x, stride, 1), both_sides(x, dilation, 1)
    padding = padding if isinstance(padding, str) else both_sides(x, padding, 0)
    around = sides(padding, list(filters.shape[2:]), dilations)
    buffer = x.buffer
    if padding_mode != "zeros" or any(before != after for before, after in around):  # "same" with an even kernel
        buffer = pad_picture(call, x, around, padding_mode)
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
    """A parameter of a window, one number or one per side, for height and width.  A signal (N, C, L) is an image of
    height 1, where the window has ``of_height``."""
    numbers = pair(value)
    return [of_height, numbers[-1]] if x.value.dim() == 3 else numbers


def check_sides(call: Call, x: Place, filters: Tensor) -> None:
    """Torch's convolutions also take one image without a batch; here its channels would be taken for images."""
    if x.value.dim() != filters.dim():
        wanted = "(N, C, H, W)" if filters.dim() == 4 else "(N, C, L)"
        raise call.fail(f"expected a batch {wanted}, got {tuple(x.value.shape)}")


def linear(call: Call, x: Place, weight: Any, bias: Any = None) -> str:
    filters = constant(call, weight, "weight")
    tensors = {"weight": call.array(filters[:, None, None])} | bias_of(call, bias)
    if x.value.dim() == 2:
        return call.write("float_conv", {"x": x.buffer}, tensors, {"kernel": [1, 1]})
    # Over the last dimension, which becomes the channels and is moved back.
    last = x.value.dim() - 1
    turned = permuted(call, x, [0, last, *range(1, last)], ".turned")
    value = call.result.permute(0, last, *range(1, last))
    made = call.write("float_conv", {"x": turned.buffer}, tensors, {"kernel": [1, 1]}, value=value, part=".linear")
    return permuted(call, Place(made, value), [0, *range(2, last + 1), 1], "").buffer


def constant(call: Call, tensor: Any, what: str) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise call.fail(f"its {what} depends on the input")
    return tensor


def bias_of(call: Call, bias: Any) -> dict[str, Array]:
    return {} if bias is None else {"shift": call.array(constant(call, bias, "bias"))}


def sides(padding: Any, kernel: list[int], dilation: list[int]) -> list[tuple[int, int]]:
    """Padding before and after, for height and width.  For ``same``, torch adds the odd pixel at the end."""
    if padding == "valid":
        return [(0, 0), (0, 0)]
    if padding == "same":
        reaches = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(reach // 2, reach - reach // 2) for reach in reaches]
    return [(each, each) for each in pair(padding)]


def pad_picture(call: Call, x: Place, around: list[tuple[int, int]], mode: str = "zeros") -> str:
    """Pad height and width in a separate operation."""
    picture = [(0, 0), *around[-(x.value.dim() - 2) :]]
    return padded(call, x, picture, "constant" if mode == "zeros" else mode, 0.0, None, ".pad")


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
        raise call.fail("a batch norm without running statistics depends on the other images of its batch")
    scale = 1 / np.sqrt(call.array(running_var) + eps)
    scale = scale if weight is None else scale * call.array(weight)
    shift = (0.0 if bias is None else call.array(bias)) - call.array(running_mean) * scale
    return affine(call, x, scale, shift)


def affine(call: Call, x: Place, scale: Any, shift: Any, part: str = "", value: Tensor | None = None) -> str:
    x = made_whole(call, x)
    channels = (call.shape_of(x.value)[2],)
    tensors = {"scale": np.broadcast_to(scale, channels) * 1.0, "shift": np.broadcast_to(shift, channels) * 1.0}
    return call.write("affine", {"x": x.buffer}, tensors, part=part, value=value)


# Modules of rbnn


def option_a(call: Call, x: Place, stride: int, margin: int) -> str:
    """Every ``stride``-th pixel, with ``margin`` channels of zeros on both sides."""
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
    return affine(call, Place(prelu_of(call, inner, weight, bent, ".bent"), bent), 1.0, call.array(shift_out))


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
    raise call.fail(f"nn.{type(activation).__name__} after a sum is not supported")
