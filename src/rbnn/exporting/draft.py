"""A packed network under construction: operations with their numbers still in double and their signs as ±1."""

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rbnn.packed.graph import Answer, Graph, Input, answer_buffers, default_shape, unused
from rbnn.packed.operations import Buffer, Operation, Shape

Array = NDArray[Any]
CONVOLUTIONS = ("float_conv", "binary_conv")


@dataclass(frozen=True)
class TorchValue:
    """Torch's value for a buffer, (N, C, H, W) or (N, C); for bits, ``signs`` of ``value − level``."""

    value: Tensor
    level: Tensor | None = None
    signs: Tensor | None = None
    shift: float = 0.0
    """The largest shift that a threshold replaces."""


@dataclass
class Draft:
    """Operations in the order in which they run, the buffers between them, and torch's values for these buffers."""

    input: str
    buffers: dict[str, Buffer]
    operations: list[Operation] = field(default_factory=list)
    torch_values: dict[str, TorchValue] = field(default_factory=dict)
    answer: Answer = ""
    factors: dict[str, list[float]] = field(default_factory=dict)
    """The factors for height and width by buffer, for resizing operations that were called with a factor."""
    names: list[str] = field(default_factory=list)
    """The names of several inputs, which are the names of the arguments and of their buffers."""
    answer_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Torch's shape of each output, without the batch."""
    signals: bool = False
    """Whether the (first) input consists of signals (N, C, L)."""

    @property
    def outputs(self) -> list[str]:
        """The output buffers of the network."""
        return answer_buffers(self.answer)

    def new_buffer(self, name: str, buffer: Buffer, torch_value: TorchValue | None = None) -> str:
        """A new buffer called ``name``, with a number appended if the name is taken."""
        unique = unused(name, self.buffers)
        self.buffers[unique] = buffer
        if torch_value is not None:
            self.torch_values[unique] = torch_value
        return unique

    def add(
        self,
        operation: Operation,
        shape: Shape,
        torch_value: TorchValue | None = None,
        role: Literal["float", "bits"] = "float",
    ) -> str:
        """Append ``operation``, which writes one new buffer, and return the buffer's name."""
        buffer = self.new_buffer(operation.name, Buffer(role, shape), torch_value)
        operation.outputs[role] = buffer
        self.operations.append(operation)
        return buffer

    def producer(self, buffer: str) -> Operation | None:
        return next((operation for operation in self.operations if buffer in operation.outputs.values()), None)

    def sole_consumer(self, buffer: str) -> Operation | None:
        """The only operation that reads ``buffer``, once; None if there are others or if it is an output of the
        network."""
        found = [operation for operation in self.operations for name in operation.inputs.values() if name == buffer]
        return found[0] if len(found) == 1 and buffer not in self.outputs else None

    def channels(self, buffer: str) -> int:
        return self.buffers[buffer].shape[2]

    def graph(self, contract: Input) -> Graph:
        """The network as it is stored: float32, bits, and only buffers that are written."""
        stored: dict[int, Array] = {}
        operations = []
        for operation in self.operations:
            for role, array in operation.tensors.items():
                if id(array) not in stored:  # bases and planes of one layer share their signs
                    stored[id(array)] = _stored(operation, role, array)
            tensors = {role: stored[id(array)] for role, array in operation.tensors.items()}
            operations.append(replace(operation, tensors=tensors))
        used = {self.input, *self.names, *(name for operation in operations for name in operation.outputs.values())}
        buffers = {name: buffer for name, buffer in self.buffers.items() if name in used}
        return Graph(contract, self.answer, buffers, operations, self._shapes())

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of outputs that do not follow from their buffers."""
        shapes = {}
        for name in self.outputs:
            if name in self.answer_shapes:
                buffer = self.buffers[name].shape
                signals = self.signals and isinstance(self.answer, str)
                if self.answer_shapes[name] != default_shape(buffer, signals=signals):
                    shapes[name] = self.answer_shapes[name]
        return shapes


def _stored(operation: Operation, role: str, array: Array) -> Array:
    if role == "invert" or (operation.kind == "binary_conv" and role == "weight"):
        return np.packbits(array > 0, axis=-1, bitorder="little")
    kept = array.dtype == np.int8  # int8 weights of a float layer
    return np.ascontiguousarray(array, np.int8 if kept else np.int32 if role == "threshold" else np.float32)


def picture_shape(shape: tuple[int, ...]) -> Shape | None:
    """Height, width and channels of a torch shape (N, C, H, W), (N, C, L), (N, C) or (N).  With more dimensions, those
    between channels and width are merged into the height.  The second dimension is always the last in memory.  None
    without a batch."""
    if len(shape) == 4:
        return shape[2], shape[3], shape[1]
    if len(shape) < 3:
        return (1, 1, prod(shape[1:])) if shape else None
    return prod(shape[2:-1]), shape[-1], shape[1]


def pictures(value: Tensor) -> Array:
    """A torch value in the layout of the buffers: (N, height, width, channels)."""
    shape = picture_shape(tuple(value.shape))
    assert shape is not None
    planes = value.reshape(len(value), shape[2], shape[0], shape[1])
    return np.ascontiguousarray(planes.permute(0, 2, 3, 1).numpy())
