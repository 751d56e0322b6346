"""The costs of each operation of a packed network, without torch: bits, bytes, multiply-accumulates (MACs) and time."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation
from rbnn.packed.session import Session

MOST_REPEATS, LONGEST_PROFILE = 50, 5.0
"""The approximate number of repetitions and seconds of a profile; a large network runs less often."""
CLOCK = 1e-9
"""The resolution of the clock in seconds: nothing counts as shorter."""


@dataclass(frozen=True)
class OperationCosts:
    """One operation, for one image."""

    name: str
    kind: str
    bits: int
    """Bits per weight; 0 if there are none."""
    weight: tuple[int, ...]
    """O, C (of one group), kh, kw."""
    output: tuple[int, int, int]
    """Channels, height, width."""
    binary_macs: int
    float_macs: int
    """All multiply-adds except those of bits."""
    bytes: int
    """Bytes of its tensors in the file; a tensor that several operations share counts for the first one."""
    bit_bytes: int
    """The part of these bytes that is packed signs."""
    float_bytes: int
    """Bytes in the float twin: 4 for each weight."""
    seconds: float
    """The minimum of several runs."""

    @property
    def macs(self) -> int:
        return self.binary_macs + self.float_macs

    @property
    def gmacs(self) -> float:
        """10⁹ multiply-adds per second."""
        return self.macs / max(self.seconds, CLOCK) / 1e9


@dataclass(frozen=True)
class PackedCosts:
    """A packed network as a whole."""

    operations: list[OperationCosts]
    file_bytes: int
    centred: frozenset[str]
    """Operations that subtract the mean of each image."""

    def total(self, what: str) -> Any:
        """The sum of a field over all operations."""
        return sum(getattr(each, what) for each in self.operations)

    @cached_property
    def seconds(self) -> float:
        """The time of all operations."""
        return float(self.total("seconds"))

    def share_of_time(self, operations: Sequence[OperationCosts]) -> float:
        return float(sum(each.seconds for each in operations) / max(self.seconds, CLOCK))


def packed_costs(graph: Graph, file_bytes: int) -> PackedCosts:
    """Count the costs, and measure the times on one thread of this machine with a random image."""
    session = Session(graph)
    random = np.random.default_rng(0)
    images = {name: random.normal(size=(1, *shape)).astype(np.float32) for name, shape in session.inputs.items()}
    image = images if graph.input.names else images["images"]
    seen: set[int] = set()
    found = []
    start = time.perf_counter()
    session.profile(image, 1)
    repeats = int(max(1, min(MOST_REPEATS, LONGEST_PROFILE / max(time.perf_counter() - start, CLOCK))))
    for operation, seconds in session.profile(image, repeats):
        found.append(_costs(graph, operation, seconds, seen))
        seen.update(map(id, operation.tensors.values()))
    centred = frozenset(each.name for each in graph.operations if each.attributes.get("level") == "mean")
    return PackedCosts(found, file_bytes, centred)


def _costs(graph: Graph, operation: Operation, seconds: float, seen: set[int]) -> OperationCosts:
    height, width, channels = graph.buffers[next(iter(operation.outputs.values()))].shape
    new = {id(array): array for array in operation.tensors.values() if id(array) not in seen}
    size = twin_size = sum(array.nbytes for array in new.values())
    bits, bit_bytes, macs = 0, 0, 0
    weight: tuple[int, ...] = ()
    if "weight" in operation.tensors:
        stored = operation.tensors["weight"]
        bits = 1 if operation.kind == "binary_conv" else 8 * stored.itemsize
        inside = graph.buffers[operation.inputs["x"]].shape[2] // operation.attributes.get("groups", 1)
        weight = stored.shape[0], inside, *stored.shape[1:3]
        macs = height * width * int(np.prod(weight))
        if id(stored) in new:
            twin_size += 4 * int(np.prod(weight)) - stored.nbytes
            bit_bytes = stored.nbytes if bits == 1 else 0
    return OperationCosts(
        name=operation.name,
        kind=operation.kind,
        bits=bits,
        weight=weight,
        output=(channels, height, width),
        binary_macs=macs if bits == 1 else 0,
        float_macs=0 if bits == 1 else macs,
        bytes=size,
        bit_bytes=bit_bytes,
        float_bytes=twin_size,
        seconds=seconds,
    )
