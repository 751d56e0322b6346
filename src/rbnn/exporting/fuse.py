"""Fewer operations with the same values: what can be done where a convolution writes its result is done there.

Each rule examines one operation and those before it, and either rewrites the draft or leaves it unchanged.
"""

from collections.abc import Callable

import numpy as np

from rbnn.exporting.draft import CONVOLUTIONS, Array, Draft
from rbnn.exporting.moves import moves_into_one, no_move
from rbnn.exporting.shifts import add_shift, is_shift, shift_into_readers
from rbnn.packed.operations import Buffer, Operation

RISING = ("hardtanh", "relu", "relu6", "sigmoid", "tanh", "hardsigmoid", "softplus", "selu", "exp")
"""Activations that never fall, so they commute with maxima.  ``leaky_relu``, ``elu`` and ``prelu`` may fall, depending
on their slopes."""
KEEP_SIGNS = ("hardtanh", "relu", "relu6", "leaky_relu", "prelu")
"""Activations that keep the sign of a value, at some levels."""


def fuse(draft: Draft) -> None:
    """Apply the rules until none of them changes anything."""
    drop_unread(draft)
    busy = True
    while busy:
        busy = False
        for operation in list(draft.operations):
            rules = RULES.get(operation.kind, [])
            while operation in draft.operations and any(rule(draft, operation) for rule in rules):
                busy = True
        # This is last, because by then the readers of a shift are final.
        affines = [operation for operation in draft.operations if operation.kind == "affine"]
        busy = busy or any(shift_into_readers(draft, affine) for affine in affines)


def _before(draft: Draft, operation: Operation, *kinds: str) -> Operation | None:
    """The operation that writes the input x of ``operation``, if it is of these kinds and has no other reader."""
    found = draft.producer(operation.inputs["x"])
    if found is None or found.kind not in kinds or draft.sole_consumer(operation.inputs["x"]) is not operation:
        return None
    return found


def _take_over(draft: Draft, conv: Operation, operation: Operation) -> None:
    """``conv`` writes the output of ``operation`` and takes its place, after everything that either of them reads."""
    conv.outputs["float"] = operation.outputs["float"]
    draft.operations.remove(conv)
    draft.operations[draft.operations.index(operation)] = conv


# Affine


def affine_into_affine(draft: Draft, operation: Operation) -> bool:
    before = _before(draft, operation, "affine")
    if before is None:
        return False
    _scale(before, operation.tensors["scale"], operation.tensors["shift"])
    _take_over(draft, before, operation)
    return True


def affine_into_convolution(draft: Draft, operation: Operation) -> bool:
    conv = _before(draft, operation, *CONVOLUTIONS)
    if conv is None:
        return False
    if _can_scale(draft, conv):
        _scale_chain(draft, conv, operation.tensors["scale"], operation.tensors["shift"])
    elif is_shift(operation) and "activation" not in conv.attributes and "bits" not in conv.outputs:
        add_shift(conv, operation.tensors["shift"])  # in addition to what the convolution adds itself
    else:
        return False
    _take_over(draft, conv, operation)
    return True


def _can_scale(draft: Draft, conv: Operation) -> bool:
    """Whether a factor after ``conv`` can be merged into its scale: its residual must come from convolutions too."""
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


def _scale_chain(draft: Draft, conv: Operation, scale: Array, shift: Array) -> None:
    _scale(conv, scale, shift)
    if "residual" in conv.inputs:
        before = draft.producer(conv.inputs["residual"])
        assert before is not None
        draft.torch_values.pop(conv.inputs["residual"], None)  # torch's value is not scaled
        _scale_chain(draft, before, scale, np.zeros_like(shift))


def _scale(operation: Operation, scale: Array, shift: Array) -> None:
    """``scale (s x + b) + shift``."""
    operation.tensors["shift"] = operation.tensors.get("shift", np.zeros_like(shift)) * scale + shift
    operation.tensors["scale"] = operation.tensors.get("scale", np.ones_like(scale)) * scale


# What follows a maximum moves before it, into the convolution.


def affine_before_pool(draft: Draft, operation: Operation) -> bool:
    return bool((operation.tensors["scale"] >= 0).all()) and _before_pool(draft, operation)


def activation_before_pool(draft: Draft, operation: Operation) -> bool:
    return rises(operation) and _before_pool(draft, operation)


def rises(operation: Operation) -> bool:
    """Whether the activation of an operation never falls."""
    name, *numbers = operation.attributes["activation"]
    if name in ("leaky_relu", "elu"):
        return bool(numbers[0] >= 0)
    return name in RISING or (name == "prelu" and bool((operation.tensors["slope"] >= 0).all()))


def _before_pool(draft: Draft, operation: Operation) -> bool:
    """Turn pool, operation into operation, pool, if a convolution alone feeds the pool."""
    pool = _before(draft, operation, "max_pool")
    if pool is None or _before(draft, pool, *CONVOLUTIONS) is None:
        return False
    between = draft.new_buffer(operation.name, draft.buffers[pool.inputs["x"]])
    pool.outputs, written = dict(operation.outputs), pool.inputs["x"]
    pool.inputs, operation.inputs, operation.outputs = {"x": between}, {"x": written}, {"float": between}
    first, second = draft.operations.index(pool), draft.operations.index(operation)
    draft.operations[first], draft.operations[second] = operation, pool
    return True


# Sums and activations


def add_into_convolution(draft: Draft, operation: Operation) -> bool:
    """The later of two convolutions adds the output of the other, or whatever the shortcut is."""
    for own, other in sorted(
        [(operation.inputs["a"], operation.inputs["b"]), (operation.inputs["b"], operation.inputs["a"])],
        key=lambda pair: -_position(draft, pair[0]),
    ):
        conv = draft.producer(own)
        if (
            conv is not None
            and conv.kind in CONVOLUTIONS
            and "residual" not in conv.inputs
            and "activation" not in conv.attributes
            and "bits" not in conv.outputs
            and draft.sole_consumer(own) is operation
            and draft.buffers[own].shape == draft.buffers[other].shape
        ):
            conv.inputs["residual"] = other
            _take_over(draft, conv, operation)
            return True
    return False


def _position(draft: Draft, buffer: str) -> int:
    producer = draft.producer(buffer)
    return -1 if producer is None else draft.operations.index(producer)


def activation_into_convolution(draft: Draft, operation: Operation) -> bool:
    conv = _before(draft, operation, *CONVOLUTIONS)
    if conv is None or "activation" in conv.attributes or "bits" in conv.outputs:
        return False
    conv.attributes["activation"] = operation.attributes["activation"]
    conv.tensors |= operation.tensors
    _take_over(draft, conv, operation)
    return True


# Signs


def sign_without_activation(draft: Draft, operation: Operation) -> bool:
    """``act(x) > level`` is ``x > level`` if the activation keeps the order of values around the level."""
    before = _before(draft, operation, "activation")
    if before is None or operation.tensors or operation.attributes.get("level") == "mean" or not rises(before):
        return False
    name, *numbers = before.attributes["activation"]
    low, high = {"hardtanh": numbers, "relu6": [0.0, 6.0]}.get(name, [0.0, np.inf])
    if name not in KEEP_SIGNS or not low <= operation.attributes.get("level", 0.0) < high:
        return False
    if name in ("leaky_relu", "prelu") and operation.attributes.get("level", 0.0) != 0:
        return False
    operation.inputs["x"] = before.inputs["x"]
    draft.operations.remove(before)
    return True


def sign_of_affine(draft: Draft, operation: Operation) -> bool:
    before = _before(draft, operation, "affine")
    if before is None or operation.attributes.get("level") == "mean":
        return False
    _scale_before(operation, before.tensors["scale"], before.tensors["shift"])
    operation.inputs["x"] = before.inputs["x"]
    draft.operations.remove(before)
    return True


def _scale_before(operation: Operation, scale: Array, shift: Array) -> None:
    """``s (scale x + shift) + b`` minus the level, which becomes part of the shift."""
    own = operation.tensors.get("scale", np.ones_like(scale))
    level = operation.tensors.pop("level", operation.attributes.pop("level", 0.0))
    operation.tensors["shift"] = operation.tensors.get("shift", np.zeros_like(shift)) + own * shift - level
    operation.tensors["scale"] = own * scale


def sign_before_pool(draft: Draft, operation: Operation) -> bool:
    """The sign of a maximum is the maximum of signs, or their minimum if the scale is negative."""
    pool = _before(draft, operation, "max_pool")
    if pool is None or operation.attributes.get("level") == "mean" or pool.attributes.get("dilation", [1, 1]) != [1, 1]:
        return False
    attributes = {role: value for role, value in pool.attributes.items() if role != "dilation"}
    bits = draft.new_buffer(f"{pool.name}.sign", Buffer("bits", draft.buffers[pool.inputs["x"]].shape))
    pooled = Operation("max_pool_bits", pool.name, {"x": bits}, dict(operation.outputs), {}, attributes)
    if "scale" in operation.tensors and bool((operation.tensors["scale"] < 0).any()):
        pooled.tensors["invert"] = np.where(operation.tensors["scale"] < 0, 1, -1)
    operation.inputs, operation.outputs = {"x": pool.inputs["x"]}, {"bits": bits}
    draft.operations.remove(pool)
    draft.operations.insert(draft.operations.index(operation) + 1, pooled)
    return True


def sign_into_convolution(draft: Draft, operation: Operation) -> bool:
    """The convolution writes bits, in addition to its floats if something else reads them."""
    conv = draft.producer(operation.inputs["x"])
    if conv is None or conv.kind not in CONVOLUTIONS or "bits" in conv.outputs:
        return False
    if operation.attributes.get("level") == "mean":  # known only after the whole image
        return False
    alone = draft.sole_consumer(operation.inputs["x"]) is operation
    if "scale" in operation.tensors:
        if not alone or not _can_scale(draft, conv):
            return False
        _scale_chain(draft, conv, operation.tensors["scale"], operation.tensors["shift"])
    if operation.attributes.get("level", 0.0) != 0:
        conv.tensors["level"] = np.full(draft.channels(operation.outputs["bits"]), operation.attributes["level"])
    if "level" in operation.tensors:
        conv.tensors["level"] = operation.tensors["level"]
    if alone:
        del conv.outputs["float"]
    conv.outputs["bits"] = operation.outputs["bits"]
    draft.operations.remove(operation)
    return True


Rule = Callable[[Draft, Operation], bool]

RULES: dict[str, list[Rule]] = {
    "affine": [affine_into_affine, affine_into_convolution, affine_before_pool],
    "activation": [activation_into_convolution, activation_before_pool],
    "add": [add_into_convolution],
    "permute": [moves_into_one],
    "reshape": [moves_into_one, no_move],
    "pack": [sign_into_convolution, sign_without_activation, sign_of_affine, sign_before_pool],
}


def drop_unread(draft: Draft) -> None:
    """Remove operations whose outputs are never read."""
    read = set(draft.outputs)
    for operation in reversed(list(draft.operations)):
        if read & set(operation.outputs.values()):
            read.update(operation.inputs.values())
        else:
            draft.operations.remove(operation)
