"""Binary layers: signs of the input, sums of bits, and what a method does around them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rbnn.errors import NotBinary
from rbnn.exporting.call import Call, Place, pair
from rbnn.exporting.draft import Array, Meaning, Step
from rbnn.exporting.operations import affine, sides
from rbnn.kinds import Shape
from rbnn.methods import BinaryForm
from rbnn.nn import BinaryConv2d, BinaryLayer

Bits = dict[tuple[object, ...], str]
"""Signs that are there already, by where they come from: layers that read one picture share them."""


@dataclass(frozen=True)
class Window:
    """How the kernel moves.  ``cut``: pixels of the output that only a padding wider than torch's brings forth."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    cut: list[int]


def binary_layer(call: Call, x: Place, layer: BinaryLayer, known: Bits) -> str:
    """``map ⊙ Σ_ij factor_i level_j (signs_i ⊛ sign(x − threshold_j)) + constant + bias``."""
    try:
        form = layer.method.binary_form(layer.weight)
    except NotBinary as reason:
        raise call.fail(str(reason)) from None
    thresholds, signs = _torch_signs(call, x, layer, form)
    window = _window(call, layer, form)
    filters = form.signs.transpose(0, 1, 3, 4, 2) if form.signs.ndim == 5 else form.signs[:, :, None, None]
    constant = form.offset * np.einsum("mo,mo->o", form.factors, filters.sum((2, 3, 4), dtype=np.float64))
    mapped = form.magnitudes or form.positions is not None
    bias = 0.0 if layer.bias is None else call.array(layer.bias)
    y: Tensor = call.result
    parts, each = [], len(filters[0]) // window.groups
    for group in range(window.groups):
        mine = slice(group * each, (group + 1) * each)
        planes = _planes(call, x, form, list(zip(thresholds, signs, strict=True)), known, group, window.groups)
        shift = constant[mine] + (0.0 if mapped else np.broadcast_to(bias, len(constant))[mine])
        meaning = None if mapped or any(window.cut) or window.groups > 1 else Meaning(y)
        bases = [base[mine] for base in filters]
        parts.append(_sum(call, planes, bases, form.factors[:, mine], form, shift, window, meaning, f".{group}"))
    buffer = parts[0]
    height, width, channels = call.shape_of(y)
    if window.groups > 1:
        shape = height + window.cut[0], width + window.cut[1], channels
        buffer = call.hidden("concat", {f"x{i}": part for i, part in enumerate(parts)}, shape, part=".groups")
    if any(window.cut):
        stop = [height + window.cut[0], width + window.cut[1], channels]
        attributes = {"start": [*window.cut, 0], "stop": stop, "step": [1, 1, 1]}
        buffer = call.hidden("slice", {"x": buffer}, (height, width, channels), attributes=attributes, part=".cut")
    if not mapped:
        call.draft.meanings.setdefault(buffer, Meaning(y))
        return buffer
    y = y if layer.bias is None else y - layer.bias.detach().reshape(-1, *[1] * (y.dim() - 2))
    kinds = [_magnitudes(call, x, window)] if form.magnitudes else []
    kinds += [] if form.positions is None else [_positions(call, form.positions)]
    for number, factors in enumerate(kinds):
        last = number == len(kinds) - 1
        step = Step("multiply", f"{call.name}.map{number or ''}", {"a": buffer, "b": factors})
        buffer = call.draft.add(step, "float", (height, width, channels), Meaning(y) if last else None)
    return buffer if layer.bias is None else affine(call, Place(buffer, y), 1.0, bias)


def _window(call: Call, layer: BinaryLayer, form: BinaryForm) -> Window:
    if not isinstance(layer, BinaryConv2d):
        return Window([1, 1], [1, 1], [0, 0], [1, 1], 1, [0, 0])
    if layer.padding_mode != "zeros":
        raise call.fail(f"padding_mode {layer.padding_mode!r} is not supported")
    kernel, dilation = list(layer.kernel_size), pair(layer.dilation)
    around = sides(layer.padding, kernel, dilation)
    # "same" with an even kernel: as wide before as behind, and the first outputs cut off.
    padding = [max(both) for both in around]
    cut = [after - before for before, after in around]
    if any(cut) and form.magnitudes:
        raise call.fail("XNOR-Net's K with padding 'same' and an even kernel is not supported: pad by numbers")
    return Window(kernel, pair(layer.stride), padding, dilation, layer.groups, cut)


def _planes(
    call: Call,
    x: Place,
    form: BinaryForm,
    torch_signs: list[tuple[Tensor, Tensor]],
    known: Bits,
    group: int,
    groups: int,
) -> list[str]:
    """The bits of each threshold, of the channels of one group."""
    place = _channels(call, x, form.centred, known, group, groups) if groups > 1 else x
    each = x.value.shape[1] // groups
    mine = slice(group * each, (group + 1) * each)
    found: list[str] = []
    for threshold, signs in torch_signs:
        level: float | str = "mean" if form.centred else float(threshold)
        if form.centred and groups > 1:  # the mean is subtracted already
            level, threshold = 0.0, torch.zeros(())
        key = place.buffer, level
        if key not in known:
            name = call.name + (f".sign{len(found)}" if len(torch_signs) > 1 else ".sign")
            step = Step("pack", name, {"x": place.buffer}, attributes={} if level == 0 else {"level": level})
            meaning = Meaning(place.value, threshold, signs[:, mine])
            known[key] = call.draft.add(step, "bits", call.shape_of(place.value), meaning)
        found.append(known[key])
    return found


def _mean_of(value: Tensor) -> Tensor:
    """The mean of each picture, in double, rounded to float32."""
    return value.double().mean(tuple(range(1, value.dim())), keepdim=True).float()


def _channels(call: Call, x: Place, centred: bool, known: Bits, group: int, groups: int) -> Place:
    """The channels of one group; minus the mean of the whole picture, where the method wants that."""
    height, width, channels = call.shape_of(x.value)
    value, buffer = x.value, x.buffer
    if centred:
        value = value - _mean_of(value)
        key: tuple[object, ...] = (x.buffer, "centred")
        if key not in known:
            rows = call.hidden("mean", {"x": buffer}, (1, 1, channels), attributes={"over": "hw"}, part=".rows")
            mean = call.hidden("mean", {"x": rows}, (1, 1, 1), attributes={"over": "c"}, part=".mean")
            turned: dict[str, Array] = {"scale": np.array([-1.0]), "shift": np.array([0.0])}
            minus = call.hidden("affine", {"x": mean}, (1, 1, 1), turned, part=".minus")
            step = Step("add", f"{call.name}.centred", {"a": buffer, "b": minus})
            known[key] = call.draft.add(step, "float", (height, width, channels), Meaning(value))
        buffer = known[key]
    each = channels // groups
    first, last = group * each, (group + 1) * each
    key = buffer, "channels", first, last
    if key not in known:
        attributes = {"start": [0, 0, first], "stop": [height, width, last], "step": [1, 1, 1]}
        step = Step("slice", f"{call.name}.channels{group}", {"x": buffer}, attributes=attributes)
        known[key] = call.draft.add(step, "float", (height, width, each), Meaning(value[:, first:last]))
    return Place(known[key], value[:, first:last])


def _sum(
    call: Call,
    planes: list[str],
    bases: list[Array],
    factors: Array,
    form: BinaryForm,
    shift: Array,
    window: Window,
    meaning: Meaning | None,
    group: str,
) -> str:
    """A chain of binary convolutions, one for each base and plane, each adding to the last one's output."""
    height, width, _ = call.shape_of(call.result)
    shape: Shape = height + window.cut[0], width + window.cut[1], len(bases[0])
    attributes = {
        "kernel": window.kernel, "stride": window.stride, "padding": window.padding, "dilation": window.dilation,
        "pad": -1 if form.offset else 0,
    }  # fmt: skip
    residual: dict[str, str] = {}
    buffer, count = "", len(planes) * len(bases)
    for index in range(count):
        base, plane = divmod(index, len(planes))
        name = call.name + (group if window.groups > 1 else "") + (f".base{base}.{plane}" if count > 1 else "")
        tensors = {"weight": bases[base], "scale": factors[base] * form.levels[plane]}
        last = index == count - 1
        if last:
            tensors["shift"] = shift
        step = Step("binary_conv", name, {"x": planes[plane]} | residual, {}, tensors, dict(attributes))
        buffer = call.draft.add(step, "float", shape, meaning if last else None)
        residual = {"residual": buffer}
    return buffer


def _magnitudes(call: Call, x: Place, window: Window) -> str:
    """XNOR-Net's K: the mean of |x| over the channels that a filter sees, then over the kernel."""
    height, width, channels = call.shape_of(x.value)
    absolute = {"activation": ["abs"]}
    size = call.hidden("activation", {"x": x.buffer}, (height, width, channels), attributes=absolute, part=".abs")
    out_height, out_width, filters = call.shape_of(call.result)
    seen, kernel = channels // window.groups, window.kernel
    if window.groups == 1:  # one map for all filters
        size = call.hidden("mean", {"x": size}, (height, width, 1), attributes={"over": "c"}, part=".mean")
        seen = filters = 1
    box = np.full((filters, *kernel, seen), 1 / (seen * kernel[0] * kernel[1]))
    attributes = {
        "kernel": kernel, "stride": window.stride, "padding": window.padding, "dilation": window.dilation,
        "groups": window.groups,
    }  # fmt: skip
    return call.hidden(
        "float_conv", {"x": size}, (out_height, out_width, filters), {"weight": box}, attributes, part=".k"
    )


def _positions(call: Call, factors: Array) -> str:
    """Γ: one number per position, or per channel and position."""
    values = factors[:, :, None] if factors.ndim == 2 else factors.transpose(1, 2, 0)
    height, width, channels = values.shape
    return call.hidden("constant", {}, (height, width, channels), {"value": values}, part=".positions")


def _torch_signs(call: Call, x: Place, layer: BinaryLayer, form: BinaryForm) -> tuple[list[Tensor], list[Tensor]]:
    """Thresholds and the signs that torch's layer makes of x.  Raises unless ``binary_form`` says the same as the
    method's ``weight`` and ``activation``."""
    method = type(layer.method).__name__
    with torch.no_grad():
        weight = layer.method.weight(layer.weight).double().numpy()
        values = layer.method.activation(x.value)
    packed = np.einsum("mo...,mo->o...", form.signs.astype(np.float64), form.factors)
    if not np.allclose(packed, weight, rtol=1e-5, atol=1e-6 * float(np.abs(weight).max(initial=0.0))):
        raise call.fail(f"binary_form of {method} does not give the weights of its method")
    thresholds = [_mean_of(x.value)] if form.centred else [torch.tensor(each).float() for each in form.thresholds]
    signs = [torch.where(x.value > threshold, 1.0, -1.0) for threshold in thresholds]
    total = form.offset + sum(level * each for level, each in zip(form.levels, signs, strict=True))
    same = (total - values).abs() <= 1e-5 * max(map(abs, form.levels))
    if float(same.double().mean()) < 0.999:  # a few values may stand at a threshold
        raise call.fail(f"binary_form of {method} does not give the inputs of its method")
    if len(signs) == 1:  # the mean of a picture may be rounded otherwise in torch
        signs = [torch.where(values > form.offset, 1.0, -1.0) * (1 if form.levels[0] > 0 else -1)]
    return thresholds, signs
