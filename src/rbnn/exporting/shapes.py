"""The operations that only move values: handlers like those of ``rbnn.exporting.handlers``."""

from typing import Any

from rbnn.exporting.traced_call import Call, Place


def reshape(call: Call, x: Place, *_: Any, **__: Any) -> str:
    """flatten, view, reshape, squeeze, unsqueeze: whatever leaves the values in torch's order."""
    before, after = call.shape_of(x.value), call.shape_of(call.result)
    if call.result.shape[0] != x.value.shape[0]:
        raise call.fail("pictures of a batch must stay apart: keep the first dimension")
    if before == after:
        return x.buffer
    plain = 1 in (before[2], before[0] * before[1]) and 1 in (after[2], after[0] * after[1])
    return call.write("reshape", {"x": x.buffer}, attributes={"order": "hwc" if plain else "chw"})


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


def cat(call: Call, tensors: Any, dim: int = 0) -> str:
    if not all(isinstance(each, Place) for each in tensors):
        raise call.fail("one of the parts is a constant")
    if int(dim) % tensors[0].value.dim() != 1:
        raise call.fail("only channels (dim=1) can be joined")
    return call.write("concat", {f"x{index}": each.buffer for index, each in enumerate(tensors)})


def getitem(call: Call, x: Place, index: Any) -> str:
    ranges = list(index) if isinstance(index, tuple) else [index]
    if not all(isinstance(each, slice) for each in ranges) or len(ranges) > x.value.dim():
        raise call.fail("only slices like x[:, 2:8, ::2, ::2] can be taken")
    spans = [range(side)[cut] for side, cut in zip(x.value.shape, ranges, strict=False)]
    spans += [range(side) for side in x.value.shape[len(spans) :]]
    if spans[0] != range(x.value.shape[0]):
        raise call.fail("pictures of a batch must stay together: the first slice must be a plain ':'")
    if not all(spans):
        raise call.fail("the slice is empty")
    channels, *places = spans[1:]
    placed = [*([range(1)] * (2 - len(places))), *places, channels]
    return call.write(
        "slice", {"x": x.buffer},
        attributes={
            "start": [span[0] for span in placed],
            "stop": [span[-1] + 1 for span in placed],
            "step": [span.step for span in placed],
        },
    )  # fmt: skip


def pad(call: Call, x: Place, pad: Any, mode: str = "constant", value: float | None = None) -> str:
    if mode != "constant" or any(each < 0 for each in pad):
        raise call.fail("padding is constant, and never negative")
    widths = [(int(pad[i]), int(pad[i + 1])) for i in range(0, len(pad), 2)]  # the last dimension first
    widths += [(0, 0)] * (x.value.dim() - len(widths))
    if len(widths) not in (3, 4) or widths[-1] != (0, 0):
        raise call.fail("only height, width and channels of pictures can be padded")
    right, high, deep, _ = widths if len(widths) == 4 else (widths[0], (0, 0), *widths[1:])
    attributes: dict[str, Any] = {
        "before": [high[0], right[0], deep[0]],
        "after": [high[1], right[1], deep[1]],
        "value": float(value or 0.0),
    }
    return call.write("pad", {"x": x.buffer}, attributes=attributes)


def zero_pad(call: Call, x: Place, padding: Any) -> str:
    return pad(call, x, padding)
