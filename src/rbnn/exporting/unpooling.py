"""Max unpooling from the operations of the format: a handler like those of ``rbnn.exporting.handlers``."""

from math import prod
from typing import Any

import numpy as np

from rbnn.exporting.comparisons import positive, scaled_by
from rbnn.exporting.pools import Maxima
from rbnn.exporting.traced_call import Call, Place
from rbnn.packed.operations import Shape

BELOW_ALL = -1e30
"""What surrounds an image whose maxima are looked for."""


def max_unpool(
    call: Call,
    x: Place,
    indices: Any,
    kernel_size: Any = None,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> str:
    """In each window, the pixel that was the first maximum gets the value, and the others get 0.  A pixel that is the
    maximum of several windows gets the value of the last one, as torch computes it on a CPU."""
    if not isinstance(indices, Maxima):
        raise call.fail("its indices are not those of a max pool of this network")
    (height, width, channels), sides = call.shape_of(x.value), call.shape_of(indices.x.value)
    if call.shape_of(call.result) != sides or channels != sides[2]:
        raise call.fail("it must have as many pixels as the input of its max pool: pass output_size")
    if set(indices.dilation) != {1}:
        raise call.fail("the max pool of its indices has a dilation: use nn.Upsample")
    taps = _maxima(call, indices, (height, width, channels))
    rows, columns = (-(-side // step) for side, step in zip(sides, indices.stride, strict=False))
    phases = []
    for number in range(prod(indices.stride)):
        phase = divmod(number, indices.stride[1])
        reached = []
        for tap, here in taps.items():
            moved = [at + pad - offset for at, pad, offset in zip(phase, indices.padding, tap, strict=True)]
            steps = [divmod(each, stride) for each, stride in zip(moved, indices.stride, strict=True)]
            if not any(rest for _, rest in steps):
                reached.append((steps[0][0], steps[1][0], here))
        phases.append(_last_of(call, x, sorted(reached), (height, width, channels), (rows, columns), f"{number}"))
    shape: Shape = (rows, columns, channels * len(phases))
    buffer = phases[0]
    if len(phases) > 1:
        inputs = {f"x{index}": each for index, each in enumerate(phases)}
        buffer = call.write("concat", inputs, shape=shape, part=".pixels")
    full = (rows * indices.stride[0], columns * indices.stride[1], channels)
    if len(phases) > 1:
        moves = {"sides": [rows, columns, *indices.stride, channels], "order": [0, 2, 1, 3, 4]}
        if full == sides:
            return call.write("permute", {"x": buffer}, attributes=moves)
        buffer = call.write("permute", {"x": buffer}, attributes=moves, shape=full, part=".whole")
    cut = {"start": [0, 0, 0], "stop": list(sides), "step": [1, 1, 1]}
    return call.write("slice", {"x": buffer}, attributes=cut)


def _maxima(call: Call, indices: Maxima, shape: Shape) -> dict[tuple[int, int], str]:
    """For each place in a window, 1 in the windows whose first maximum is there, otherwise 0: ``(not above the pixel) ·
    (no earlier pixel was the maximum)``."""
    buffer, sides = indices.x.buffer, call.shape_of(indices.x.value)
    reach = [
        (count - 1) * step + taps for count, step, taps in zip(shape, indices.stride, indices.kernel, strict=False)
    ]
    behind = [max(end - side - pad, 0) for end, side, pad in zip(reach, sides, indices.padding, strict=False)]
    if any(indices.padding) or any(behind):
        around = {"before": [*indices.padding, 0], "after": [*behind, 0], "value": BELOW_ALL}
        high, wide = (p + side + more for p, side, more in zip(indices.padding, sides, behind, strict=False))
        sides = (high, wide, shape[2])
        buffer = call.write("pad", {"x": buffer}, attributes=around, shape=sides, part=".around")
    free, found = "", {}
    for index in range(prod(indices.kernel)):
        row, column = divmod(index, indices.kernel[1])
        # Up to the end of the image, if that gives the same pixels, so that other sizes do, too.
        ends = [
            side if len(range(at, side, step)) == count else at + (count - 1) * step + 1
            for side, at, step, count in zip(sides, (row, column), indices.stride, shape, strict=False)
        ]
        attributes = {"start": [row, column, 0], "stop": [*ends, shape[2]], "step": [*indices.stride, 1]}
        pixel = call.write("slice", {"x": buffer}, attributes=attributes, shape=shape, part=f".pixel{index}")
        minus = scaled_by(call, pixel, -1.0, 0.0, shape, f".minus{index}")
        below = call.write("add", {"a": indices.largest, "b": minus}, shape=shape, part=f".below{index}")
        lower = positive(call, below, shape, f".lower{index}")
        here = scaled_by(call, lower, -1.0, 1.0, shape, f".maximum{index}")
        if free:  # no earlier pixel was the maximum
            here = call.write("multiply", {"a": here, "b": free}, shape=shape, part=f".first{index}")
            lower = call.write("multiply", {"a": lower, "b": free}, shape=shape, part=f".free{index}")
        free = lower
        found[row, column] = here
    return found


def _last_of(
    call: Call, x: Place, reached: list[tuple[int, int, str]], shape: Shape, sides: tuple[int, int], name: str
) -> str:
    """The value of the last of the windows that chose a pixel, for every ``stride``-th pixel.  ``reached`` has the
    windows in torch's order: how far they are down and right of the pixel, and where the pixel is their maximum."""
    wanted: Shape = (*sides, shape[2])
    if not reached:
        empty = np.zeros(wanted)
        return call.write("constant", {}, {"value": empty}, shape=wanted, part=f".empty{name}")
    total = ""
    for index, (down, right, here) in enumerate(reached):
        part = f"{name}.{index}" if len(reached) > 1 else name
        value = call.write("multiply", {"a": x.buffer, "b": here}, shape=shape, part=f".value{part}")
        value = _shifted(call, value, (down, right), shape, wanted, f".value{part}")
        if total:
            chosen = _shifted(call, here, (down, right), shape, wanted, f".here{part}")
            other = scaled_by(call, chosen, -1.0, 1.0, wanted, f".other{part}")
            before = call.write("multiply", {"a": total, "b": other}, shape=wanted, part=f".before{part}")
            value = call.write("add", {"a": before, "b": value}, shape=wanted, part=f".total{part}")
        total = value
    return total


def _shifted(call: Call, buffer: str, by: tuple[int, int], shape: Shape, wanted: Shape, part: str) -> str:
    """The pixels that are ``by`` further down and right, and 0 outside the image."""
    before = [max(-each, 0) for each in by]
    after = [max(side + each - has, 0) for side, each, has in zip(wanted, by, shape, strict=False)]
    if any(before) or any(after):
        high, wide = (sum(each) for each in zip(before, shape, after, strict=False))
        shape = (high, wide, shape[2])
        around = {"before": [*before, 0], "after": [*after, 0]}
        buffer = call.write("pad", {"x": buffer}, attributes=around, shape=shape, part=f"{part}.around")
    if shape == wanted:
        return buffer
    start = [max(each, 0) for each in by]
    stop = [first + side for first, side in zip(start, wanted, strict=False)]
    cut = {"start": [*start, 0], "stop": [*stop, shape[2]], "step": [1, 1, 1]}
    return call.write("slice", {"x": buffer}, attributes=cut, shape=wanted, part=f"{part}.moved")
