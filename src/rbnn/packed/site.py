"""An operation of a packed network, and its place among the buffers while it is checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from rbnn.errors import PackError
from rbnn.packed.limits import LARGEST_BUFFER
from rbnn.text import quoted, shorten

Shape: TypeAlias = tuple[int, int, int]
"""Height, width and channels of one image."""


@dataclass(frozen=True)
class Buffer:
    """A value of the running network, for one image: float32, signs as bits, or bytes from 0 to 255."""

    type: Literal["float", "bits", "bytes"]
    shape: Shape


@dataclass(frozen=True)
class Follows:
    """A number that follows from the image size: ⌊side · times / over⌋ + plus, where ``side`` is a side of a buffer, or
    a product of several of its sides."""

    buffer: str
    axes: str
    """``h``, ``w``, ``c`` or several of them."""
    times: int | float = 1
    over: int = 1
    plus: int = 0

    def value(self, shape: Shape) -> int:
        """The number if the buffer has this shape."""
        side = prod(shape["hwc".index(axis)] for axis in self.axes)
        return int(side * self.times // self.over) + self.plus


Number: TypeAlias = int | Follows
"""A number that is the same for every image size, or one that follows from it."""


@dataclass(eq=False)
class Operation:
    """One step of a network.  ``inputs`` and ``outputs`` name buffers, ``tensors`` are arrays, each by its role.

    This is the only form of an operation in Python.  In a draft of an export, arrays are still in double, signs are ±1,
    and rules rewrite them; in a ``Graph`` they are as in the file.  Operations that share an array refer to the same
    object.
    """

    kind: str
    name: str
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    follows: dict[str, list[Number]] = field(default_factory=dict)
    """Attributes that follow from the image size, if that is free (``rbnn.packed.sizes``)."""


@dataclass(frozen=True)
class Site:
    """One operation in its graph, while it is checked."""

    operation: Operation
    buffers: Mapping[str, Buffer]

    def fail(self, what: str) -> PackError:
        return PackError(f"operation {quoted(self.operation.name)} ({shorten(self.operation.kind, 200)}): {what}")

    def shape(self, role: str, side: str = "inputs") -> Shape:
        return self.buffers[getattr(self.operation, side)[role]].shape

    def tensor_shape(self, role: str, *expected: int) -> None:
        """Check that the tensor, if it exists, has this shape."""
        if role in self.operation.tensors:
            shape = self.operation.tensors[role].shape
            if shape != expected:
                raise self.fail(f"tensor {role} has the shape {shape}, expected {expected}")

    def tail_bits(self, role: str, channels: int) -> None:
        tensor = self.operation.tensors[role]
        if channels % 8 and (tensor[..., -1] >> (channels % 8)).any():
            raise self.fail(f"tensor {role} has bits set beyond its {channels} channels")

    def get(self, attribute: str, default: Any) -> Any:
        return self.operation.attributes.get(attribute, default)

    def window(self, shape: Shape, *, pool: bool = False) -> tuple[int, int]:
        """Height and width after a kernel has moved over ``shape``."""
        sides, kernel, padding = [], self.operation.attributes["kernel"], self.get("padding", (0, 0))
        stride, dilation = self.get("stride", kernel if pool else (1, 1)), self.get("dilation", (1, 1))
        for side, k, s, p, d in zip(shape[:2], kernel, stride, padding, dilation, strict=True):
            reach = d * (k - 1) + 1
            if pool and 2 * p > k:
                raise self.fail("padding of a pool is at most half its kernel")
            if side + 2 * p < reach:
                raise self.fail(f"a kernel that spans {reach} does not fit into {side} + 2·{p}")
            rest = side + 2 * p - reach
            count = rest // s + 1
            # As in torch, with rounding up the last window must start inside the image or its left padding.
            if self.get("ceil", False) and rest % s and count * s < side + p:
                count += 1
            if pool and not _all_see_something(side, k, s, p, d, count):
                raise self.fail("a window sees nothing of the picture")
            sides.append(count)
        if (shape[0] + 2 * padding[0]) * (shape[1] + 2 * padding[1]) * shape[2] > LARGEST_BUFFER:
            raise self.fail(f"padded input is larger than {LARGEST_BUFFER} values")
        return sides[0], sides[1]


def _all_see_something(side: int, kernel: int, stride: int, padding: int, dilation: int, count: int) -> bool:
    """Whether each of ``count`` positions of a kernel has a tap inside the image."""

    def sees(start: int) -> bool:
        first = max(-(-(padding - start) // dilation), 0)  # taps before this one are in the padding
        return first < kernel and start + first * dilation < padding + side

    # Only positions that begin in the padding can skip the image, and positions that begin after it are the last ones.
    in_padding = min(count, -(-padding // stride))
    return all(sees(i * stride) for i in range(in_padding)) and sees((count - 1) * stride)
