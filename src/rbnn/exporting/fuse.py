"""Fewer steps, the same values: everything that can happen where a convolution writes its result happens there.

Each rule looks at one step and what stands before it, and either rewrites the draft or leaves it as it is.
"""

from collections.abc import Callable

import numpy as np

from rbnn.exporting.draft import CONVOLUTIONS, Array, Draft, Step
from rbnn.exporting.shifts import add_shift, is_shift, shift_into_readers
from rbnn.packed.operations import Buffer

RISING = ("hardtanh", "relu", "relu6", "sigmoid")
"""Activations that never fall: they commute with maxima.  ``leaky_relu`` and ``prelu`` may, by their slopes."""


def fuse(draft: Draft) -> None:
    """Apply the rules until none does anything."""
    drop_unread(draft)
    busy = True
    while busy:
        busy = False
        for step in list(draft.steps):
            while step in draft.steps and any(rule(draft, step) for rule in RULES.get(step.kind, [])):
                busy = True
        # Last, so that every reader of a shift is what it will be.
        busy = busy or any(shift_into_readers(draft, step) for step in draft.steps if step.kind == "affine")


def _before(draft: Draft, step: Step, *kinds: str) -> Step | None:
    """The step that writes what ``step`` reads as x, if it is of these kinds and nobody else reads it."""
    found = draft.producer(step.inputs["x"])
    if found is None or found.kind not in kinds or draft.sole_consumer(step.inputs["x"]) is not step:
        return None
    return found


def _take_over(draft: Draft, conv: Step, step: Step) -> None:
    """``conv`` writes what ``step`` wrote, and stands in its place, behind everything that either reads."""
    conv.outputs["float"] = step.outputs["float"]
    draft.steps.remove(conv)
    draft.steps[draft.steps.index(step)] = conv


# Affine


def affine_into_affine(draft: Draft, step: Step) -> bool:
    before = _before(draft, step, "affine")
    if before is None:
        return False
    _scale(before, step.tensors["scale"], step.tensors["shift"])
    _take_over(draft, before, step)
    return True


def affine_into_convolution(draft: Draft, step: Step) -> bool:
    conv = _before(draft, step, *CONVOLUTIONS)
    if conv is None:
        return False
    if _can_scale(draft, conv):
        _scale_chain(draft, conv, step.tensors["scale"], step.tensors["shift"])
    elif is_shift(step) and "activation" not in conv.attributes and "bits" not in conv.outputs:
        add_shift(conv, step.tensors["shift"])  # whatever the convolution adds besides
    else:
        return False
    _take_over(draft, conv, step)
    return True


def _can_scale(draft: Draft, conv: Step) -> bool:
    """Whether a factor behind ``conv`` can go into its own: what it adds must come from convolutions too."""
    if "activation" in conv.attributes or "bits" in conv.outputs:
        return False
    if "residual" not in conv.inputs:
        return True
    before = draft.producer(conv.inputs["residual"])
    return (
        before is not None
        and before.kind in CONVOLUTIONS
        and draft.sole_consumer(conv.inputs["residual"]) is conv
        and _can_scale(draft, before)
    )


def _scale_chain(draft: Draft, conv: Step, scale: Array, shift: Array) -> None:
    _scale(conv, scale, shift)
    if "residual" in conv.inputs:
        before = draft.producer(conv.inputs["residual"])
        assert before is not None
        draft.torch_values.pop(conv.inputs["residual"], None)  # torch has it unscaled
        _scale_chain(draft, before, scale, np.zeros_like(shift))


def _scale(step: Step, scale: Array, shift: Array) -> None:
    """``scale (s x + b) + shift``."""
    step.tensors["shift"] = step.tensors.get("shift", np.zeros_like(shift)) * scale + shift
    step.tensors["scale"] = step.tensors.get("scale", np.ones_like(scale)) * scale


# Pools give way: what stands behind a maximum goes before it, into the convolution.


def affine_before_pool(draft: Draft, step: Step) -> bool:
    return bool((step.tensors["scale"] >= 0).all()) and _before_pool(draft, step)


def activation_before_pool(draft: Draft, step: Step) -> bool:
    return rises(step) and _before_pool(draft, step)


def rises(step: Step) -> bool:
    """Whether the activation of a step never falls."""
    name, *numbers = step.attributes["activation"]
    if name == "leaky_relu":
        return bool(numbers[0] >= 0)
    return name in RISING or (name == "prelu" and bool((step.tensors["slope"] >= 0).all()))


def _before_pool(draft: Draft, step: Step) -> bool:
    """pool then step → step then pool, if a convolution feeds the pool alone."""
    pool = _before(draft, step, "max_pool")
    if pool is None or _before(draft, pool, *CONVOLUTIONS) is None:
        return False
    between = draft.new_buffer(step.name, draft.buffers[pool.inputs["x"]])
    pool.outputs, written = dict(step.outputs), pool.inputs["x"]
    pool.inputs, step.inputs, step.outputs = {"x": between}, {"x": written}, {"float": between}
    first, second = draft.steps.index(pool), draft.steps.index(step)
    draft.steps[first], draft.steps[second] = step, pool
    return True


# Sums and activations


def add_into_convolution(draft: Draft, step: Step) -> bool:
    """The later of two convolutions adds the other's output, or whatever the shortcut is."""
    for own, other in sorted(
        [(step.inputs["a"], step.inputs["b"]), (step.inputs["b"], step.inputs["a"])],
        key=lambda pair: -_position(draft, pair[0]),
    ):
        conv = draft.producer(own)
        if (
            conv is not None
            and conv.kind in CONVOLUTIONS
            and "residual" not in conv.inputs
            and "activation" not in conv.attributes
            and "bits" not in conv.outputs
            and draft.sole_consumer(own) is step
            and draft.buffers[own].shape == draft.buffers[other].shape
        ):
            conv.inputs["residual"] = other
            _take_over(draft, conv, step)
            return True
    return False


def _position(draft: Draft, buffer: str) -> int:
    producer = draft.producer(buffer)
    return -1 if producer is None else draft.steps.index(producer)


def activation_into_convolution(draft: Draft, step: Step) -> bool:
    conv = _before(draft, step, *CONVOLUTIONS)
    if conv is None or "activation" in conv.attributes or "bits" in conv.outputs:
        return False
    conv.attributes["activation"] = step.attributes["activation"]
    conv.tensors |= step.tensors
    _take_over(draft, conv, step)
    return True


# Signs


def sign_without_activation(draft: Draft, step: Step) -> bool:
    """``act(x) > level`` is ``x > level`` where the activation leaves values around the level in their order."""
    before = _before(draft, step, "activation")
    if before is None or step.tensors or step.attributes.get("level") == "mean" or not rises(before):
        return False
    name, *numbers = before.attributes["activation"]
    low, high = {"hardtanh": numbers, "relu6": [0.0, 6.0]}.get(name, [0.0, np.inf])
    if name == "sigmoid" or not low <= step.attributes.get("level", 0.0) < high:
        return False
    if name in ("leaky_relu", "prelu") and step.attributes.get("level", 0.0) != 0:
        return False
    step.inputs["x"] = before.inputs["x"]
    draft.steps.remove(before)
    return True


def sign_of_affine(draft: Draft, step: Step) -> bool:
    before = _before(draft, step, "affine")
    if before is None or step.attributes.get("level") == "mean":
        return False
    _scale_before(step, before.tensors["scale"], before.tensors["shift"])
    step.inputs["x"] = before.inputs["x"]
    draft.steps.remove(before)
    return True


def _scale_before(step: Step, scale: Array, shift: Array) -> None:
    """``s (scale x + shift) + b``, minus the level, which the shift takes in."""
    own = step.tensors.get("scale", np.ones_like(scale))
    level = step.tensors.pop("level", step.attributes.pop("level", 0.0))
    step.tensors["shift"] = step.tensors.get("shift", np.zeros_like(shift)) + own * shift - level
    step.tensors["scale"] = own * scale


def sign_before_pool(draft: Draft, step: Step) -> bool:
    """The sign of a maximum is the maximum of signs; where the scale is negative, their minimum."""
    pool = _before(draft, step, "max_pool")
    if pool is None or step.attributes.get("level") == "mean" or pool.attributes.get("dilation", [1, 1]) != [1, 1]:
        return False
    attributes = {role: value for role, value in pool.attributes.items() if role != "dilation"}
    bits = draft.new_buffer(f"{pool.name}.sign", Buffer("bits", draft.buffers[pool.inputs["x"]].shape))
    pooled = Step("max_pool_bits", pool.name, {"x": bits}, dict(step.outputs), {}, attributes)
    if "scale" in step.tensors and bool((step.tensors["scale"] < 0).any()):
        pooled.tensors["invert"] = np.where(step.tensors["scale"] < 0, 1, -1)
    step.inputs, step.outputs = {"x": pool.inputs["x"]}, {"bits": bits}
    draft.steps.remove(pool)
    draft.steps.insert(draft.steps.index(step) + 1, pooled)
    return True


def sign_into_convolution(draft: Draft, step: Step) -> bool:
    """The convolution writes bits, beside its floats where somebody else reads them."""
    conv = draft.producer(step.inputs["x"])
    if conv is None or conv.kind not in CONVOLUTIONS or "bits" in conv.outputs:
        return False
    if step.attributes.get("level") == "mean":  # known only when the whole picture is
        return False
    alone = draft.sole_consumer(step.inputs["x"]) is step
    if "scale" in step.tensors:
        if not alone or not _can_scale(draft, conv):
            return False
        _scale_chain(draft, conv, step.tensors["scale"], step.tensors["shift"])
    if step.attributes.get("level", 0.0) != 0:
        conv.tensors["level"] = np.full(draft.channels(step.outputs["bits"]), step.attributes["level"])
    if "level" in step.tensors:
        conv.tensors["level"] = step.tensors["level"]
    if alone:
        del conv.outputs["float"]
    conv.outputs["bits"] = step.outputs["bits"]
    draft.steps.remove(step)
    return True


Rule = Callable[[Draft, Step], bool]

RULES: dict[str, list[Rule]] = {
    "affine": [affine_into_affine, affine_into_convolution, affine_before_pool],
    "activation": [activation_into_convolution, activation_before_pool],
    "add": [add_into_convolution],
    "pack": [sign_into_convolution, sign_without_activation, sign_of_affine, sign_before_pool],
}


def drop_unread(draft: Draft) -> None:
    """What nobody reads is not computed."""
    read = {draft.output}
    for step in reversed(list(draft.steps)):
        if read & set(step.outputs.values()):
            read.update(step.inputs.values())
        else:
            draft.steps.remove(step)
