"""Binary layers: signs of the input, sums of bits, and what a method does around them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rbnn.errors import NotBinary
from rbnn.exporting.arithmetic import add
from rbnn.exporting.draft import Array, TorchValue
from rbnn.exporting.handlers import affine, check_sides, sides
from rbnn.exporting.phases import Phase, Side, side_of
from rbnn.exporting.reductions import mean
from rbnn.exporting.resizing import conv_transpose
from rbnn.exporting.shapes import padded, permuted
from rbnn.exporting.traced_call import Call, Place, pair
from rbnn.functional import as_tensor
from rbnn.methods import BinaryForm
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryConvTranspose2d, BinaryLayer, BinaryLinear
from rbnn.packed.operations import Operation, Shape
from rbnn.padding import Sides, padding_of

Known = dict[tuple[object, ...], str]
"""Existing signs and what leads to them, by their source: layers that read the same values share them."""


def binary_layer(call: Call, x: Place, layer: BinaryLayer, known: Known, shares: int = 0) -> str:
    """``map ⊙ Σ_ij factor_i level_j (signs_i ⊛ sign(x − threshold_j)) + bias``.

    If torch's batch contains several pieces of each image, the first ``shares`` dimensions after the images count
    them."""
    try:
        form = layer.method.binary_form(layer.filters)
    except NotBinary as reason:
        raise call.fail(str(reason)) from None
    if isinstance(layer, BinaryLinear):
        if x.value.dim() == 2:
            return _lowered(call, x, layer, form, known)
        if form.mapped or x.value.dim() < 2:
            raise call.fail(
                f"a layer with one factor per input takes vectors (N, C), got {tuple(x.value.shape)}: flatten first"
            )
        return _turned(call, x, layer, form, known, shares, x.value.dim() - 1)
    if shares:
        steps = *layer.kernel_size, *layer.stride
        if (
            set(steps) != {1}
            or layer.padding not in ("valid", (0,), (0, 0))
            or isinstance(layer, BinaryConvTranspose2d)
            or form.mapped
        ):
            raise call.fail("on several pieces of each image only a 1×1 convolution can be binary: keep this one float")
        return _turned(call, x, layer, form, known, shares, 1 + shares)
    check_sides(call, x, layer.weight)
    if not isinstance(layer, BinaryConvTranspose2d) and layer.padding_mode != "zeros" and layer.pads_like is None:
        x = _padded(call, x, layer, form)
    return _lowered(call, x, layer, form, known)


def _lowered(call: Call, x: Place, layer: BinaryLayer, form: BinaryForm, known: Known, shares: int = 0) -> str:
    signs = _torch_signs(call, x, layer, form, shares)
    if without_means := form.centred and bool(shares):
        form = replace(form, centred=False)
        x = _centred(call, x, shares, signs[0][0], known)
    form = _of_height_one(form) if isinstance(layer, BinaryConv1d) else form
    lowered: _Layer
    if isinstance(layer, BinaryConvTranspose2d):
        lowered = _Transposed(call, x, form, signs, known, without_means, layer)
    else:
        lowered = _Plain(call, x, form, signs, known, without_means, _window(call, x, layer))
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


def _centred(call: Call, x: Place, shares: int, means: Tensor, known: Known) -> Place:
    """x without the mean of each piece of an image, in whose place the signs are relative to 0.  Torch's value stays
    that of x, so that the distance of a sign from its threshold is that in torch."""
    key = x.buffer, tuple(x.value.shape), "without means", shares
    if key not in known:
        dims = [1, *range(2 + shares, x.value.dim())]
        mean_of = replace(call, result=means, name=f"{call.name}.mean")
        minus = affine(call, Place(mean(mean_of, x, dims, True), means), -1.0, 0.0, ".minus", -means)
        difference = replace(call, result=x.value - means, name=f"{call.name}.centred")
        known[key] = add(difference, x, Place(minus, -means))
    return Place(known[key], x.value)


def _turned(
    call: Call, x: Place, layer: BinaryLayer, form: BinaryForm, known: Known, shares: int, channels: int
) -> str:
    """A layer whose channels are another dimension.  It becomes the second and is moved back afterwards."""
    order = [0, channels, *(dim for dim in range(1, x.value.dim()) if dim != channels)]
    key = x.buffer, tuple(x.value.shape), channels  # shared, like the signs, by queries, keys and values
    if key not in known:
        known[key] = permuted(call, x, order, ".turned").buffer
    turned, result = Place(known[key], x.value.permute(*order)), call.result.permute(*order)
    made = Place(_lowered(replace(call, result=result), turned, layer, form, known, shares), result)
    return permuted(call, made, [order.index(dim) for dim in range(len(order))], "").buffer


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
    """How the kernel moves.  Its first ``start`` results in each direction exist only because its padding is wider than
    torch's."""

    steps: dict[str, Any]
    """The attributes kernel, stride, padding and dilation."""
    groups: int
    results: tuple[int, int]
    start: tuple[int, int]


def _window(call: Call, x: Place, layer: BinaryConv1d | BinaryConv2d | BinaryLinear) -> _Window:
    height, width, _ = call.shape_of(x.value)
    if isinstance(layer, BinaryLinear):
        return _Window({"kernel": [1, 1]}, 1, (height, width), (0, 0))
    kernel, stride, dilation = (
        (1,) * (2 - len(each)) + each for each in (layer.kernel_size, layer.stride, layer.dilation)
    )
    padding, start, results = [], [], []
    for side, taps, step, gap, (before, after) in zip(
        (height, width), kernel, stride, dilation, _around(call, x, layer), strict=True
    ):
        # Both sides of the engine's padding are equal.  Where it must be wider, the first outputs are cut off.
        more = -(-max(after - before, 0) // step)
        padding.append(before + more * step)
        start.append(more)
        results.append((side + 2 * padding[-1] - gap * (taps - 1) - 1) // step + 1)
    steps = {"kernel": list(kernel), "stride": list(stride), "padding": padding, "dilation": list(dilation)}
    return _Window(steps, layer.groups, (results[0], results[1]), (start[0], start[1]))


def _around(call: Call, x: Place, layer: BinaryConv1d | BinaryConv2d) -> Sides:
    """The padding with zeros before and after, of height and width."""
    if layer.pads_like is not None:
        found = padding_of(layer, layer.pads_like, x.value.shape[2:])
        if found is None:
            raise call.fail(f"at this size the forward of {layer.pads_like.__name__} does more than pad with zeros")
        return [(0, 0)] * (2 - len(found)) + found
    if layer.padding_mode != "zeros":  # the image has been padded already
        return [(0, 0), (0, 0)]
    edge = layer.padding if isinstance(layer.padding, str) else (0,) * (2 - len(layer.padding)) + layer.padding
    ones = (1,) * (2 - len(layer.kernel_size))
    return sides(edge, [*ones, *layer.kernel_size], [*ones, *layer.dilation])


@dataclass(frozen=True)
class _Layer(ABC):
    """A layer whose operations are being written."""

    call: Call
    x: Place
    form: BinaryForm
    torch_signs: list[tuple[Tensor, Tensor]]
    """Threshold and torch's signs for each plane."""
    known: Known
    without_means: bool
    """Whether the means were subtracted from the buffer of x, but not from its value."""

    @abstractmethod
    def sums(self, bias: Array | float) -> str:
        """Σ factor level (signs ⊛ a) + bias."""

    @abstractmethod
    def magnitudes(self) -> str:
        """XNOR-Net's K: the mean of |x| over the channels that a filter sees, then over the kernel."""

    def positions(self) -> list[str]:
        """Γ, if it exists: one number per position, or per channel and position."""
        factors = self.form.positions
        if factors is None:
            return []
        values = factors[:, :, None] if factors.ndim == 2 else factors.transpose(1, 2, 0)
        height, width, channels = values.shape
        return [self.call.write("constant", {}, {"value": values}, shape=(height, width, channels), part=".positions")]

    def _convolved(self, form: BinaryForm, window: _Window, bias: Array | float, shape: Shape, name: str = "") -> str:
        """The sums of one window, in ``shape``."""
        filters = form.signs.transpose(0, 1, 3, 4, 2) if form.signs.ndim == 5 else form.signs[:, :, None, None]
        # An offset of the inputs adds offset · Σ w over all taps, because padded taps have the lowest level instead of
        # 0.
        totals = np.einsum("mo,mo->o", form.factors, filters.sum((2, 3, 4), dtype=np.float64))
        wide: Shape = (*window.results, shape[2])
        buffer = self._chain(form, list(filters), form.offset * totals + bias, window, wide, name)
        return self._cut(buffer, window, shape, name)

    def _cut(self, buffer: str, window: _Window, shape: Shape, name: str) -> str:
        """The results of a window without those that only a wider padding gives."""
        if window.results == shape[:2]:
            return buffer
        ends = [first + side for first, side in zip(window.start, shape, strict=False)]
        attributes = {"start": [*window.start, 0], "stop": [*ends, shape[2]], "step": [1, 1, 1]}
        return self.call.write("slice", {"x": buffer}, attributes=attributes, shape=shape, part=f"{name}.cut")

    def _chain(
        self, form: BinaryForm, bases: list[Array], shift: Array, window: _Window, shape: Shape, name: str
    ) -> str:
        """A binary convolution for each base and plane, each of which adds to the output of the last one.  Planes share
        the array of a base, so the file contains it once."""
        planes = self._planes()
        attributes = window.steps | {"pad": -1 if form.offset else 0}
        if window.groups > 1:
            attributes["groups"] = window.groups
        residual: dict[str, str] = {}
        buffer, count = "", len(planes) * len(bases)
        for index in range(count):
            base, plane = divmod(index, len(planes))
            part = f"{name}.base{base}.{plane}" if count > 1 else name
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
            level: float | str = "mean" if self.form.centred else 0.0 if self.without_means else float(threshold)
            key = x.buffer, level
            if key not in self.known:
                name = call.name + (f".sign{len(found)}" if len(self.torch_signs) > 1 else ".sign")
                pack = Operation("pack", name, {"x": x.buffer}, attributes={} if level == 0 else {"level": level})
                torch_value = TorchValue(x.value, threshold, signs)
                self.known[key] = call.draft.add(pack, call.shape_of(x.value), torch_value, "bits")
            found.append(self.known[key])
        return found

    def _absolute(self) -> str:
        """|x|"""
        absolute, shape = {"activation": ["abs"]}, self.call.shape_of(self.x.value)
        return self.call.write("activation", {"x": self.x.buffer}, attributes=absolute, shape=shape, part=".abs")

    def _over_channels(self, size: str) -> str:
        """The mean of |x|, one map for all filters."""
        height, width, _ = self.call.shape_of(self.x.value)
        return self.call.write("mean", {"x": size}, attributes={"over": "c"}, shape=(height, width, 1), part=".mean")


@dataclass(frozen=True)
class _Plain(_Layer):
    window: _Window

    def sums(self, bias: Array | float) -> str:
        return self._convolved(self.form, self.window, bias, self.call.shape_of(self.call.result))

    def magnitudes(self) -> str:
        call, groups, size = self.call, self.window.groups, self._absolute()
        height, width, filters = call.shape_of(call.result)
        seen, kernel = call.shape_of(self.x.value)[2] // groups, self.window.steps["kernel"]
        if groups == 1:
            size = self._over_channels(size)
            seen = filters = 1
        box = np.full((filters, *kernel, seen), 1 / (seen * kernel[0] * kernel[1]))
        wide, attributes = (*self.window.results, filters), self.window.steps | {"groups": groups}
        made = call.write("float_conv", {"x": size}, {"weight": box}, attributes, shape=wide, part=".k")
        return self._cut(made, self.window, (height, width, filters), ".k")


@dataclass(frozen=True)
class _Transposed(_Layer):
    layer: BinaryConvTranspose2d

    def sums(self, bias: Array | float) -> str:
        """The phases as plain convolutions, put side by side."""
        call, layer = self.call, self.layer
        (height, width, _), (high, wide, outputs) = call.shape_of(self.x.value), call.shape_of(call.result)
        how = layer.kernel_size, layer.stride, pair(layer.padding), layer.dilation  # type: ignore[arg-type]
        down, right = (
            side_of(inputs, results, *each)
            for inputs, results, *each in zip((height, width), (high, wide), *how, strict=True)
        )
        pairs = [(one, two) for one in down.phases for two in right.phases]
        batches = [pairs] if down.alike and right.alike else [[pair] for pair in pairs]
        shift = np.broadcast_to(bias, outputs)
        parts = [
            self._phases(batch, shift, (down.rows, right.rows, len(batch) * outputs), f".phase{index}")
            for index, batch in enumerate(batches)
        ]
        return self._side_by_side(parts, down, right)

    def _phases(self, pairs: list[tuple[Phase, Phase]], shift: Array, shape: Shape, name: str) -> str:
        """Phases of the same window, in rows and columns, as one convolution with the filters of each."""
        signs = np.concatenate(
            [self.form.signs[:, :, :, one.taps or (0,)][..., two.taps or (0,)] for one, two in pairs], 1
        )
        reached = np.concatenate([self.form.factors * bool(one.taps and two.taps) for one, two in pairs], 1)
        windows = [phase.window for phase in pairs[0]]
        steps = {
            "kernel": [each.taps for each in windows], "padding": [each.padding for each in windows],
            "dilation": [each.dilation for each in windows],
        }  # fmt: skip
        window = _Window(steps, 1, (windows[0].results, windows[1].results), (windows[0].start, windows[1].start))
        form = replace(self.form, signs=signs, factors=reached)
        return self._convolved(form, window, np.tile(shift, len(pairs)), shape, name)

    def _side_by_side(self, parts: list[str], down: Side, right: Side) -> str:
        """(rows, columns, phases · outputs) → (rows · phases, columns · phases, outputs), without what torch cuts
        off."""
        call, steps = self.call, self.layer.stride
        high, wide, outputs = call.shape_of(call.result)
        buffer = parts[0]
        if len(parts) > 1:
            inputs = {f"x{index}": part for index, part in enumerate(parts)}
            shape = (down.rows, right.rows, len(parts) * outputs)
            buffer = call.write("concat", inputs, shape=shape, part=".phases")
        full = (down.rows * steps[0], right.rows * steps[1], outputs)
        if steps != (1, 1):
            moved = {"sides": [down.rows, right.rows, *steps, outputs], "order": [0, 2, 1, 3, 4]}
            buffer = call.write("permute", {"x": buffer}, attributes=moved, shape=full, part=".pixels")
        if full != (high, wide, outputs):
            stop = [down.cut + high, right.cut + wide, outputs]
            cut = {"start": [down.cut, right.cut, 0], "stop": stop, "step": [1, 1, 1]}
            buffer = call.write("slice", {"x": buffer}, attributes=cut, shape=(high, wide, outputs), part=".cut")
        return buffer

    def magnitudes(self) -> str:
        layer, value = self.layer, self.x.value.abs().mean(1, keepdim=True)
        mean = Place(self._over_channels(self._absolute()), value)
        box = torch.full((1, 1, *layer.kernel_size), 1 / prod(layer.kernel_size))
        call = replace(self.call, name=f"{self.call.name}.k", result=layer._linear(value, box))
        return conv_transpose(call, mean, box, None, layer.stride, layer.padding, 0, 1, layer.dilation)


def _mean_of(value: Tensor, shares: int = 0) -> Tensor:
    """The mean of each image, or of each of its pieces, computed in double and rounded to float32."""
    dims = (1, *range(2 + shares, value.dim()))
    return value.double().mean(dims, keepdim=True).float()


def _activation(layer: BinaryLayer, value: Tensor, shares: int) -> Tensor:
    """What the method makes of the input, with its dimensions in torch's order, which matters for rounding."""
    place = value.dim() - 1 if isinstance(layer, BinaryLinear) else 1 + shares
    pieces = value.movedim(1, place)
    return layer.method.activation(pieces.flatten(0, shares)).reshape(pieces.shape).movedim(place, 1)


def _torch_signs(
    call: Call, x: Place, layer: BinaryLayer, form: BinaryForm, shares: int
) -> list[tuple[Tensor, Tensor]]:
    """Each threshold and the signs of x at this threshold in torch's layer.  Raises unless ``binary_form`` agrees with
    the method's ``weight`` and ``activation``."""
    method = type(layer.method).__name__
    with torch.no_grad():
        weight = as_tensor(layer.method.weight(layer.filters)).double().numpy()
        values = _activation(layer, x.value, shares)
    packed = np.einsum("mo...,mo->o...", form.signs.astype(np.float64), form.factors)
    if not np.allclose(packed, weight, rtol=1e-5, atol=1e-6 * float(np.abs(weight).max(initial=0.0))):
        raise call.fail(f"binary_form of {method} does not match the weights of its method")
    thresholds = (
        [_mean_of(x.value, shares)] if form.centred else [torch.tensor(each).float() for each in form.thresholds]
    )
    signs = [torch.where(x.value > threshold, 1.0, -1.0) for threshold in thresholds]
    total = form.offset + sum(level * each for level, each in zip(form.levels, signs, strict=True))
    same = (total - values).abs() <= 1e-5 * max(map(abs, form.levels))
    if float(same.double().mean()) < 0.999:  # a few values may be at a threshold
        raise call.fail(f"binary_form of {method} does not match the inputs of its method")
    if len(signs) == 1:  # torch may round the mean of an image differently
        signs = [torch.where(values > form.offset, 1.0, -1.0) * (1 if form.levels[0] > 0 else -1)]
    return list(zip(thresholds, signs, strict=True))
