"""A packed network while it is made: steps with their numbers still in double and their signs as ±1."""

import itertools
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation, Shape

Array = NDArray[Any]
CONVOLUTIONS = ("float_conv", "binary_conv")


@dataclass
class Step:
    """One operation to be: like ``rbnn.packed.operations.Operation``, but with its arrays in it and open to change."""

    kind: str
    name: str
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, Array] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TorchValue:
    """What torch has in the place of a buffer, (N, C, H, W) or (N, C); for bits, ``signs`` of ``value − level``."""

    value: Tensor
    level: Tensor | None = None
    signs: Tensor | None = None


@dataclass
class Draft:
    """Steps in the order in which they run, the buffers between them, and what torch has there."""

    input: str
    buffers: dict[str, Buffer]
    steps: list[Step] = field(default_factory=list)
    torch_values: dict[str, TorchValue] = field(default_factory=dict)
    output: str = ""

    def new_buffer(self, name: str, buffer: Buffer, torch_value: TorchValue | None = None) -> str:
        """A buffer called ``name`` or nearly so."""
        unique = _unused(name, self.buffers)
        self.buffers[unique] = buffer
        if torch_value is not None:
            self.torch_values[unique] = torch_value
        return unique

    def add(self, step: Step, role: str, shape: Shape, torch_value: TorchValue | None = None) -> str:
        """Append ``step``, which writes one new buffer; its name comes back."""
        buffer = self.new_buffer(step.name, Buffer("bits" if role == "bits" else "float", shape), torch_value)
        step.outputs[role] = buffer
        self.steps.append(step)
        return buffer

    def producer(self, buffer: str) -> Step | None:
        return next((step for step in self.steps if buffer in step.outputs.values()), None)

    def sole_consumer(self, buffer: str) -> Step | None:
        """The only step that reads ``buffer``, and reads it once; None where it is the network's output."""
        found = [step for step in self.steps for name in step.inputs.values() if name == buffer]
        return found[0] if len(found) == 1 and buffer != self.output else None

    def channels(self, buffer: str) -> int:
        return self.buffers[buffer].shape[2]

    def graph(self, contract: Input) -> Graph:
        """The network as the file has it: float32, bits, and no buffer that nobody writes."""
        arrays: dict[str, Array] = {}
        names: dict[int, str] = {}
        operations = []
        for step in self.steps:
            tensors = {}
            for role, array in step.tensors.items():
                if id(array) not in names:  # bases and planes of one layer share their signs
                    names[id(array)] = _unused(f"{step.name}.{role}", arrays)
                    arrays[names[id(array)]] = _stored(step, role, array)
                tensors[role] = names[id(array)]
            operations.append(Operation(step.kind, step.name, step.inputs, step.outputs, tensors, step.attributes))
        used = {self.input, *(name for step in self.steps for name in step.outputs.values())}
        buffers = {name: buffer for name, buffer in self.buffers.items() if name in used}
        return Graph(contract, self.output, buffers, operations, arrays)


def _unused(name: str, names: Container[str]) -> str:
    """``name``, or with a number behind it: a module may be called twice."""
    numbered = (f"{name}.{count}" for count in itertools.count(2))
    return name if name not in names else next(each for each in numbered if each not in names)


def _stored(step: Step, role: str, array: Array) -> Array:
    if role == "invert" or (step.kind == "binary_conv" and role == "weight"):
        return np.packbits(array > 0, axis=-1, bitorder="little")
    kept = array.dtype == np.int8  # whole numbers of a float layer
    return np.ascontiguousarray(array, np.int8 if kept else np.int32 if role == "threshold" else np.float32)


def picture_shape(shape: tuple[int, ...]) -> Shape | None:
    """Height, width and channels of a torch shape (N, C, H, W), (N, C, L) or (N, C); None for any other."""
    if len(shape) == 2:
        return 1, 1, shape[1]
    if len(shape) == 3:
        return 1, shape[2], shape[1]
    return (shape[2], shape[3], shape[1]) if len(shape) == 4 else None


def pictures(value: Tensor) -> Array:
    """A torch value as the buffers have it: (N, height, width, channels)."""
    shape = picture_shape(tuple(value.shape))
    assert shape is not None
    planes = value.reshape(len(value), shape[2], shape[0], shape[1])
    return np.ascontiguousarray(planes.permute(0, 2, 3, 1).numpy())
