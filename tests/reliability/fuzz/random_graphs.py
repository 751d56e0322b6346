"""Random valid networks: any operations on any existing buffers, with sizes that are awkward for kernels.

Small enough for `encode.py`: under 24 buffers and 16 operations, lists of the lengths that the fuzzer decodes.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from packed_networks import signs

from rbnn.packed.graph import Answer, Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.site import Follows, Number
from rbnn.packed.sizes import Free

Shape = tuple[int, int, int]

MOST_OPERATIONS, MOST_BUFFERS, MOST_VALUES = 15, 23, 1 << 13
CHANNELS = (1, 2, 3, 5, 8, 16, 24, 31, 32, 33, 63, 64, 65, 70, 128)
ACTIVATIONS: list[list[Any]] = [
    ["hardtanh", -1.0, 1.0], ["hardtanh", 0.25, 0.5], ["relu"], ["relu6"], ["leaky_relu", 0.25], ["prelu"],
    ["sigmoid"], ["hardswish"], ["abs"], ["elu", 0.5], ["elu", 1.0], ["selu"], ["gelu"], ["gelu_tanh"], ["silu"],
    ["softplus", 1, 20], ["softplus", 2, 3], ["tanh"], ["hardsigmoid"], ["mish"],
]  # fmt: skip
STEEP: list[list[Any]] = [["exp"], ["power", 2], ["power", 0.5], ["power", -1], ["power", 3]]
"""Activations that do not end a convolution here, because they would amplify the tolerated error of its sums."""
OVER = ("h", "w", "c", "hw", "hc", "wc", "hwc")


def random_graph(rng: np.random.Generator) -> Graph:
    """A valid graph.  Its output is the last float buffer, sometimes with a second one."""
    draft = Draft(rng)
    for _ in range(int(rng.integers(1, MOST_OPERATIONS - 1))):
        draft.add_operation()
    if len(draft.floats) == 1:  # only signs and bytes so far
        draft.add("mean", {"x": "image"}, {"float": (1, 1, draft.shape("image")[2])}, {}, {"over": "hw"})
    output: Answer = draft.floats[-1]
    if len(draft.floats) > 2 and draft.maybe(0.3):
        output = {"last": output, "others": [draft.one_of(draft.floats[1:])]}
    graph = Graph(Input("image"), output, draft.buffers, draft.operations)
    graph.check()
    return graph


def as_free(graph: Graph) -> Graph:
    """The graph with free sizes: slices and resized images depend on the size of the operation's input."""
    operations = []
    for operation in graph.operations:
        follows: dict[str, list[Number]] = {}
        if operation.kind in ("slice", "resize"):
            x, given = operation.inputs["x"], operation.attributes
            sides = zip(
                "hwc", graph.buffers[x].shape, given["stop" if operation.kind == "slice" else "size"], strict=False
            )
            if operation.kind == "slice":
                follows["stop"] = [Follows(x, axis, plus=stop - side) for axis, side, stop in sides]
            else:
                follows["size"] = [Follows(x, axis, size, side) for axis, side, size in sides]
        operations.append(replace(operation, follows=follows))
    return replace(graph, operations=operations, free=Free((1, 1)))


class Draft:
    """A graph under construction."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.buffers: dict[str, Buffer] = {}
        self.operations: list[Operation] = []
        if rng.random() < 0.3:  # an image whose first convolution may process four rows at a time
            shape = (int(rng.integers(9, 25)), int(rng.integers(3, 14)), int(rng.choice([3, 4, 6, 8])))
        else:
            shape = (int(rng.integers(1, 12)), int(rng.integers(1, 12)), int(rng.choice(CHANNELS)))
        self.buffers["image"] = Buffer("float", shape)

    def names(self, kind: str) -> list[str]:
        return [name for name, buffer in self.buffers.items() if buffer.type == kind]

    @property
    def floats(self) -> list[str]:
        return self.names("float")

    def shape(self, name: str) -> Shape:
        return self.buffers[name].shape

    def below(self, end: int) -> int:
        return int(self.rng.integers(end))

    def maybe(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def one_of(self, values: Any) -> Any:
        return values[self.below(len(values))]

    def numbers(self, *shape: int) -> NDArray[np.float32]:
        """Mostly of magnitude 1; some large or small, some exactly 0."""
        values = self.rng.normal(size=shape) * self.one_of([1, 1, 1, 1, 1, 1e-3, 30])
        return np.where(self.rng.random(shape) < 0.05, 0, values).astype(np.float32)

    def add(
        self,
        kind: str,
        inputs: dict[str, str],
        outputs: dict[str, Shape],
        tensors: dict[str, NDArray[Any]],
        attributes: dict[str, Any],
    ) -> bool:
        """Unless it would be empty or too large."""
        if any(min(shape) < 1 or np.prod(shape) > MOST_VALUES for shape in outputs.values()):
            return False
        if len(self.buffers) + len(outputs) > MOST_BUFFERS:
            return False
        number = len(self.operations)
        names = {role: f"{number}.{role}" for role in outputs}
        self.buffers |= {names[role]: Buffer(role, shape) for role, shape in outputs.items()}  # type: ignore[arg-type]
        self.operations.append(Operation(kind, f"{kind} {number}", inputs, names, tensors, attributes))
        return True

    def add_operation(self) -> None:
        """Add a random operation, or nothing if it is impossible here."""
        makers = [
            self.convolution, self.convolution, self.convolution, self.pack, self.pack, self.quantize, self.affine,
            self.activation, self.pool, self.adaptive, self.mean, self.pair, self.concat, self.reshape, self.cut,
            self.pad, self.constant, self.reduce, self.normalise, self.permute, self.resize, self.matmul, self.pair,
        ]  # fmt: skip
        self.one_of(makers)()

    def convolution(self) -> bool:
        kind = self.one_of([k for k, needs in CONVOLUTIONS.items() if self.names(needs)])
        x = self.one_of(self.names(CONVOLUTIONS[kind]))
        shape, window = self.shape(x), self.window(self.shape(x), 7)
        outputs = int(self.rng.choice(CHANNELS))
        attributes: dict[str, Any] = {key: value for key, value in window.items() if key == "kernel" or self.maybe(0.9)}
        each = shape[2]
        if kind != "int8_conv" and self.maybe(0.3):
            groups = self.one_of([g for g in range(1, each + 1) if each % g == 0])
            outputs, each, attributes["groups"] = groups * (1 + self.below(3)), each // groups, groups
        tensors: dict[str, NDArray[Any]] = {}
        size = (outputs, *window["kernel"], each)
        if kind == "binary_conv":
            tensors["weight"] = signs(self.rng, *size)
            if self.maybe(0.3):
                attributes["pad"] = self.one_of([0, -1])
        elif kind == "int8_conv" or self.maybe(0.2):
            tensors["weight"] = self.rng.integers(-128, 128, size, np.int8)
            if kind == "int8_conv" and self.maybe():
                tensors["zero"] = (255 * self.rng.random(each)).astype(np.float32)
        else:
            tensors["weight"] = self.numbers(*size)
        result = convolved(shape, attributes, outputs)
        if kind == "binary_conv" and self.maybe(0.2):
            spread = int(2 * np.sqrt(tensors["weight"][0].size * 8)) + 1
            tensors["threshold"] = self.rng.integers(-spread, spread + 1, outputs).astype(np.int32)
            return self.add(kind, {"x": x}, {"bits": result}, tensors, attributes)
        inputs = {"x": x}
        if residuals := [name for name in self.floats if self.shape(name) == result]:
            inputs |= {"residual": self.one_of(residuals)} if self.maybe(0.8) else {}
        writes = self.one_of([["float"], ["bits"], ["float", "bits"]])
        for role in ("scale", "shift", "level"):
            if self.maybe(0.4) and (role != "level" or "bits" in writes):
                tensors[role] = self.numbers(outputs)
        self.add_activation(tensors, attributes, outputs, 0.5)
        return self.add(kind, inputs, dict.fromkeys(writes, result), tensors, attributes)

    def add_activation(self, tensors: dict[str, Any], attributes: dict[str, Any], channels: int, chance: float) -> None:
        if self.maybe(chance):
            attributes["activation"] = self.one_of(ACTIVATIONS)
            if attributes["activation"] == ["prelu"]:
                tensors["slope"] = self.numbers(channels)

    def window(self, shape: Shape, largest: int, pool: bool = False) -> dict[str, list[int]]:
        """A kernel that fits and often overlaps the padding; at most half of a pool's kernel is padding."""
        found: dict[str, list[int]] = {"kernel": [], "stride": [], "padding": [], "dilation": []}
        for side in shape[:2]:
            padding = self.one_of([0, 0, 1, 2, 3, 6])
            dilation = 1 if pool else self.one_of([1, 1, 1, 2, 3])
            most = (side + 2 * padding - 1) // dilation + 1
            kernel = 1 + self.below(min(most, largest))
            if pool:
                padding = min(padding, kernel // 2)
                kernel = min(kernel, side + 2 * padding)
                padding = min(padding, kernel // 2)
            found["kernel"].append(kernel)
            found["stride"].append(self.one_of([1, 1, 2, 3]))
            found["padding"].append(padding)
            found["dilation"].append(dilation)
        return found

    def pack(self) -> bool:
        x = self.one_of(self.floats)
        shape = self.shape(x)
        if self.maybe(0.3):
            return self.add("pack", {"x": x}, {"bits": shape}, {}, {"level": self.one_of(["mean", "mean", 0.5])})
        tensors = {role: self.numbers(shape[2]) for role in ("scale", "shift", "level") if self.maybe(0.3)}
        return self.add("pack", {"x": x}, {"bits": shape}, tensors, {})

    def quantize(self) -> bool:
        x = self.one_of(self.floats)
        shape = self.shape(x)
        tensors = {"scale": self.numbers(shape[2]) * 60, "shift": 128 + self.numbers(shape[2])}
        return self.add(
            "quantize", {"x": x}, {"bytes": shape}, {k: v.astype(np.float32) for k, v in tensors.items()}, {}
        )

    def affine(self) -> bool:
        x = self.one_of(self.floats)
        shape = self.shape(x)
        tensors: dict[str, NDArray[Any]] = {role: self.numbers(shape[2]) for role in ("scale", "shift")}
        return self.add("affine", {"x": x}, {"float": shape}, tensors, {})

    def activation(self) -> bool:
        x = self.one_of(self.floats)
        tensors: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        self.add_activation(tensors, attributes, self.shape(x)[2], 1)
        if self.maybe(0.2):
            tensors, attributes = {}, {"activation": self.one_of(STEEP)}
        return self.add("activation", {"x": x}, {"float": self.shape(x)}, tensors, attributes)

    def pool(self) -> bool:
        bits = bool(self.names("bits")) and self.maybe()
        x = self.one_of(self.names("bits" if bits else "float"))
        shape = self.shape(x)
        kind = "max_pool_bits" if bits else self.one_of(["max_pool", "avg_pool"])
        attributes: dict[str, Any] = self.window(shape, 5, pool=True)
        del attributes["dilation"]
        if self.maybe(0.3):
            attributes["ceil"] = self.maybe()
        if kind == "avg_pool" and self.maybe():
            attributes["count_padding"] = self.maybe()
        tensors = {"invert": signs(self.rng, shape[2])} if bits and self.maybe() else {}
        result = convolved(shape, attributes, shape[2])
        return self.add(kind, {"x": x}, {"bits" if bits else "float": result}, tensors, attributes)

    def adaptive(self) -> bool:
        x, size = self.one_of(self.floats), [1 + self.below(6), 1 + self.below(6)]
        kind = self.one_of(["adaptive_max_pool", "adaptive_avg_pool"])
        return self.add(kind, {"x": x}, {"float": (*size, self.shape(x)[2])}, {}, {"size": size})

    def reduced(self, shape: Shape, over: str) -> Shape:
        height, width, channels = (1 if axis in over else side for axis, side in zip("hwc", shape, strict=True))
        return height, width, channels

    def mean(self) -> bool:
        x, over = self.one_of(self.floats), self.one_of(["hw", "c", *OVER])
        return self.add("mean", {"x": x}, {"float": self.reduced(self.shape(x), over)}, {}, {"over": over})

    def reduce(self) -> bool:
        x, over, how = self.one_of(self.floats), self.one_of(OVER), self.one_of(["sum", "max", "min"])
        shape = self.reduced(self.shape(x), over)
        return self.add("reduce", {"x": x}, {"float": shape}, {}, {"over": over, "how": how})

    def normalise(self) -> bool:
        x, kind = self.one_of(self.floats), self.one_of(["softmax", "standardize", "local_norm"])
        shape = self.shape(x)
        attributes: dict[str, Any] = {"over": self.one_of(OVER)}
        if kind == "softmax" and self.maybe():
            attributes["log"] = self.maybe()
        if kind == "standardize":
            attributes["eps"] = self.one_of([1e-5, 0.5])
            if attributes["over"] == "hwc" or self.maybe():
                groups = [g for g in range(1, shape[2] + 1) if shape[2] % g == 0]
                attributes |= {"over": "hwc", "groups": self.one_of(groups)}
        if kind == "local_norm":
            attributes = {"window": 1 + self.below(6), "alpha": self.one_of([0.5, 1]), "beta": self.one_of([0.5, 1, 2])}
            attributes["k"] = self.one_of([1, 2])
        return self.add(kind, {"x": x}, {"float": shape}, {}, attributes)

    def permute(self) -> bool:
        x = self.one_of(self.floats)
        values, sides = int(np.prod(self.shape(x))), []
        for _ in range(1 + self.below(4)):
            sides.append(self.one_of([n for n in range(1, 20) if values % n == 0]))
            values //= sides[-1]
        sides.append(values)
        order = [int(axis) for axis in self.rng.permutation(len(sides))]
        return self.add("permute", {"x": x}, {"float": self.any_shape(x)}, {}, {"sides": sides, "order": order})

    def any_shape(self, x: str) -> Shape:
        """A buffer shape with the same number of values."""
        values = int(np.prod(self.shape(x)))
        height = self.one_of([n for n in range(1, 20) if values % n == 0])
        width = self.one_of([n for n in range(1, 20) if values // height % n == 0])
        return height, width, values // height // width

    def resize(self) -> bool:
        x, size = self.one_of(self.floats), [1 + self.below(14), 1 + self.below(14)]
        attributes: dict[str, Any] = {"size": size}
        attributes["mode"] = self.one_of(["nearest", "nearest_exact", "bilinear", "bilinear", "bicubic"])
        if attributes["mode"].startswith("bi") and self.maybe(0.4):
            attributes["align"] = True
        elif self.maybe(0.3):
            attributes["scale"] = [self.one_of([0.5, 1, 2, 3]), self.one_of([0.5, 1, 2, 3])]
        return self.add("resize", {"x": x}, {"float": (*size, self.shape(x)[2])}, {}, attributes)

    def matmul(self) -> bool:
        """Multiply two buffers, or a buffer and its own permutation if no other fits."""
        a = self.one_of(self.floats)
        height, width, channels = self.shape(a)
        fits = [b for b in self.floats if self.shape(b)[0] == width and self.shape(b)[2] == channels]
        if not fits:
            attributes = {"sides": [height, width, channels], "order": [1, 0, 2]}
            if not self.add("permute", {"x": a}, {"float": (width, height, channels)}, {}, attributes):
                return False
            fits = [self.floats[-1]]
        b = self.one_of(fits)
        return self.add("matmul", {"a": a, "b": b}, {"float": (height, self.shape(b)[1], channels)}, {}, {})

    def pair(self) -> bool:
        a = self.one_of(self.floats)
        fits = [
            b
            for b in self.floats
            if all(p == q or 1 in (p, q) for p, q in zip(self.shape(a), self.shape(b), strict=True))
        ]
        b = self.one_of(fits)
        left, right = (a, b) if self.maybe() else (b, a)
        p, q = self.shape(a), self.shape(b)
        result = (max(p[0], q[0]), max(p[1], q[1]), max(p[2], q[2]))
        return self.add(
            self.one_of(["add", "multiply", "divide", "maximum", "minimum"]),
            {"a": left, "b": right},
            {"float": result},
            {},
            {},
        )

    def concat(self) -> bool:
        first = self.one_of(self.floats)
        axis = self.one_of(["c", "c", "h", "w"])
        at = "hwc".index(axis)

        def others(name: str) -> list[int]:
            return [side for place, side in enumerate(self.shape(name)) if place != at]

        fits = [name for name in self.floats if others(name) == others(first)]
        chosen = [first, *(self.one_of(fits) for _ in range(self.below(3)))]
        sides = list(self.shape(first))
        sides[at] = sum(self.shape(name)[at] for name in chosen)
        inputs = {f"x{i}": name for i, name in enumerate(chosen)}
        attributes = {} if axis == "c" and not self.maybe() else {"axis": axis}
        return self.add("concat", inputs, {"float": (sides[0], sides[1], sides[2])}, {}, attributes)

    def reshape(self) -> bool:
        x = self.one_of(self.floats)
        shape = self.any_shape(x)
        return self.add("reshape", {"x": x}, {"float": shape}, {}, {"order": self.one_of(["chw", "hwc"])})

    def cut(self) -> bool:
        x = self.one_of(self.floats)
        start, stop, step, shape = [], [], [], []
        for side in self.shape(x):
            first = self.below(side)
            last = first + 1 + self.below(side - first)
            start.append(first)
            stop.append(last)
            step.append(1 + self.below(3))
            shape.append(-(-(last - first) // step[-1]))
        return self.add("slice", {"x": x}, {"float": (shape[0], shape[1], shape[2])}, {},
                        {"start": start, "stop": stop, "step": step})  # fmt: skip

    def pad(self) -> bool:
        x = self.one_of(self.floats)
        before, after = ([self.one_of([0, 0, 1, 2]) for _ in range(3)] for _ in range(2))
        if self.maybe(0.4):
            return self.mirrored(x, before, after)
        height, width, channels = (b + side + a for b, side, a in zip(before, self.shape(x), after, strict=True))
        attributes: dict[str, Any] = {"before": before, "after": after}
        if self.maybe():
            attributes["value"] = self.one_of([0, 0.5, -1])
        return self.add("pad", {"x": x}, {"float": (height, width, channels)}, {}, attributes)

    def mirrored(self, x: str, before: list[int], after: list[int]) -> bool:
        mode = self.one_of(["reflect", "replicate", "circular", "constant"])
        shape = self.shape(x)
        most = [side - (mode == "reflect") for side in shape[:2]] if mode in ("reflect", "circular") else [9, 9]
        before, after = ([*map(min, each, most), 0] for each in (before, after))
        height, width, channels = (b + side + a for b, side, a in zip(before, shape, after, strict=True))
        attributes = {"before": before, "after": after, "mode": mode}
        return self.add("pad", {"x": x}, {"float": (height, width, channels)}, {}, attributes)

    def constant(self) -> bool:
        shape = self.shape(self.one_of(self.floats))
        return self.add("constant", {}, {"float": shape}, {"value": self.numbers(*shape)}, {})


CONVOLUTIONS = {"float_conv": "float", "binary_conv": "bits", "int8_conv": "bytes"}


def convolved(shape: Shape, attributes: dict[str, Any], channels: int) -> Shape:
    """The output size of a window.  A pool's stride defaults to its kernel, but here it is always given."""
    sides = []
    for side, k, s, p, d in zip(
        shape[:2], attributes["kernel"], attributes.get("stride", [1, 1]), attributes.get("padding", [0, 0]),
        attributes.get("dilation", [1, 1]), strict=True,
    ):  # fmt: skip
        rest = side + 2 * p - d * (k - 1) - 1
        count = rest // s + 1
        sides.append(count + (attributes.get("ceil", False) and rest % s > 0 and count * s < side + p))
    return sides[0], sides[1], channels
