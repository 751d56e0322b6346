"""The operations on signals (N, C, L): those on pictures of height 1."""

from typing import Any

from rbnn.exporting import handlers as o
from rbnn.exporting.traced_call import Call, Place


def row(value: Any, other: int) -> list[int]:
    """A number of a window over signals as the two of one over pictures: ``other`` is that of the height."""
    return [other, int(value[0] if isinstance(value, tuple | list) else value)]


def conv1d(
    call: Call,
    x: Place,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> str:
    filters = o.constant(call, weight, "weight")
    o.check_sides(call, x, filters)
    around = padding if isinstance(padding, str) else row(padding, 0)
    return o.convolution(call, x, filters[:, :, None], bias, row(stride, 1), around, row(dilation, 1), groups)


def max_pool1d(
    call: Call,
    x: Place,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> str:
    kernel, step = row(kernel_size, 1), row(stride or kernel_size, 1)
    return o.max_pool2d(call, x, kernel, step, row(padding, 0), row(dilation, 1), ceil_mode, return_indices)


def avg_pool1d(
    call: Call,
    x: Place,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> str:
    kernel, step = row(kernel_size, 1), row(stride or kernel_size, 1)
    return o.avg_pool2d(call, x, kernel, step, row(padding, 0), ceil_mode, count_include_pad)


def transpose(call: Call, x: Place, dim0: int, dim1: int) -> str:
    order = list(range(x.value.dim()))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permute(call, x, order)


def permute(call: Call, x: Place, *dims: Any) -> str:
    """(N, L, C) to (N, C, L): to vectors in torch's order, and from vectors in that of the buffers."""
    sides = x.value.dim()
    order = [int(each) % sides for each in (dims[0] if isinstance(dims[0], tuple | list) else dims)]
    if order == list(range(sides)):
        return x.buffer
    if order != [0, 2, 1]:
        raise call.fail("only channels and length of a signal can change places")
    shape = 1, 1, x.value[0].numel()
    vector = call.write("reshape", {"x": x.buffer}, attributes={"order": "chw"}, shape=shape, part=".vector")
    return call.write("reshape", {"x": vector}, attributes={"order": "hwc"})
