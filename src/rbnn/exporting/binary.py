"""Binary layers: signs of the input, sums of bits, and what a method does around them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rbnn.errors import NotBinary
from rbnn.exporting.draft import Array, TorchValue
from rbnn.exporting.handlers import affine, check_sides, sides
from rbnn.exporting.shapes import padded, permuted
from rbnn.exporting.traced_call import Call, Place
from rbnn.functional import as_tensor
from rbnn.methods import BinaryForm
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryLayer, BinaryLinear
from rbnn.packed.operations import Operation, Shape

Known = dict[tuple[object, ...], str]
"""Existing signs, by their source: layers that read the same values share them."""


def binary_layer(call: Call, x: Place, layer: BinaryLayer, known: Known) -> str:
    """``map ⊙ Σ_ij factor_i level_j (signs_i ⊛ sign(x − threshold_j)) + bias``."""
    try:
        form = layer.method.binary_form(layer.weight)
    except NotBinary as reason:
        raise call.fail(str(reason)) from None
    if isinstance(layer, BinaryLinear):
        if x.value.dim() == 2:
            return _lowered(call, x, layer, form, known)
        if form.mapped or x.value.dim() < 2:
            raise call.fail(
                f"with factors for each input it takes vectors (N, C), got {tuple(x.value.shape)}: flatten first"
            )
        return _over_the_last(call, x, layer, form, known)
    check_sides(call, x, layer.weight)
    if layer.padding_mode != "zeros":
        x = _padded(call, x, layer, form)
    return _lowered(call, x, layer, form, known)


def _lowered(call: Call, x: Place, layer: BinaryLayer, form: BinaryForm, known: Known) -> str:
    signs = _torch_signs(call, x, layer, form)
    form = _of_height_one(form) if isinstance(layer, BinaryConv1d) else form
    lowered = _Layer(call, x, form, _window(call, layer, form), signs, known)
    y: Tensor = call.result
    if not form.mapped:
        buffer = lowered.sums(0.0 if layer.bias is None else call.array(layer.bias))
        call.draft.torch_values[buffer] = TorchValue(y)
        return buffer
    buffer = lowered.sums(0.0)
    y = y if layer.bias is None else y - layer.bias.detach().reshape(-1, *[1] * (y.dim() - 2))
    maps = [*([lowered.magnitudes()] if form.magnitudes else []), *lowered.positions()]
    for number, factors in enumerate(maps):
        shape = None if factors is maps[-1] else call.shape_of(y)
        buffer = call.write("multiply", {"a": buffer, "b": factors}, value=y, shape=shape, part=f".map{number or ''}")
    return buffer if layer.bias is None else affine(call, Place(buffer, y), 1.0, call.array(layer.bias))


def _over_the_last(call: Call, x: Place, layer: BinaryLinear, form: BinaryForm, known: Known) -> str:
    """A linear layer over the last of several dimensions.  The dimension becomes the channels and is moved back
    afterwards."""
    last = x.value.dim() - 1
    turned = permuted(call, x, [0, last, *range(1, last)], ".turned")
    result = call.result.permute(0, last, *range(1, last))
    made = Place(_lowered(replace(call, result=result), turned, layer, form, known), result)
    return permuted(call, made, [0, *range(2, last + 1), 1], "").buffer


def _padded(call: Call, x: Place, layer: BinaryConv1d | BinaryConv2d, form: BinaryForm) -> Place:
    """Padding with values of the image: the signs of the padded image."""
    if form.centred or form.magnitudes:
        raise call.fail(f"padding_mode {layer.padding_mode!r} with centred inputs is not supported: pad with zeros")
    twice = layer._reversed_padding_repeated_twice
    value = F.pad(x.value, twice, mode=layer.padding_mode)
    around = [(twice[at], twice[at + 1]) for at in range(len(twice) - 2, -1, -2)]
    return Place(padded(call, x, [(0, 0), *around], layer.padding_mode, 0.0, value, ".pad"), value)


def _of_height_one(form: BinaryForm) -> BinaryForm:
    """A layer on signals as a layer on images."""
    positions = None if form.positions is None else form.positions[..., None, :]
    return replace(form, signs=form.signs[..., None, :], positions=positions)


@dataclass(frozen=True)
class _Window:
    """How the kernel moves.  ``cut`` is the number of output pixels that exist only because the padding is wider than
    torch's."""

    steps: dict[str, Any]
    """The attributes kernel, stride, padding and dilation."""
    groups: int
    cut: list[int]


def _window(call: Call, layer: BinaryLayer, form: BinaryForm) -> _Window:
    if isinstance(layer, BinaryLinear):
        return _Window({"kernel": [1, 1]}, 1, [0, 0])
    kernel, stride, dilation = layer.kernel_size, layer.stride, layer.dilation
    edge = layer.padding if layer.padding_mode == "zeros" else "valid"  # otherwise the image has been padded already
    if isinstance(layer, BinaryConv1d):
        kernel, stride, dilation = ((1, *each) for each in (kernel, stride, dilation))
        edge = edge if isinstance(edge, str) else (0, *edge)
    around = sides(edge, list(kernel), list(dilation))
    # "same" with an even kernel: equal padding on both sides, and the first outputs are cut off.
    padding = [max(both) for both in around]
    cut = [after - before for before, after in around]
    if any(cut) and form.magnitudes:
        raise call.fail(
            "XNOR-Net's K with padding 'same' and an even kernel is not supported: give the padding as numbers"
        )
    steps = {"kernel": list(kernel), "stride": list(stride), "padding": padding, "dilation": list(dilation)}
    return _Window(steps, layer.groups, cut)


@dataclass(frozen=True)
class _Layer:
    """A layer whose operations are being written."""

    call: Call
    x: Place
    form: BinaryForm
    window: _Window
    torch_signs: list[tuple[Tensor, Tensor]]
    """Threshold and torch's signs for each plane."""
    known: Known

    def sums(self, bias: Array | float) -> str:
        """Σ factor level (signs ⊛ a) + bias, without the outputs of a wider padding."""
        call, cut = self.call, self.window.cut
        signs = self.form.signs
        filters = signs.transpose(0, 1, 3, 4, 2) if signs.ndim == 5 else signs[:, :, None, None]
        height, width, channels = call.shape_of(call.result)
        wide: Shape = height + cut[0], width + cut[1], channels
        # An offset of the inputs adds offset · Σ w over all taps, because padded taps have the lowest level instead of
        # 0.
        totals = np.einsum("mo,mo->o", self.form.factors, filters.sum((2, 3, 4), dtype=np.float64))
        buffer = self._chain(list(filters), self.form.offset * totals + bias, wide)
        if any(cut):
            attributes = {"start": [*cut, 0], "stop": list(wide), "step": [1, 1, 1]}
            shape = (height, width, channels)
            buffer = call.write("slice", {"x": buffer}, attributes=attributes, shape=shape, part=".cut")
        return buffer

    def _chain(self, bases: list[Array], shift: Array, shape: Shape) -> str:
        """A binary convolution for each base and plane, each of which adds to the output of the last one.  Planes share
        the array of a base, so the file contains it once."""
        planes, form = self._planes(), self.form
        attributes = self.window.steps | {"pad": -1 if form.offset else 0}
        if self.window.groups > 1:
            attributes["groups"] = self.window.groups
        residual: dict[str, str] = {}
        buffer, count = "", len(planes) * len(bases)
        for index in range(count):
            base, plane = divmod(index, len(planes))
            part = f".base{base}.{plane}" if count > 1 else ""
            tensors = {"weight": bases[base], "scale": form.factors[base] * form.levels[plane]}
            if index == count - 1:
                tensors["shift"] = shift
            inputs = {"x": planes[plane]} | residual
            buffer = self.call.write("binary_conv", inputs, tensors, dict(attributes), shape=shape, part=part)
            residual = {"residual": buffer}
        return buffer

    def _planes(self) -> list[str]:
        """The bits of each threshold."""
        call, x = self.call, self.x
        found: list[str] = []
        for threshold, signs in self.torch_signs:
            level: float | str = "mean" if self.form.centred else float(threshold)
            key = x.buffer, level
            if key not in self.known:
                name = call.name + (f".sign{len(found)}" if len(self.torch_signs) > 1 else ".sign")
                pack = Operation("pack", name, {"x": x.buffer}, attributes={} if level == 0 else {"level": level})
                torch_value = TorchValue(x.value, threshold, signs)
                self.known[key] = call.draft.add(pack, call.shape_of(x.value), torch_value, "bits")
            found.append(self.known[key])
        return found

    def magnitudes(self) -> str:
        """XNOR-Net's K: the mean of |x| over the channels that a filter sees, then over the kernel."""
        call, groups = self.call, self.window.groups
        height, width, channels = call.shape_of(self.x.value)
        absolute = {"activation": ["abs"]}
        size = call.write(
            "activation", {"x": self.x.buffer}, attributes=absolute, shape=(height, width, channels), part=".abs"
        )
        out_height, out_width, filters = call.shape_of(call.result)
        seen, kernel = channels // groups, self.window.steps["kernel"]
        if groups == 1:  # the same map for all filters
            size = call.write("mean", {"x": size}, attributes={"over": "c"}, shape=(height, width, 1), part=".mean")
            seen = filters = 1
        box = np.full((filters, *kernel, seen), 1 / (seen * kernel[0] * kernel[1]))
        shape, attributes = (out_height, out_width, filters), self.window.steps | {"groups": groups}
        return call.write("float_conv", {"x": size}, {"weight": box}, attributes, shape=shape, part=".k")

    def positions(self) -> list[str]:
        """Γ, if it exists: one number per position, or per channel and position."""
        factors = self.form.positions
        if factors is None:
            return []
        values = factors[:, :, None] if factors.ndim == 2 else factors.transpose(1, 2, 0)
        height, width, channels = values.shape
        return [self.call.write("constant", {}, {"value": values}, shape=(height, width, channels), part=".positions")]


def _mean_of(value: Tensor) -> Tensor:
    """The mean of each image, computed in double and rounded to float32."""
    return value.double().mean(tuple(range(1, value.dim())), keepdim=True).float()


def _torch_signs(call: Call, x: Place, layer: BinaryLayer, form: BinaryForm) -> list[tuple[Tensor, Tensor]]:
    """Each threshold and the signs of x at this threshold in torch's layer.  Raises unless ``binary_form`` agrees with
    the method's ``weight`` and ``activation``."""
    method = type(layer.method).__name__
    with torch.no_grad():
        weight = as_tensor(layer.method.weight(layer.weight)).double().numpy()
        values = layer.method.activation(x.value)
    packed = np.einsum("mo...,mo->o...", form.signs.astype(np.float64), form.factors)
    if not np.allclose(packed, weight, rtol=1e-5, atol=1e-6 * float(np.abs(weight).max(initial=0.0))):
        raise call.fail(f"binary_form of {method} does not match the weights of its method")
    thresholds = [_mean_of(x.value)] if form.centred else [torch.tensor(each).float() for each in form.thresholds]
    signs = [torch.where(x.value > threshold, 1.0, -1.0) for threshold in thresholds]
    total = form.offset + sum(level * each for level, each in zip(form.levels, signs, strict=True))
    same = (total - values).abs() <= 1e-5 * max(map(abs, form.levels))
    if float(same.double().mean()) < 0.999:  # a few values may be at a threshold
        raise call.fail(f"binary_form of {method} does not match the inputs of its method")
    if len(signs) == 1:  # torch may round the mean of an image differently
        signs = [torch.where(values > form.offset, 1.0, -1.0) * (1 if form.levels[0] > 0 else -1)]
    return list(zip(thresholds, signs, strict=True))
