"""A constant per channel that is added after an activation is merged into the readers of the sum.

    signs            x + v > level      is  x > level − v
    a residual       … + (x + v)        is  … + x, with v in the convolution's own shift
    1×1 convolution  W (x + v)          is  W x + W v

Strided slices, selections, pools, means, and new channels of zeros pass it on to their own readers.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from rbnn.exporting.draft import CONVOLUTIONS, Array, Draft
from rbnn.packed.operations import Operation

Change = Callable[[], None]

_SAME = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "mean")
"""These return x + v if their input is x + v."""


def is_shift(affine: Operation) -> bool:
    return bool((affine.tensors["scale"] == 1).all())


def add_shift(operation: Operation, shift: Array) -> None:
    """Add ``shift`` to what ``operation`` adds."""
    operation.tensors["shift"] = operation.tensors.get("shift", 0.0) + shift


def shift_into_readers(draft: Draft, operation: Operation) -> bool:
    """Remove an affine with scale 1, if all its direct and indirect readers can absorb its shift."""
    if not is_shift(operation):
        return False
    changes = _changes(draft, operation.outputs["float"], operation.tensors["shift"])
    if changes is None:
        return False
    for change in changes:
        change()
    for reader in draft.operations:
        for role, name in reader.inputs.items():
            if name == operation.outputs["float"]:
                reader.inputs[role] = operation.inputs["x"]
    draft.operations.remove(operation)
    return True


def _changes(draft: Draft, buffer: str, shift: Array) -> list[Change] | None:
    """The changes that allow ``buffer`` to contain its values without ``shift``; None if it is impossible."""
    if buffer in draft.outputs:
        return None
    found: list[Change] = []
    for operation in draft.operations:
        for role, name in operation.inputs.items():
            if name == buffer:
                changes = _reader(draft, operation, role, shift)
                if changes is None:
                    return None
                found += changes
    return found


def _reader(draft: Draft, operation: Operation, role: str, shift: Array) -> list[Change] | None:
    if operation.kind in CONVOLUTIONS and role == "residual":
        return [lambda: add_shift(operation, shift)]
    if operation.kind == "affine":
        return [lambda: add_shift(operation, operation.tensors["scale"] * shift)]
    if operation.kind == "pack":
        return None if operation.attributes.get("level") == "mean" else [lambda: _lower_level(operation, shift)]
    if operation.kind == "float_conv":
        return _through_convolution(operation, shift)
    if operation.kind == "slice":
        start, stop, every = (operation.attributes[each][2] for each in ("start", "stop", "step"))
        return _pass_on(draft, operation, shift[start:stop:every])
    if operation.kind == "select":
        along_channels = operation.attributes.get("axis", "c") == "c"
        return _pass_on(draft, operation, shift[operation.attributes["places"]] if along_channels else shift)
    if operation.kind == "pad":
        before, after = operation.attributes["before"], operation.attributes["after"]
        if any(before[:2]) or any(after[:2]):
            return None
        return _pass_on(draft, operation, np.pad(shift, (before[2], after[2])))
    padded = any(operation.attributes.get("padding", ())) and operation.kind == "avg_pool"
    over_channels = operation.kind == "mean" and "c" in operation.attributes["over"]
    return _pass_on(draft, operation, shift) if operation.kind in _SAME and not padded and not over_channels else None


def _through_convolution(operation: Operation, shift: Array) -> list[Change] | None:
    if any(operation.attributes.get("padding", ())) or operation.attributes.get("groups", 1) != 1:
        return None
    total = operation.tensors["weight"].sum((1, 2), dtype=np.float64) @ shift
    return [lambda: add_shift(operation, operation.tensors.get("scale", 1.0) * total)]


def _pass_on(draft: Draft, operation: Operation, shift: Array) -> list[Change] | None:
    (buffer,) = operation.outputs.values()
    changes = _changes(draft, buffer, shift)

    def without() -> None:
        if buffer in draft.torch_values:
            known = draft.torch_values[buffer]
            taken = torch.from_numpy(shift).view(-1, *[1] * (known.value.dim() - 2))
            draft.torch_values[buffer] = replace(known, value=(known.value - taken).to(known.value.dtype))

    return None if changes is None else [*changes, without]


def _lower_level(operation: Operation, shift: Array) -> None:
    """A level instead of a shift: a convolution with other readers of its floats can still write the signs."""
    if "scale" in operation.tensors:
        operation.tensors["shift"] = operation.tensors["shift"] + operation.tensors["scale"] * shift
    else:
        level = operation.tensors.get("level", operation.attributes.pop("level", 0.0))
        operation.tensors["level"] = level - shift
