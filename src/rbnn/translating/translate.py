"""A graph in the words of another engine or format.

`translate` walks the operations once; a `Builder` says what each primitive is called there.  Pictures are N×C×H×W.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import ExportError
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation
from rbnn.packed.oracle import int8_conv, unpack
from rbnn.text import quoted

Array = NDArray[Any]
V = TypeVar("V")

AXES = {"c": 1, "h": 2, "w": 3}
ACTIVATIONS = ("hardtanh", "relu", "relu6", "leaky_relu", "prelu", "sigmoid", "hardswish", "abs")
"""Those that every builder knows."""


@dataclass(frozen=True)
class Window:
    """How a kernel passes over a picture; pairs are (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    ceil: bool
    end: tuple[int, int]
    """Padding below and on the right: ``padding``, or more where a ceiled window sees beyond it."""

    @classmethod
    def of(cls, operation: Operation, graph: Graph) -> "Window":
        given = operation.attributes
        kernel: tuple[int, int] = tuple(given["kernel"])
        step = (1, 1) if operation.kind.endswith("_conv") else kernel
        stride, padding = tuple(given.get("stride", step)), tuple(given.get("padding", (0, 0)))
        dilation = tuple(given.get("dilation", (1, 1)))
        before = graph.buffers[operation.inputs["x"]].shape[:2]
        after = graph.buffers[next(iter(operation.outputs.values()))].shape[:2]
        end = tuple(
            max(p, (count - 1) * s + d * (k - 1) + 1 - side - p)
            for side, count, k, s, p, d in zip(before, after, kernel, stride, padding, dilation, strict=True)
        )
        return cls(kernel, stride, padding, dilation, bool(given.get("ceil", False)), end)

    @classmethod
    def tiles(cls, kernel: tuple[int, int]) -> "Window":
        """One beside the other."""
        return cls(kernel, kernel, (0, 0), (1, 1), False, (0, 0))


@dataclass(frozen=True)
class Filters:
    """Weights (O, C, kh, kw), float32 or int8, each filter times its scale."""

    values: Array
    scale: Array | None = None

    @property
    def numbers(self) -> Array:
        """As float32, with the scale in them, as every engine would fold it."""
        numbers = self.values.astype(np.float32)
        return np.ascontiguousarray(numbers if self.scale is None else numbers * self.scale[:, None, None, None])


class Builder(Protocol[V]):
    """The primitives of an engine.  ``V`` is its handle of a value."""

    layer: str
    """The operation that is being translated, for those who name things."""

    def constant(self, array: Array) -> V: ...
    def picture(self, array: Array) -> V:
        """The constant (1, C, H, W), most of whose rows and columns are the same."""
        ...

    def repeat(self, picture: Array) -> V:
        """The same picture, (1, C, H, W), for each of the batch."""
        ...

    def conv(self, x: V, filters: Filters, bias: Array | None, window: Window, groups: int) -> V: ...
    def linear(self, x: V, filters: Filters, bias: Array | None) -> V:
        """(N, C, 1, 1) → (N, O, 1, 1), filters of one tap"""
        ...

    def add(self, a: V, b: V) -> V: ...
    def subtract(self, a: V, b: V) -> V: ...
    def multiply(self, a: V, b: V) -> V: ...
    def activation(self, x: V, name: str, numbers: Sequence[float], slope: Array | None) -> V: ...
    def max_pool(self, x: V, window: Window) -> V: ...
    def avg_pool(self, x: V, window: Window, count_padding: bool) -> V: ...
    def reduce(self, x: V, how: str, axes: tuple[int, ...]) -> V:
        """``how`` is mean or max; the axes stay with length 1."""
        ...

    def concat(self, values: Sequence[V], axis: int) -> V: ...
    def reshape(self, x: V, shape: tuple[int, int, int]) -> V:
        """Each picture of the batch."""
        ...

    def transpose(self, x: V, axes: tuple[int, ...]) -> V: ...
    def slice(self, x: V, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> V:
        """Channels, rows and columns."""
        ...

    def pad(self, x: V, before: Sequence[int], after: Sequence[int], value: float) -> V: ...
    def round_to_bytes(self, x: V) -> V:
        """The nearest whole numbers (of two as near, the even one) within 0 … 255."""
        ...

    def binarize(self, x: V, level: Array) -> V:
        """What ``binary_conv`` takes: whether x is above the level of its channel, (1, C, 1, 1)."""
        ...

    def binary_conv(self, x: V, weight: Array, window: Window, pad: int) -> V:
        """Whole numbers: weights ±1, (O, C, kh, kw); padded taps count as ``pad``."""
        ...


@dataclass
class Signs:
    """Bits, as the values that they are the signs of: pools can then work on those."""

    value: Any
    level: Array
    """(1, C, 1, 1), or one number for all channels."""
    binarized: Any = None
    """What binary convolutions take, once one of them has asked."""


def translate(graph: Graph, builder: Builder[V], image: V) -> dict[str, V | Signs]:
    """What the graph's buffers are there, made from ``image``."""
    graph.only_output("other engines and formats are given networks with one")
    if graph.shapes:
        shape = tuple(next(iter(graph.shapes.values())))
        raise ExportError(
            f"the network answers in the shape {shape}: other engines and formats give vectors and pictures"
        )
    values: dict[str, Any] = {graph.input.buffer: image}
    for operation in graph.operations:
        builder.layer = operation.name
        _Step(graph, builder, operation, values).run()
    return values


def translates(kind: str) -> bool:
    """Whether operations of this kind have a translation."""
    return hasattr(_Step, f"_{kind}")


def _columns(array: Array) -> Array:
    """One number per channel, as a picture."""
    return array.astype(np.float32).reshape(1, -1, 1, 1)


@dataclass(frozen=True)
class _Step:
    graph: Graph
    builder: Builder[Any]
    operation: Operation
    values: dict[str, Any]

    def run(self) -> None:
        operation = self.operation
        write = getattr(self, f"_{operation.kind}", None)
        activation, mode = (
            operation.attributes.get("activation", ["relu"])[0],
            operation.attributes.get("mode", "constant"),
        )
        if write is None or activation not in ACTIVATIONS or mode != "constant":
            what = operation.kind + ("" if write is None else f", {activation if mode == 'constant' else mode}")
            raise ExportError(
                f"operation {quoted(operation.name)} ({what}) has no translation: other engines and formats "
                "cannot be given this network"
            )
        made = write()
        for role, name in operation.outputs.items():
            self.values[name] = made
            if role == "bits" and not isinstance(made, Signs):
                level = self.tensor("level")
                self.values[name] = Signs(made, _columns(np.zeros(1) if level is None else level))

    def input(self, role: str) -> Any:
        return self.values[self.operation.inputs[role]]

    def shape(self, role: str) -> tuple[int, int, int]:
        return self.graph.buffers[self.operation.inputs[role]].shape

    def tensor(self, role: str) -> Array | None:
        return self.operation.tensors.get(role)

    def window(self) -> Window:
        return Window.of(self.operation, self.graph)

    def affine(self, x: Any) -> Any:
        """scale · x + shift, as far as there are such tensors.  The constant stands first: ONNX Runtime folds one that
        stands behind a convolution into its weights, and sums of signs would no longer be whole numbers."""
        for role, combine in (("scale", self.builder.multiply), ("shift", self.builder.add)):
            numbers = self.tensor(role)
            if numbers is not None:
                x = combine(self.builder.constant(_columns(numbers)), x)
        return x

    def finish(self, x: Any) -> Any:
        if "residual" in self.operation.inputs:
            x = self.builder.add(x, self.input("residual"))
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
        """Σ w·u − Σ w·zero over the taps inside the picture.  As floats the first is exact below 2²⁴, which 512 taps
        cannot reach; the second is the same for every picture."""
        weight = self.tensor("weight")
        assert weight is not None
        sums = self.builder.conv(self.input("x"), Filters(weight.transpose(0, 3, 1, 2)), None, self.window(), 1)
        if self.tensor("zero") is not None:
            nothing = np.zeros((1, *self.shape("x")), np.uint8)
            offset = int8_conv(nothing, self.operation.tensors, self.operation.attributes)
            sums = self.builder.add(self.builder.picture(offset.transpose(0, 3, 1, 2)), sums)
        return self.finish(self.affine(sums))

    def _quantize(self) -> Any:
        return self.builder.round_to_bytes(self.affine(self.input("x")))

    def _binary_conv(self) -> Any:
        signs: Signs = self.input("x")
        channels = self.shape("x")[2]
        if signs.binarized is None:
            signs.binarized = self.builder.binarize(signs.value, np.broadcast_to(signs.level, (1, channels, 1, 1)))
        packed = self.tensor("weight")
        assert packed is not None
        weight = unpack(packed, channels).transpose(0, 3, 1, 2)
        pad = self.operation.attributes.get("pad", 0)
        sums = self.builder.binary_conv(signs.binarized, weight, self.window(), pad)
        threshold = self.tensor("threshold")
        if threshold is not None:
            return Signs(sums, _columns(threshold))
        return self.finish(self.affine(sums))

    def _pack(self) -> Any:
        x, level = self.affine(self.input("x")), self.operation.attributes.get("level", 0.0)
        if level == "mean":
            return self.builder.subtract(x, self.builder.reduce(x, "mean", (1, 2, 3)))
        numbers = self.tensor("level")
        return Signs(x, _columns(np.full(1, level) if numbers is None else numbers))

    def _max_pool_bits(self) -> Any:
        signs, packed = self.input("x"), self.tensor("invert")
        value, turn = signs.value, None
        if packed is not None and packed.any():
            turn = self.builder.constant(_columns(-unpack(packed, self.shape("x")[2])))
            value = self.builder.multiply(turn, value)
        value = self.builder.max_pool(value, self.window())
        return Signs(value if turn is None else self.builder.multiply(value, turn), signs.level)

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
        """Cell (i, j) is taken from rows ⌊i·H/h⌋ … ⌈(i + 1)·H/h⌉ and the columns alike."""
        (height, width, channels), (rows, columns) = self.shape("x"), self.operation.attributes["size"]
        if height % rows == width % columns == 0:
            tiles = Window.tiles((height // rows, width // columns))
            return self.pool(how, tiles)
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

    def _mean(self) -> Any:
        axes = tuple(AXES[axis] for axis in self.operation.attributes["over"])
        return self.builder.reduce(self.input("x"), "mean", axes)

    def _add(self) -> Any:
        return self.builder.add(self.input("a"), self.input("b"))

    def _multiply(self) -> Any:
        return self.builder.multiply(self.input("a"), self.input("b"))

    def _concat(self) -> Any:
        axis = AXES[self.operation.attributes.get("axis", "c")]
        return self.builder.concat([self.input(f"x{i}") for i in range(len(self.operation.inputs))], axis)

    def _reshape(self) -> Any:
        height, width, channels = self.graph.buffers[self.operation.outputs["float"]].shape
        x = self.input("x")
        if self.operation.attributes["order"] == "chw":
            return self.builder.reshape(x, (channels, height, width))
        x = self.builder.reshape(self.builder.transpose(x, (0, 2, 3, 1)), (height, width, channels))
        return self.builder.transpose(x, (0, 3, 1, 2))

    def _slice(self) -> Any:
        start, stop, step = self.triples("start", "stop", "step")
        return self.builder.slice(self.input("x"), start, stop, step)

    def _pad(self) -> Any:
        before, after = self.triples("before", "after")
        return self.builder.pad(self.input("x"), before, after, float(self.operation.attributes.get("value", 0.0)))

    def triples(self, *roles: str) -> list[tuple[int, int, int]]:
        """(height, width, channels) as (channels, height, width)."""
        given = (self.operation.attributes[role] for role in roles)
        return [(channels, height, width) for height, width, channels in given]

    def _constant(self) -> Any:
        value = self.tensor("value")
        assert value is not None
        return self.builder.repeat(value.transpose(2, 0, 1)[None])
