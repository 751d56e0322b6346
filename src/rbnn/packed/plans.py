"""Networks compiled for one image size, and the plans that a session keeps."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn import _core
from rbnn.errors import ConfigError, InputError, PackError
from rbnn.packed.budget import check_work
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation, Shape
from rbnn.text import LONGEST_QUOTE, quoted, shorten

MOST_PLANS = 4
"""Sizes, besides the network's own, whose plans a session keeps.  Each plan has its own copy of the weights, in the
order of the kernels."""

Size = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """A network compiled for images of one size."""

    graph: Graph
    program: Any

    # Needed in every call, which may take as little as 20 µs, so it is counted once.
    @cached_property
    def inputs(self) -> list[Shape]:
        """Height, width and channels of each input."""
        return [self.graph.buffers[name].shape for name in self.graph.inputs]

    @cached_property
    def plain(self) -> bool:
        """Whether the network has one input and one output, a vector or an image."""
        return len(self.inputs) == 1 and isinstance(self.graph.output, str) and not self.graph.shapes

    @cached_property
    def outputs(self) -> list[str]:
        """The output buffers of the network."""
        return self.graph.outputs

    def answer(self, planes: list[NDArray[np.float32]]) -> Any:
        """The output of the network from the arrays that the engine returns."""
        if len(planes) == 1:
            return self.graph.answered(lambda _: planes[0])
        return self.graph.answered(dict(zip(self.outputs, planes, strict=True)).__getitem__)

    @cached_property
    def answer_bytes(self) -> int:
        """Bytes of the outputs for one image."""
        return 4 * sum(prod(self.graph.buffers[name].shape) for name in self.outputs)


class Plans:
    """The plans of a network: the one for its own size, and those for the sizes that were used last.

    Threads may use it at the same time.  The table of plans is replaced as a whole and never changed, so there is no
    lock that a fork could copy while it is held.  Two threads that need a new size at once may both make its plan; one
    is kept.
    """

    def __init__(self, graph: Graph, kernels: str | None, most_work: float | None) -> None:
        self._kernels, self._most_work = kernels, most_work
        check_work(graph, most_work)
        self.own = Plan(graph, build(graph, kernels))
        self._others: dict[Size, Plan] = {}

    def of(self, height: int, width: int) -> Plan:
        """The plan for images of this size.  Raises InputError if the network does not take them, or needs too much
        work or memory."""
        size = height, width
        if size == self.own.graph.buffers[self.own.graph.input.buffer].shape[:2]:
            return self.own
        plan = self._others.get(size) or self._made(size)
        kept = {other: each for other, each in self._others.items() if other != size} | {size: plan}
        self._others = dict(list(kept.items())[-MOST_PLANS:])
        return plan

    def __iter__(self) -> Iterator[Size]:
        """The planned sizes besides the network's own; the size of the last call is the last one."""
        return iter(self._others)

    def _made(self, size: Size) -> Plan:
        try:
            graph = self.own.graph.at(*size)
        except PackError as reason:
            raise InputError(str(reason)) from None
        try:
            check_work(graph, self._most_work)
            return Plan(graph, build(graph, self._kernels))
        except PackError as reason:
            raise InputError(f"for images of {size[0]}×{size[1]} {reason}") from None
        except MemoryError:
            raise InputError(f"images of {size[0]}×{size[1]} need more memory than is available") from None


def build(graph: Graph, kernels: str | None) -> Any:
    """The compiled program of a checked graph.  Without a name, the kernels are those of RBNN_KERNELS, or the best."""
    if not isinstance(kernels, str | None):
        known = ", ".join(name for name, _ in _core.kernels())
        raise ConfigError(f"kernels must be one of {known}, got {quoted(kernels)}")
    numbers = {name: index for index, name in enumerate(graph.buffers)}
    buffers = [(str(buffer.type), *buffer.shape) for buffer in graph.buffers.values()]
    operations = [_arguments(operation, numbers) for operation in graph.operations]
    try:
        outputs = [numbers[name] for name in graph.outputs]
        return _core.Program(buffers, operations, [numbers[name] for name in graph.inputs], outputs, kernels or "")
    except _core.Invalid as reason:
        raise PackError(str(reason)) from None


def _arguments(operation: Operation, numbers: dict[str, int]) -> tuple[Any, ...]:
    """An operation as the core takes it, with its attributes split into lists of numbers and words."""
    values: dict[str, list[float]] = {}
    words: dict[str, str] = {}
    for role, value in operation.attributes.items():
        items = list(value) if isinstance(value, list | tuple) else [value]
        if isinstance(items[0], str):
            words[role] = items.pop(0)
        values[role] = [float(item) for item in items]
        if role in words and not items and role != "activation":
            del values[role]
    return (
        operation.kind,
        shorten(operation.name, LONGEST_QUOTE),
        {role: numbers[name] for role, name in operation.inputs.items()},
        {role: numbers[name] for role, name in operation.outputs.items()},
        {role: np.ascontiguousarray(array) for role, array in operation.tensors.items()},
        values,
        words,
    )
