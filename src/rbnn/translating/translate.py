"""Translate a graph to another engine or format.

`translate` visits the operations once; a `Builder` defines each primitive for the engine.  Images are N×C×H×W.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import numpy as np

from rbnn.errors import ExportError
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation, Shape
from rbnn.packed.oracle import int8_conv, unpack
from rbnn.text import quoted
from rbnn.translating.builder import Array, Builder, Filters, Window
from rbnn.translating.permuting import permuted
from rbnn.translating.resizing import resized

V = TypeVar("V")

AXES = {"c": 1, "h": 2, "w": 3}


@dataclass
class Signs:
    """Bits, as the values before the sign, so that pools can work on these."""

    value: Any
    level: Array
    """(1, C, 1, 1), or one number for all channels."""
    binarized: Any = None
    """The input of binary convolutions, once one of them has needed it."""


def translate(graph: Graph, builder: Builder[V], image: V) -> dict[str, V | Signs]:
    """The counterparts of the graph's buffers, computed from ``image``."""
    values: dict[str, Any] = {graph.input.buffer: image}
    for operation in graph.operations:
        builder.layer = operation.name
        _Step(graph, builder, operation, values).run()
    return values


def translates(kind: str) -> bool:
    """Whether operations of this kind have a translation."""
    return hasattr(_Step, f"_{kind}")


def _columns(array: Array) -> Array:
    """One number per channel, as an image."""
    return array.astype(np.float32).reshape(1, -1, 1, 1)


@dataclass(frozen=True)
class _Step:
    graph: Graph
    builder: Builder[Any]
    operation: Operation
    values: dict[str, Any]

    def run(self) -> None:
        operation = self.operation
        if not translates(operation.kind):
            raise ExportError(
                f"operation {quoted(operation.name)} ({operation.kind}) has no translation: this network cannot be "
                "used with other engines or formats"
            )
        made = getattr(self, f"_{operation.kind}")()
        for role, name in operation.outputs.items():
            self.values[name] = made
            if role == "bits" and not isinstance(made, Signs):
                level = self.tensor("level")
                self.values[name] = Signs(made, _columns(np.zeros(1) if level is None else level))

    def input(self, role: str) -> Any:
        return self.values[self.operation.inputs[role]]

    def shape(self, role: str) -> Shape:
        return self.graph.buffers[self.operation.inputs[role]].shape

    def tensor(self, role: str) -> Array | None:
        return self.operation.tensors.get(role)

    def window(self) -> Window:
        return Window.of(self.operation, self.graph)

    def affine(self, x: Any) -> Any:
        """scale · x + shift, if these tensors exist.  The constant is the first operand: ONNX Runtime would fold a
        constant second operand after a convolution into its weights, and sums of signs would no longer be integers."""
        for role, how in (("scale", "multiply"), ("shift", "add")):
            numbers = self.tensor(role)
            if numbers is not None:
                x = self.builder.pairwise(how, self.builder.constant(_columns(numbers)), x)
        return x

    def finish(self, x: Any) -> Any:
        if "residual" in self.operation.inputs:
            x = self.builder.pairwise("add", x, self.input("residual"))
        return self.activate(x)

    def activate(self, x: Any) -> Any:
        if "activation" not in self.operation.attributes:
            return x
        name, *numbers = self.operation.attributes["activation"]
        return self.builder.activation(x, name, numbers, self.tensor("slope"))

    def _float_conv(self) -> Any:
        """The scale goes to the weights and the shift becomes the bias, as every engine would fold them."""
        weight, shift = self.tensor("weight"), self.tensor("shift")
        assert weight is not None
        filters = Filters(weight.transpose(0, 3, 1, 2), self.tensor("scale"))
        groups, window = self.operation.attributes.get("groups", 1), self.window()
        if self.shape("x")[:2] == window.kernel == (1, 1) and groups == 1 and window.padding == (0, 0):
            return self.finish(self.builder.linear(self.input("x"), filters, shift))
        return self.finish(self.builder.conv(self.input("x"), filters, shift, window, groups))

    def _int8_conv(self) -> Any:
        """Σ w·u − Σ w·zero over the taps inside the image.  In floats, the first sum is exact below 2²⁴, which 512 taps
        cannot reach.  The second is the same for every image."""
        weight = self.tensor("weight")
        assert weight is not None
        sums = self.builder.conv(self.input("x"), Filters(weight.transpose(0, 3, 1, 2)), None, self.window(), 1)
        if self.tensor("zero") is not None:
            nothing = np.zeros((1, *self.shape("x")), np.uint8)
            offset = int8_conv(nothing, self.operation.tensors, self.operation.attributes)
            sums = self.builder.pairwise("add", self.builder.picture(offset.transpose(0, 3, 1, 2)), sums)
        return self.finish(self.affine(sums))

    def _quantize(self) -> Any:
        return self.builder.round_to_bytes(self.affine(self.input("x")))

    def _binary_conv(self) -> Any:
        signs: Signs = self.input("x")
        channels, groups = self.shape("x")[2], self.operation.attributes.get("groups", 1)
        if signs.binarized is None:
            signs.binarized = self.builder.binarize(signs.value, np.broadcast_to(signs.level, (1, channels, 1, 1)))
        packed = self.tensor("weight")
        assert packed is not None
        weight = unpack(packed, channels // groups).transpose(0, 3, 1, 2)
        pad = self.operation.attributes.get("pad", 0)
        sums = self.builder.binary_conv(signs.binarized, weight, self.window(), pad, groups)
        threshold = self.tensor("threshold")
        if threshold is not None:
            return Signs(sums, _columns(threshold))
        return self.finish(self.affine(sums))

    def _pack(self) -> Any:
        x, level = self.affine(self.input("x")), self.operation.attributes.get("level", 0.0)
        if level == "mean":
            return self.builder.pairwise("subtract", x, self.builder.reduce(x, "mean", (1, 2, 3)))
        numbers = self.tensor("level")
        return Signs(x, _columns(np.full(1, level) if numbers is None else numbers))

    def _max_pool_bits(self) -> Any:
        signs, packed = self.input("x"), self.tensor("invert")
        value, turn = signs.value, None
        if packed is not None and packed.any():
            turn = self.builder.constant(_columns(-unpack(packed, self.shape("x")[2])))
            value = self.builder.pairwise("multiply", turn, value)
        value = self.builder.max_pool(value, self.window())
        return Signs(value if turn is None else self.builder.pairwise("multiply", value, turn), signs.level)

    def _affine(self) -> Any:
        return self.affine(self.input("x"))

    def _activation(self) -> Any:
        return self.activate(self.input("x"))

    def _max_pool(self) -> Any:
        return self.builder.max_pool(self.input("x"), self.window())

    def _avg_pool(self) -> Any:
        count_padding = self.operation.attributes.get("count_padding", True)
        return self.builder.avg_pool(self.input("x"), self.window(), count_padding)

    def _adaptive_max_pool(self) -> Any:
        return self.adaptive("max")

    def _adaptive_avg_pool(self) -> Any:
        return self.adaptive("mean")

    def adaptive(self, how: str) -> Any:
        """Cell (i, j) covers rows ⌊i·H/h⌋ … ⌈(i + 1)·H/h⌉, and columns likewise."""
        (height, width, channels), (rows, columns) = self.shape("x"), self.operation.attributes["size"]
        if height % rows == width % columns == 0:
            cell = height // rows, width // columns
            return self.pool(how, Window.plain(cell, cell))
        lines = []
        for i in range(rows):
            cells = []
            for j in range(columns):
                start = 0, i * height // rows, j * width // columns
                stop = channels, -(-(i + 1) * height // rows), -(-(j + 1) * width // columns)
                part = self.builder.slice(self.input("x"), start, stop, (1, 1, 1))
                cells.append(self.builder.reduce(part, how, (2, 3)))
            lines.append(self.builder.concat(cells, 3))
        return self.builder.concat(lines, 2)

    def pool(self, how: str, window: Window) -> Any:
        if how == "max":
            return self.builder.max_pool(self.input("x"), window)
        return self.builder.avg_pool(self.input("x"), window, True)

    def over(self) -> tuple[int, ...]:
        return tuple(sorted(AXES[axis] for axis in self.operation.attributes["over"]))

    def _mean(self) -> Any:
        return self.builder.reduce(self.input("x"), "mean", self.over())

    def _reduce(self) -> Any:
        return self.builder.reduce(self.input("x"), self.operation.attributes["how"], self.over())

    def _softmax(self) -> Any:
        """Several axes are merged into one."""
        x, axes, log = self.input("x"), self.over(), bool(self.operation.attributes.get("log"))
        if len(axes) == 1:
            return self.builder.softmax(x, axes[0], log)
        height, width, channels = self.shape("x")
        sides = {1: channels, 2: height, 3: width}
        order = (*(axis for axis in sides if axis not in axes), *axes)
        many = prod(sides[axis] for axis in axes)
        x = self.builder.reshape(self.builder.transpose(x, (0, *order)), (prod(sides.values()) // many, many, 1))
        x = self.builder.reshape(self.builder.softmax(x, 2, log), tuple(sides[axis] for axis in order))
        return self.builder.transpose(x, (0, *(1 + order.index(axis) for axis in sides)))

    def _standardize(self) -> Any:
        """A group of channels becomes one channel with correspondingly more rows."""
        x, attributes = self.input("x"), self.operation.attributes
        groups, eps = attributes.get("groups", 1), float(attributes["eps"])
        if groups == 1:
            return self.builder.standardize(x, self.over(), eps)
        height, width, channels = self.shape("x")
        apart = self.builder.reshape(x, (groups, channels // groups, height * width))
        return self.builder.reshape(self.builder.standardize(apart, (2, 3), eps), (channels, height, width))

    def _local_norm(self) -> Any:
        """Other engines have it only for odd windows and positive numbers."""
        x, attributes, builder = self.input("x"), self.operation.attributes, self.builder
        window, (alpha, beta, k) = attributes["window"], (float(attributes[role]) for role in ("alpha", "beta", "k"))
        if window % 2 and min(alpha, beta) > 0:
            return builder.local_norm(x, window, alpha, beta, k)
        height, width, channels = self.shape("x")
        squares = builder.pad(builder.pairwise("multiply", x, x), (window // 2, 0, 0), ((window - 1) // 2, 0, 0), 0.0)
        rows = builder.reshape(squares, (1, channels + window - 1, height * width))
        means = builder.avg_pool(rows, Window.plain((window, 1), (1, 1)), True)
        means = builder.reshape(means, (channels, height, width))
        around = builder.pairwise("multiply", builder.constant(_columns(np.full(1, alpha))), means)
        around = builder.pairwise("add", builder.constant(_columns(np.full(1, k))), around)
        return builder.pairwise("divide", x, builder.activation(around, "power", [beta], None))

    def _add(self) -> Any:
        return self.builder.pairwise(self.operation.kind, self.input("a"), self.input("b"))

    _multiply = _divide = _maximum = _minimum = _matmul = _add

    def _concat(self) -> Any:
        axis = AXES[self.operation.attributes.get("axis", "c")]
        return self.builder.concat([self.input(f"x{i}") for i in range(len(self.operation.inputs))], axis)

    def _reshape(self) -> Any:
        before, after = self.shape("x"), self.graph.buffers[self.operation.outputs["float"]].shape
        if self.operation.attributes["order"] == "chw":
            return self.builder.reshape(self.input("x"), (after[2], *after[:2]))
        return permuted(self.builder, self.input("x"), before, before, (0, 1, 2), after)

    def _permute(self) -> Any:
        sides, order = self.operation.attributes["sides"], self.operation.attributes["order"]
        after = self.graph.buffers[self.operation.outputs["float"]].shape
        return permuted(self.builder, self.input("x"), self.shape("x"), sides, order, after)

    def _resize(self) -> Any:
        height, width, _ = self.shape("x")
        return resized(self.builder, self.input("x"), (height, width), self.operation.attributes)

    def _slice(self) -> Any:
        start, stop, step = self.triples("start", "stop", "step")
        return self.builder.slice(self.input("x"), start, stop, step)

    def _select(self) -> Any:
        places = np.array(self.operation.attributes["places"])
        return self.builder.gather(self.input("x"), places, AXES[self.operation.attributes.get("axis", "c")])

    def _pad(self) -> Any:
        x, (before, after) = self.input("x"), self.triples("before", "after")
        mode = self.operation.attributes.get("mode", "constant")
        if mode == "constant":
            return self.builder.pad(x, before, after, float(self.operation.attributes.get("value", 0.0)))
        if mode != "circular":
            return self.builder.border(x, before, after, mode)
        for axis, side in zip((2, 3), self.shape("x")[:2], strict=True):
            places = np.pad(np.arange(side), (before[axis - 1], after[axis - 1]), "wrap")
            x = self.builder.gather(x, places, axis)
        return x

    def triples(self, *roles: str) -> list[tuple[int, int, int]]:
        """(height, width, channels) as (channels, height, width)."""
        given = (self.operation.attributes[role] for role in roles)
        return [(channels, height, width) for height, width, channels in given]

    def _constant(self) -> Any:
        value = self.tensor("value")
        assert value is not None
        return self.builder.repeat(value.transpose(2, 0, 1)[None])
