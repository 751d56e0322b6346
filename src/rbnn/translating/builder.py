"""The interface of another engine or format: the primitives that a translation is composed of.

Images are N×C×H×W.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation

Array = NDArray[Any]
V = TypeVar("V")


@dataclass(frozen=True)
class Window:
    """How a kernel moves over an image; pairs are (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    ceil: bool
    end: tuple[int, int]
    """Padding below and on the right: ``padding``, or more if a window extends beyond it."""

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
    def plain(cls, kernel: tuple[int, int], stride: tuple[int, int]) -> "Window":
        """A window without padding."""
        return cls(kernel, stride, (0, 0), (1, 1), False, (0, 0))


@dataclass(frozen=True)
class Filters:
    """Weights (O, C, kh, kw), float32 or int8, and a scale for each filter."""

    values: Array
    scale: Array | None = None

    @property
    def numbers(self) -> Array:
        """The weights as float32, multiplied by the scale, as every engine would fold it."""
        numbers = self.values.astype(np.float32)
        return np.ascontiguousarray(numbers if self.scale is None else numbers * self.scale[:, None, None, None])


class Builder(Protocol[V]):
    """The primitives of an engine.  ``V`` is its handle for a value."""

    layer: str
    """The operation that is being translated, for builders that name things."""

    def constant(self, array: Array) -> V: ...
    def picture(self, array: Array) -> V:
        """A constant (1, C, H, W), most of whose rows and columns are the same."""
        ...

    def repeat(self, picture: Array) -> V:
        """The same image, (1, C, H, W), for each image of the batch."""
        ...

    def conv(self, x: V, filters: Filters, bias: Array | None, window: Window, groups: int) -> V: ...
    def linear(self, x: V, filters: Filters, bias: Array | None) -> V:
        """(N, C, 1, 1) → (N, O, 1, 1), with filters of one tap"""
        ...

    def pairwise(self, how: str, a: V, b: V) -> V:
        """``how`` is add, subtract, multiply, divide, maximum, minimum, or matmul, the product of two matrices (height
        × width) for each channel."""
        ...

    def activation(self, x: V, name: str, numbers: Sequence[float], slope: Array | None) -> V:
        """Any activation of the format."""
        ...

    def softmax(self, x: V, axis: int, log: bool) -> V: ...
    def standardize(self, x: V, axes: tuple[int, ...], eps: float) -> V:
        """(x − mean)/√(variance + eps)"""
        ...

    def local_norm(self, x: V, window: int, alpha: float, beta: float, k: float) -> V:
        """x/(k + alpha · mean of x² over ``window`` channels, an odd number)^beta"""
        ...

    def max_pool(self, x: V, window: Window) -> V: ...
    def avg_pool(self, x: V, window: Window, count_padding: bool) -> V: ...
    def reduce(self, x: V, how: str, axes: tuple[int, ...]) -> V:
        """``how`` is mean, sum, max or min; the axes keep length 1."""
        ...

    def concat(self, values: Sequence[V], axis: int) -> V: ...
    def reshape(self, x: V, shape: tuple[int, ...]) -> V:
        """Reshape each image of the batch."""
        ...

    def transpose(self, x: V, axes: tuple[int, ...]) -> V: ...
    def slice(self, x: V, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> V:
        """Slice channels, rows and columns."""
        ...

    def gather(self, x: V, places: Array, axis: int) -> V:
        """Channels, rows or columns of x, by index."""
        ...

    def resize(self, x: V, size: tuple[int, int], mode: str, align: bool, scale: tuple[float, float] | None) -> V:
        """``mode`` is nearest by integer factors, bilinear or bicubic, as in torch.  ``scale`` has the factors if they
        do not follow from the sizes."""
        ...

    def pad(self, x: V, before: Sequence[int], after: Sequence[int], value: float) -> V: ...
    def border(self, x: V, before: Sequence[int], after: Sequence[int], mode: str) -> V:
        """Pad rows and columns; ``mode`` is reflect or replicate."""
        ...

    def round_to_bytes(self, x: V) -> V:
        """The nearest integers (ties to even) within 0 … 255."""
        ...

    def binarize(self, x: V, level: Array) -> V:
        """The input of ``binary_conv``: whether x is above the level of its channel, (1, C, 1, 1)."""
        ...

    def binary_conv(self, x: V, weight: Array, window: Window, pad: int, groups: int) -> V:
        """Integers: weights are ±1, (O, C/groups, kh, kw); padded taps count as ``pad``."""
        ...
