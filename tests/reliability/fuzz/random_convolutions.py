"""Random convolutions, and what makes their inputs: signs, bytes, affine maps and activations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from packed_networks import signs
from random_draft import CHANNELS, Draft, Shape

from rbnn.packed.site import Follows

ACTIVATIONS: list[list[Any]] = [
    ["hardtanh", -1.0, 1.0], ["hardtanh", 0.25, 0.5], ["relu"], ["relu6"], ["leaky_relu", 0.25], ["prelu"],
    ["sigmoid"], ["hardswish"], ["abs"], ["elu", 0.5], ["elu", 1.0], ["selu"], ["gelu"], ["gelu_tanh"], ["silu"],
    ["softplus", 1, 20], ["softplus", 2, 3], ["tanh"], ["hardsigmoid"], ["mish"],
]  # fmt: skip
STEEP: list[list[Any]] = [["exp"], ["power", 2], ["power", 0.5], ["power", -1], ["power", 3]]
"""Activations that do not end a float convolution here, because they would amplify the tolerated error of its sums."""
CONVOLUTIONS = {"float_conv": "float", "binary_conv": "bits", "int8_conv": "bytes"}


def convolution(draft: Draft) -> bool:
    kind = draft.one_of([k for k, needs in CONVOLUTIONS.items() if draft.names(needs)])
    x = draft.one_of(draft.names(CONVOLUTIONS[kind]))
    shape, around = draft.shape(x), window(draft, draft.shape(x), 7)
    outputs = int(draft.rng.choice(CHANNELS))
    attributes: dict[str, Any] = {key: value for key, value in around.items() if key == "kernel" or draft.maybe(0.9)}
    each = shape[2]
    if kind != "int8_conv" and draft.maybe(0.3):
        groups = draft.divisor(each, each)
        outputs, each, attributes["groups"] = groups * (1 + draft.below(3)), each // groups, groups
    tensors: dict[str, NDArray[Any]] = {}
    size = (outputs, *around["kernel"], each)
    if kind == "binary_conv":
        tensors["weight"] = signs(draft.rng, *size)
        if draft.maybe(0.3):
            attributes["pad"] = draft.one_of([0, -1])
    elif kind == "int8_conv" or draft.maybe(0.2):
        tensors["weight"] = draft.rng.integers(-128, 128, size, np.int8)
        if kind == "int8_conv" and draft.maybe():
            tensors["zero"] = (255 * draft.rng.random(each)).astype(np.float32)
    else:
        tensors["weight"] = draft.numbers(*size)
    result = convolved(shape, attributes, outputs)
    if kind == "binary_conv" and draft.maybe(0.2):
        spread = int(2 * np.sqrt(tensors["weight"][0].size * 8)) + 1
        tensors["threshold"] = draft.rng.integers(-spread, spread + 1, outputs).astype(np.int32)
        return draft.add(kind, {"x": x}, {"bits": result}, tensors, attributes)
    inputs = {"x": x}
    if draft.maybe(0.1):  # so that there is a residual behind bytes, too
        draft.add("constant", {}, {"float": result}, {"value": draft.numbers(*result)})
    if residuals := [name for name in draft.floats if draft.shape(name) == result]:
        inputs |= {"residual": draft.one_of(residuals)} if draft.maybe(0.8) else {}
    writes = draft.one_of([["float"], ["bits"], ["float", "bits"]])
    for role in ("scale", "shift", "level"):
        if draft.maybe(0.4) and (role != "level" or "bits" in writes):
            tensors[role] = draft.numbers(outputs)
    _add_activation(draft, tensors, attributes, outputs, 0.5)
    if kind != "float_conv" and draft.maybe(0.1):
        attributes["activation"] = draft.one_of(STEEP)
        tensors.pop("slope", None)
    return draft.add(kind, inputs, dict.fromkeys(writes, result), tensors, attributes)


def transposed(draft: Draft) -> bool:
    """A binary transposed convolution as the exporter writes it: all phases of its output as channels of one
    convolution, which a permutation spreads over the image, and a slice that cuts the padding off."""
    if not draft.names("bits"):
        return False
    x = draft.one_of(draft.names("bits"))
    shape, outputs = draft.shape(x), draft.one_of([1, 3, 8, 16])
    stride, taps = [1 + draft.below(3) for _ in range(2)], [1 + draft.below(2) for _ in range(2)]
    attributes = {"kernel": taps, "padding": [each - 1 for each in taps]}
    together = int(np.prod(stride)) * outputs
    height, width, _ = convolved(shape, attributes, together)
    weight = signs(draft.rng, together, *taps, shape[2])
    if not draft.add("binary_conv", {"x": x}, {"float": (height, width, together)}, {"weight": weight}, attributes):
        return False
    phases, spread = draft.answers[-1], (height * stride[0], width * stride[1], outputs)
    if not draft.add(
        "permute", {"x": phases}, {"float": spread}, {},
        {"sides": [height, width, *stride, outputs], "order": [0, 2, 1, 3, 4]},
        {
            "sides": [Follows(phases, "h"), Follows(phases, "w"), *stride, outputs],
            "shape": [Follows(phases, "h", stride[0]), Follows(phases, "w", stride[1]), outputs],
        },
    ):  # fmt: skip
        return False
    whole, margin = draft.answers[-1], [draft.below(min(side, 3)) for side in spread[:2]]
    kept = (spread[0] - margin[0], spread[1] - margin[1], outputs)
    return draft.add(
        "slice", {"x": whole}, {"float": kept}, {},
        {"start": [*margin, 0], "stop": list(spread), "step": [1, 1, 1]},
        {"stop": [Follows(whole, "h"), Follows(whole, "w"), outputs]},
    )  # fmt: skip


def _add_activation(
    draft: Draft, tensors: dict[str, Any], attributes: dict[str, Any], channels: int, chance: float
) -> None:
    if draft.maybe(chance):
        attributes["activation"] = draft.one_of(ACTIVATIONS)
        if attributes["activation"] == ["prelu"]:
            tensors["slope"] = draft.numbers(channels)


def window(draft: Draft, shape: Shape, largest: int, pool: bool = False) -> dict[str, list[int]]:
    """A kernel that fits and often overlaps the padding; at most half of a pool's kernel is padding."""
    found: dict[str, list[int]] = {"kernel": [], "stride": [], "padding": [], "dilation": []}
    for side in shape[:2]:
        padding = draft.one_of([0, 0, 1, 2, 3, 6])
        dilation = 1 if pool else draft.one_of([1, 1, 1, 2, 3])
        most = (side + 2 * padding - 1) // dilation + 1
        kernel = 1 + draft.below(min(most, largest))
        if pool:
            padding = min(padding, kernel // 2)
            kernel = min(kernel, side + 2 * padding)
            padding = min(padding, kernel // 2)
        found["kernel"].append(kernel)
        found["stride"].append(draft.one_of([1, 1, 2, 3]))
        found["padding"].append(padding)
        found["dilation"].append(dilation)
    return found


def convolved(shape: Shape, attributes: dict[str, Any], channels: int) -> Shape:
    """The output size of a window, whose stride defaults to 1."""
    sides = []
    for side, k, s, p, d in zip(
        shape[:2], attributes["kernel"], attributes.get("stride", [1, 1]), attributes.get("padding", [0, 0]),
        attributes.get("dilation", [1, 1]), strict=True,
    ):  # fmt: skip
        rest = side + 2 * p - d * (k - 1) - 1
        count = rest // s + 1 if rest >= 0 else 0
        sides.append(count + (rest >= 0 and attributes.get("ceil", False) and rest % s > 0 and count * s < side + p))
    return sides[0], sides[1], channels


def pack(draft: Draft) -> bool:
    x = draft.one_of(draft.floats)
    shape = draft.shape(x)
    if draft.maybe(0.3):
        return draft.add("pack", {"x": x}, {"bits": shape}, {}, {"level": draft.one_of(["mean", "mean", 0.5])})
    tensors = {role: draft.numbers(shape[2]) for role in ("scale", "shift", "level") if draft.maybe(0.3)}
    return draft.add("pack", {"x": x}, {"bits": shape}, tensors)


def quantize(draft: Draft) -> bool:
    x = draft.one_of(draft.floats)
    shape = draft.shape(x)
    tensors = {"scale": draft.numbers(shape[2]) * 60, "shift": 128 + draft.numbers(shape[2])}
    return draft.add("quantize", {"x": x}, {"bytes": shape}, {k: v.astype(np.float32) for k, v in tensors.items()})


def affine(draft: Draft) -> bool:
    x = draft.one_of(draft.floats)
    shape = draft.shape(x)
    return draft.add(
        "affine", {"x": x}, {"float": shape}, {role: draft.numbers(shape[2]) for role in ("scale", "shift")}
    )


def activation(draft: Draft) -> bool:
    x = draft.one_of(draft.floats)
    tensors: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    _add_activation(draft, tensors, attributes, draft.shape(x)[2], 1)
    if draft.maybe(0.2):
        tensors, attributes = {}, {"activation": draft.one_of(STEEP)}
    return draft.add("activation", {"x": x}, {"float": draft.shape(x)}, tensors, attributes)
