"""Handlers of pools, like those of ``rbnn.exporting.handlers``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from rbnn.exporting.activations import power
from rbnn.exporting.handlers import both_sides
from rbnn.exporting.traced_call import Call, Place


@dataclass(frozen=True)
class Maxima:
    """The places of the maxima of a pool."""

    x: Place
    largest: str
    """The buffer of the maxima."""
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]


def max_pool(
    call: Call,
    x: Place,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The maxima and, if torch returns them too, their places."""
    attributes = _window(x, kernel_size, stride, padding, ceil_mode) | {"dilation": both_sides(x, dilation, 1)}
    if isinstance(call.result, Tensor):
        return call.write("max_pool", {"x": x.buffer}, attributes=attributes)
    largest = call.write("max_pool", {"x": x.buffer}, attributes=attributes, value=call.result[0])
    return [largest, Maxima(x, largest, *(attributes[each] for each in ("kernel", "stride", "padding", "dilation")))]


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
    beyond = np.subtract(attributes["kernel"], call.shape_of(x.value)[:2])
    if not any(attributes["padding"]) and (beyond >= 0).all() and beyond.any():
        return adaptive_avg_pool(call, x, 1)  # ceil_mode allows a window that is larger than the image
    return call.write("avg_pool", {"x": x.buffer}, attributes=attributes)


def _window(x: Place, kernel: Any, stride: Any, padding: Any, ceil: bool) -> dict[str, Any]:
    stride = kernel if stride is None or stride == [] else stride
    return {
        "kernel": both_sides(x, kernel, 1), "stride": both_sides(x, stride, 1), "padding": both_sides(x, padding, 0),
        "ceil": bool(ceil),
    }  # fmt: skip


def lp_pool(
    call: Call, x: Place, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> str:
    """The root of the sum of powers.  Torch replaces a negative sum, of odd powers, by 0."""
    exponent, window = float(norm_type), _window(x, kernel_size, stride, 0, ceil_mode)
    if ceil_mode:
        raise call.fail("ceil_mode=True is not supported")
    shape = call.shape_of(call.result)
    raised = power(call, x, exponent, shape=call.shape_of(x.value), part=".power")
    mean = call.write("avg_pool", {"x": raised}, attributes=window, shape=shape, part=".mean")
    taps = np.full(shape[2], float(np.prod(window["kernel"])))
    total = call.write("affine", {"x": mean}, {"scale": taps, "shift": 0 * taps}, shape=shape, part=".sum")
    positive = call.write(
        "activation", {"x": total}, attributes={"activation": ["relu"]}, shape=shape, part=".positive"
    )
    return power(call, Place(positive, call.result), 1 / exponent)


def adaptive_avg_pool(call: Call, x: Place, output_size: Any) -> str:
    return call.write("adaptive_avg_pool", {"x": x.buffer}, attributes={"size": list(call.shape_of(call.result)[:2])})


def adaptive_max_pool(call: Call, x: Place, output_size: Any, return_indices: bool = False) -> str:
    if return_indices:
        raise call.fail("the indices of maxima are not available")
    return call.write("adaptive_max_pool", {"x": x.buffer}, attributes={"size": list(call.shape_of(call.result)[:2])})
