"""Where nothing but a sign follows a binary convolution, one whole number per channel replaces everything between."""

import numpy as np

from rbnn.exporting.draft import Array, Draft, Step
from rbnn.exporting.fuse import rises
from rbnn.packed import oracle


def use_thresholds(draft: Draft) -> None:
    """Thresholds wherever they are possible; then what is left out because it says nothing."""
    for step in draft.steps:
        if step.kind == "binary_conv" and set(step.outputs) == {"bits"} and "residual" not in step.inputs:
            _use_threshold(step)
    for step in draft.steps:
        for role, nothing in (("scale", 1.0), ("shift", 0.0), ("level", 0.0)):
            if step.kind != "affine" and role in step.tensors and (step.tensors[role] == nothing).all():
                del step.tensors[role]


def _use_threshold(step: Step) -> None:
    """``act(acc·scale + shift) > level`` as ``acc > threshold``, with the bits of a filter turned where its scale is
    negative.  Found by halving among the values that acc can take; an activation that falls somewhere has none."""
    if "activation" in step.attributes and not rises(step):
        return
    weight = step.tensors["weight"]
    scale = step.tensors.get("scale", np.ones(len(weight)))
    weight = np.where(scale < 0, -1, 1).astype(np.int8)[:, None, None, None] * weight
    most = int(np.prod(weight.shape[1:]))
    # Invariant: below ``low`` (included) nothing passes, above ``high`` everything does.
    low, high = np.full(len(weight), -most - 1), np.full(len(weight), most + 1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        passes = _passes(step, middle, np.abs(scale))
        low, high = np.where(passes, low, middle), np.where(passes, middle, high)
    step.tensors = {"weight": weight, "threshold": low}
    step.attributes.pop("activation", None)


def _passes(step: Step, total: Array, scale: Array) -> Array:
    value = total * scale + step.tensors.get("shift", 0.0)
    if "activation" in step.attributes:
        value = oracle.activation(value, step.tensors, step.attributes)
    return np.asarray(value > step.tensors.get("level", 0.0))
