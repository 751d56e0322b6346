"""A constant per channel that is added behind an activation vanishes into whatever reads the sum.

    signs            x + v > level      is  x > level − v
    a residual       … + (x + v)        is  … + x, with v in the convolution's own shift
    1×1 convolution  W (x + v)          is  W x + W v

Pixels that are left out, pools, means, and new channels of zeros let it pass through to their own readers.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from rbnn.exporting.draft import CONVOLUTIONS, Array, Draft, Step

Change = Callable[[], None]

_SAME = ("max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool", "mean")
"""They give x + v where they are given x + v."""


def is_shift(affine: Step) -> bool:
    return bool((affine.tensors["scale"] == 1).all())


def add_shift(step: Step, shift: Array) -> None:
    """To what ``step`` adds itself."""
    step.tensors["shift"] = step.tensors.get("shift", 0.0) + shift


def shift_into_readers(draft: Draft, step: Step) -> bool:
    """Drops an affine of scale 1, if all that read it, or read what passes it on, can take its shift in."""
    if not is_shift(step):
        return False
    changes = _changes(draft, step.outputs["float"], step.tensors["shift"])
    if changes is None:
        return False
    for change in changes:
        change()
    for reader in draft.steps:
        for role, name in reader.inputs.items():
            if name == step.outputs["float"]:
                reader.inputs[role] = step.inputs["x"]
    draft.steps.remove(step)
    return True


def _changes(draft: Draft, buffer: str, shift: Array) -> list[Change] | None:
    """What has to be done so that ``buffer`` may hold its values without ``shift``; None where that cannot be."""
    if buffer == draft.output:
        return None
    found: list[Change] = []
    for step in draft.steps:
        for role, name in step.inputs.items():
            if name == buffer:
                changes = _reader(draft, step, role, shift)
                if changes is None:
                    return None
                found += changes
    return found


def _reader(draft: Draft, step: Step, role: str, shift: Array) -> list[Change] | None:
    if step.kind in CONVOLUTIONS and role == "residual":
        return [lambda: add_shift(step, shift)]
    if step.kind == "affine":
        return [lambda: add_shift(step, step.tensors["scale"] * shift)]
    if step.kind == "pack":
        return None if step.attributes.get("level") == "mean" else [lambda: _lower_level(step, shift)]
    if step.kind == "float_conv":
        return _through_convolution(step, shift)
    if step.kind == "slice":
        start, stop, every = (step.attributes[each][2] for each in ("start", "stop", "step"))
        return _pass_on(draft, step, shift[start:stop:every])
    if step.kind == "pad":
        before, after = step.attributes["before"], step.attributes["after"]
        if any(before[:2]) or any(after[:2]):
            return None
        return _pass_on(draft, step, np.pad(shift, (before[2], after[2])))
    padded = any(step.attributes.get("padding", ())) and step.kind == "avg_pool"
    over_channels = step.kind == "mean" and step.attributes["over"] == "c"
    return _pass_on(draft, step, shift) if step.kind in _SAME and not padded and not over_channels else None


def _through_convolution(step: Step, shift: Array) -> list[Change] | None:
    if any(step.attributes.get("padding", ())) or step.attributes.get("groups", 1) != 1:
        return None
    total = step.tensors["weight"].sum((1, 2), dtype=np.float64) @ shift
    return [lambda: add_shift(step, step.tensors.get("scale", 1.0) * total)]


def _pass_on(draft: Draft, step: Step, shift: Array) -> list[Change] | None:
    (buffer,) = step.outputs.values()
    changes = _changes(draft, buffer, shift)

    def without() -> None:
        if buffer in draft.torch_values:
            known = draft.torch_values[buffer]
            taken = torch.from_numpy(shift).view(-1, *[1] * (known.value.dim() - 2))
            draft.torch_values[buffer] = replace(known, value=(known.value - taken).to(known.value.dtype))

    return None if changes is None else [*changes, without]


def _lower_level(step: Step, shift: Array) -> None:
    """A level, not a shift: a convolution whose floats somebody else reads can still write the signs."""
    if "scale" in step.tensors:
        step.tensors["shift"] = step.tensors["shift"] + step.tensors["scale"] * shift
    else:
        level = step.tensors.get("level", step.attributes.pop("level", 0.0))
        step.tensors["level"] = level - shift
