"""If only a sign follows a binary convolution, one integer per channel replaces everything in between."""

from dataclasses import replace

import numpy as np

from rbnn.exporting.draft import Array, Draft
from rbnn.exporting.fuse import rises
from rbnn.packed.formulas import activation
from rbnn.packed.operations import Operation


def use_thresholds(draft: Draft) -> None:
    """Use thresholds wherever possible, and remove what then has no effect."""
    for operation in draft.operations:
        alone = set(operation.outputs) == {"bits"} and "residual" not in operation.inputs
        if operation.kind == "binary_conv" and alone:
            _note_shift(draft, operation)
            _use_threshold(operation)
    for operation in draft.operations:
        for role, nothing in (("scale", 1.0), ("shift", 0.0), ("level", 0.0)):
            if operation.kind != "affine" and role in operation.tensors and (operation.tensors[role] == nothing).all():
                del operation.tensors[role]


def _note_shift(draft: Draft, operation: Operation) -> None:
    """For the comparison with torch, which adds the shift in float32."""
    bits = operation.outputs["bits"]
    if bits in draft.torch_values:
        shift = float(np.abs(operation.tensors.get("shift", 0.0)).max())
        draft.torch_values[bits] = replace(draft.torch_values[bits], shift=shift)


def _use_threshold(operation: Operation) -> None:
    """``act(acc·scale + shift) > level`` as ``acc > threshold``.  The bits of a filter with a negative scale are
    inverted.  The threshold is found by bisection over the possible values of acc; a falling activation has none."""
    if "activation" in operation.attributes and not rises(operation):
        return
    weight = operation.tensors["weight"]
    scale = operation.tensors.get("scale", np.ones(len(weight)))
    weight = np.where(scale < 0, -1, 1).astype(np.int8)[:, None, None, None] * weight
    most = int(np.prod(weight.shape[1:]))
    # Invariant: no value up to ``low`` passes, and every value above ``high`` does.
    low, high = np.full(len(weight), -most - 1), np.full(len(weight), most + 1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        passes = _passes(operation, middle, np.abs(scale))
        low, high = np.where(passes, low, middle), np.where(passes, middle, high)
    operation.tensors = {"weight": weight, "threshold": low}
    operation.attributes.pop("activation", None)


def _passes(operation: Operation, total: Array, scale: Array) -> Array:
    value = total * scale + operation.tensors.get("shift", 0.0)
    if "activation" in operation.attributes:
        value = activation(value, operation.tensors, operation.attributes)
    return np.asarray(value > operation.tensors.get("level", 0.0))
