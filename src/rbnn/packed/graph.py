"""A packed network in memory: buffers and the operations that run on them, one after the other."""

import itertools
from collections.abc import Container
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import PackError
from rbnn.packed.operations import (
    LARGEST_BUFFER,
    LARGEST_CHANNELS,
    LARGEST_NETWORK,
    LARGEST_SIDE,
    Buffer,
    Operation,
    Site,
    is_number,
)
from rbnn.text import quoted

LARGEST_MEAN = 1e6
SMALLEST_STD = 1e-30
"""(1 + 10⁶) / 10⁻³⁰ < 3.4 · 10³⁸: whatever the picture, normalised it is finite in float32."""


@dataclass(frozen=True)
class Input:
    """What the network takes: a buffer, and how pictures are normalised before they enter it."""

    buffer: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A network.  ``check`` raises PackError unless every rule of the format holds."""

    input: Input
    output: str
    buffers: dict[str, Buffer]
    operations: list[Operation]

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        """Each array once, by the name that it has in a file: that of the first operation that holds it, and its role
        there."""
        found: dict[str, NDArray[Any]] = {}
        seen: set[int] = set()
        for operation in self.operations:
            for role, array in operation.tensors.items():
                if id(array) not in seen:
                    seen.add(id(array))
                    found[unused(f"{operation.name}.{role}", found)] = array
        return found

    def check(self) -> None:
        if self.input.buffer not in self.buffers or self.buffers[self.input.buffer].type != "float":
            raise PackError(f"the input {quoted(self.input.buffer)} is not a float buffer of the graph")
        _check_normalisation(self.input, self.buffers[self.input.buffer].shape[2])
        for name in (*self.buffers, *(each.name for each in self.operations), *self.input.classes):
            check_name(name)
        for name, buffer in self.buffers.items():
            _check_buffer(name, buffer)
        if sum(prod(buffer.shape) for buffer in self.buffers.values()) > LARGEST_NETWORK:
            raise PackError(f"all buffers together are larger than {LARGEST_NETWORK} values")
        arrays = {id(array): array for each in self.operations for array in each.tensors.values()}
        odd = {at for at, array in arrays.items() if array.dtype == np.float32 and not np.isfinite(array).all()}
        if odd:
            name = next(name for name, array in self.tensors.items() if id(array) in odd)
            raise PackError(f"tensor {quoted(name)} has values that are not finite")
        written = {self.input.buffer}
        for operation in self.operations:
            Site(operation, self.buffers).check(written)
            written.update(operation.outputs.values())
        if self.output not in written - {self.input.buffer} or self.buffers[self.output].type != "float":
            raise PackError(f"the output {quoted(self.output)} is not a float buffer that some operation writes")
        answers = self.buffers[self.output].shape[2]
        if self.input.classes and len(self.input.classes) != answers:
            raise PackError(f"{len(self.input.classes)} names of classes for {answers} answers")


def unused(name: str, names: Container[str]) -> str:
    """``name``, or with a number behind it where that is taken: a module may be called twice."""
    numbered = (f"{name}.{count}" for count in itertools.count(2))
    return name if name not in names else next(each for each in numbered if each not in names)


def _check_normalisation(given: Input, channels: int) -> None:
    for word, numbers in (("mean", given.mean), ("std", given.std)):
        if numbers and len(numbers) not in (1, channels):
            raise PackError(f"{word} of the input has {len(numbers)} numbers for {channels} channels")
    if not all(is_number(mean) and abs(mean) <= LARGEST_MEAN for mean in given.mean):
        raise PackError(f"mean of the input must be finite and within ±{LARGEST_MEAN:g}")
    if not all(is_number(std) and std >= SMALLEST_STD for std in given.std):
        raise PackError(f"std of the input must be positive, finite in float32 and at least {SMALLEST_STD:g}")


def check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise PackError(f"the name {quoted(name)} cannot be written as UTF-8: choose another") from None


def _check_buffer(name: str, buffer: Buffer) -> None:
    height, width, channels = buffer.shape
    if not (0 < height <= LARGEST_SIDE and 0 < width <= LARGEST_SIDE and 0 < channels <= LARGEST_CHANNELS):
        raise PackError(f"buffer {quoted(name)} has the impossible shape {quoted(buffer.shape)}")
    if height * width * channels > LARGEST_BUFFER:
        raise PackError(f"buffer {quoted(name)} of shape {quoted(buffer.shape)} is larger than {LARGEST_BUFFER} values")
