"""Upsampling, transposed convolution and windows: handlers like those of ``rbnn.exporting.handlers``."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from rbnn.exporting.draft import Array
from rbnn.exporting.handlers import both_sides, constant
from rbnn.exporting.pools import adaptive_avg_pool
from rbnn.exporting.selections import taken
from rbnn.exporting.shapes import permuted, reshaped
from rbnn.exporting.traced_call import Call, Place, pair

MODES = {
    "nearest": "nearest", "nearest-exact": "nearest_exact", "linear": "bilinear", "bilinear": "bilinear",
    "bicubic": "bicubic",
}  # fmt: skip


def interpolate(
    call: Call,
    x: Place,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> str:
    if mode == "area":
        return adaptive_avg_pool(call, x, size)
    if mode not in MODES or antialias:
        raise call.fail(f"only the modes {', '.join(MODES)} are supported, without antialias")
    before, after = call.shape_of(x.value), call.shape_of(call.result)
    if before == after:
        return x.buffer
    attributes: dict[str, Any] = {"size": list(after[:2]), "mode": MODES[mode]}
    if align_corners:
        attributes["align"] = True
    factors: list[float] = []
    if scale_factor is not None:
        factors = [float(each) for each in scale_factor] if isinstance(scale_factor, tuple | list) else [
            float(scale_factor)
        ] * (x.value.dim() - 2)  # fmt: skip
        factors = [1.0] * (2 - len(factors)) + factors
        # Torch uses the factor itself, which matters if the size was rounded down.
        if any(factor % 1 for factor in factors) and not recompute_scale_factor and not align_corners:
            attributes["scale"] = factors
    made = call.write("resize", {"x": x.buffer}, attributes=attributes)
    if factors:
        call.draft.factors[made] = factors
    return made


def conv_transpose_module(
    call: Call,
    x: Place,
    output_size: Any = None,
    *,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    groups: int,
    dilation: Any,
) -> str:
    return conv_transpose(call, x, weight, bias, stride, padding, 0, groups, dilation)


def conv_transpose(
    call: Call,
    x: Place,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> str:
    """A plain convolution that computes, for each pixel of the input, ``stride``² pixels of the output as channels.
    They are interleaved, and the padding is cut off.

        y[q s + r] = Σ_m x[q − m] w[m s + r]        r = 0 … s − 1, for each side
    """
    filters = constant(call, weight, "weight")
    filters = filters if filters.dim() == 4 else filters[:, :, None]
    steps, gaps, around = both_sides(x, stride, 1), both_sides(x, dilation, 1), both_sides(x, padding, 0)
    (height, width, _), (high, wide, outputs) = call.shape_of(x.value), call.shape_of(call.result)
    values = _without_gaps(call.array(filters), gaps)
    taps = [
        max(-(-side // step), -(-(edge + wanted) // step) - given + 1)
        for side, step, edge, wanted, given in zip(
            values.shape[2:], steps, around, (high, wide), (height, width), strict=True
        )
    ]
    phases = _phases(values, steps, taps, groups)
    tensors = {"weight": phases}
    if bias is not None:
        tensors["shift"] = np.repeat(call.array(constant(call, bias, "bias")), steps[0] * steps[1])
    rows, columns = height + taps[0] - 1, width + taps[1] - 1
    attributes = {"kernel": taps, "padding": [taps[0] - 1, taps[1] - 1], "groups": int(groups)}
    shape = (rows, columns, outputs * steps[0] * steps[1])
    whole = steps == [1, 1] and around == [0, 0] and (rows, columns) == (high, wide)
    named = {"shape": None, "part": ""} if whole else {"shape": shape, "part": ".phases"}
    buffer = call.write("float_conv", {"x": x.buffer}, tensors, attributes, **named)  # type: ignore[arg-type]
    full = (rows * steps[0], columns * steps[1], outputs)
    cropped = full[:2] != (high, wide)
    if steps != [1, 1]:
        moved = {"sides": [rows, columns, outputs, *steps], "order": [0, 3, 1, 4, 2]}
        part = ".pixels" if cropped else ""
        buffer = call.write("permute", {"x": buffer}, attributes=moved, shape=full if cropped else None, part=part)
    if cropped:
        cut = {"start": [*around, 0], "stop": [around[0] + high, around[1] + wide, outputs], "step": [1, 1, 1]}
        buffer = call.write("slice", {"x": buffer}, attributes=cut)
    return buffer


def _without_gaps(filters: Array, gaps: list[int]) -> Array:
    """A dilated kernel with explicit zeros."""
    sides = [gap * (side - 1) + 1 for side, gap in zip(filters.shape[2:], gaps, strict=True)]
    values = np.zeros((*filters.shape[:2], *sides))
    values[:, :, :: gaps[0], :: gaps[1]] = filters
    return values


def _phases(values: Array, steps: list[int], taps: list[int], groups: int) -> Array:
    """(inputs, outputs of a group, kh, kw) → (outputs · steps, taps, inputs of a group)"""
    inputs, each = values.shape[:2]
    full = np.zeros((inputs, each, taps[0] * steps[0], taps[1] * steps[1]))
    full[:, :, : values.shape[2], : values.shape[3]] = values
    apart = full.reshape(groups, inputs // groups, each, taps[0], steps[0], taps[1], steps[1])
    turned = apart[:, :, :, ::-1, :, ::-1]
    # groups, outputs, steps, taps, inputs
    ordered = turned.transpose(0, 2, 4, 6, 3, 5, 1)
    return ordered.reshape(groups * each * steps[0] * steps[1], *taps, inputs // groups)


# Windows side by side


def unfold(call: Call, x: Place, *how: Any, **named: Any) -> str:
    """torch.nn.functional.unfold, or the method of a tensor, which adds a dimension."""
    if call.result.dim() == x.value.dim() + 1:
        return _along_one(call, x, *how, **named)
    return _windows(call, x, *how, **named)


def _along_one(call: Call, x: Place, dimension: int, size: int, step: int) -> str:
    """Windows of one dimension, each in a new last dimension."""
    dim = int(dimension) % x.value.dim()
    count = call.result.shape[dim]
    found = taken(call, x, dim, [at * step + place for at in range(count) for place in range(size)], ".taken")
    apart = found.value.reshape(*found.value.shape[:dim], count, size, *found.value.shape[dim + 1 :])
    windows = Place(reshaped(call, found, apart, ".apart"), apart)
    order = [each for each in range(apart.dim()) if each != dim + 1]
    return permuted(call, windows, [*order, dim + 1], "").buffer


def _windows(call: Call, x: Place, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> str:
    """Each pixel of each window becomes a channel, by filters that see one pixel of one channel."""
    kernel, channels = pair(kernel_size), x.value.shape[1]
    steps = {"kernel": kernel, "stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation)}
    (height, width, _) = call.shape_of(x.value)
    sides = [
        (side + 2 * edge - gap * (tap - 1) - 1) // step + 1
        for side, tap, step, edge, gap in zip((height, width), *steps.values(), strict=True)
    ]
    one = np.eye(kernel[0] * kernel[1]).reshape(-1, *kernel, 1)
    taps = call.result.reshape(*call.result.shape[:2], *sides)
    attributes = steps | {"groups": channels}
    made = call.write(
        "float_conv", {"x": x.buffer}, {"weight": np.tile(one, (channels, 1, 1, 1))}, attributes, value=taps,
        part=".windows",
    )  # fmt: skip
    return reshaped(call, Place(made, taps), call.result)


def fold(
    call: Call, x: Place, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> str:
    """Add windows back into the image, where they may overlap: a transposed convolution."""
    kernel, edges, steps, gaps = pair(kernel_size), pair(padding), pair(stride), pair(dilation)
    sides = [
        (side + 2 * edge - gap * (tap - 1) - 1) // step + 1
        for side, tap, step, edge, gap in zip(pair(output_size), kernel, steps, edges, gaps, strict=True)
    ]
    taps = x.value.reshape(*x.value.shape[:2], *sides)
    windows = Place(reshaped(call, x, taps, ".windows"), taps)
    channels = call.result.shape[1]
    one = torch.eye(kernel[0] * kernel[1]).reshape(-1, 1, *kernel).repeat(channels, 1, 1, 1)
    return conv_transpose(call, windows, one, None, steps, edges, 0, channels, gaps)
