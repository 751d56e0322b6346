"""The float twin of a packed network: a separate graph of the same layers, with numbers in place of bits.

Binary convolutions become float convolutions with the weights ±1, and signs are dropped.  If only a sign followed a
convolution (its threshold), its input takes its place: acc − threshold, clamped to −1 … 1.  Integer layers get float
weights of the same size, and bytes are dropped.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rbnn.packed.graph import Graph
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.oracle import unpack


def float_twin(graph: Graph) -> Graph:
    """A graph without bits or bytes that does the same multiply-adds."""
    graph = without_bytes(graph)
    twin = _Twin(graph)
    for operation in graph.operations:
        twin.add(operation)
    return Graph(
        graph.input,
        twin.name(graph.only_output("the float twin needs one")),
        twin.buffers,
        twin.operations,
    )


def without_bytes(graph: Graph) -> Graph:
    """The same network with int8 layers as float ones; bits stay."""
    buffers = {name: buffer for name, buffer in graph.buffers.items() if buffer.type != "bytes"}
    plain = Graph(graph.input, graph.output, buffers, [])
    floats = {id(array): array.astype(np.float32) for array in graph.tensors.values() if array.dtype == np.int8}
    makers = {each.outputs["bytes"]: each for each in graph.operations if each.kind == "quantize"}
    for each in graph.operations:
        operation = replace(each, tensors={role: floats.get(id(array), array) for role, array in each.tensors.items()})
        if operation.kind == "int8_conv":
            _add_as_float(plain, operation, makers[operation.inputs["x"]])
        elif operation.kind != "quantize":
            plain.operations.append(operation)
    return plain


def _add_as_float(graph: Graph, operation: Operation, quantize: Operation) -> None:
    """Σ w·(u − zero) with u = x·scale + shift, not rounded; if shift is zero, Σ (w·scale)·x."""
    scale, shift = quantize.tensors["scale"], quantize.tensors["shift"]
    tensors = dict(operation.tensors)
    zero = tensors.pop("zero", np.zeros_like(shift))
    source, name = quantize.inputs["x"], f"{operation.name} as floats"
    if np.allclose(shift, zero, atol=1e-3):
        tensors["weight"] = tensors["weight"] * scale
    else:
        graph.buffers[name] = Buffer("float", graph.buffers[source].shape)
        moved = {"scale": scale, "shift": shift - zero}
        graph.operations.append(Operation("affine", name, {"x": source}, {"float": name}, moved))
        source = name
    inputs = operation.inputs | {"x": source}
    graph.operations.append(replace(operation, kind="float_conv", inputs=inputs, tensors=tensors))


class _Twin:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.same: dict[str, str] = {}
        """Buffers of the packed graph that the twin does not have → the buffers with their values."""
        self.buffers = {graph.input.buffer: graph.buffers[graph.input.buffer]}
        self.operations: list[Operation] = []
        self.numbers: dict[int, NDArray[np.float32]] = {}
        """Weights as ±1, by the identity of their bits, which operations may share."""

    def name(self, buffer: str) -> str:
        return self.same.get(buffer, buffer)

    def add(self, operation: Operation) -> None:
        if operation.kind == "pack":
            self.pack(operation)
        elif operation.kind == "binary_conv":
            self.binary_conv(operation)
        elif operation.kind == "max_pool_bits":
            self.put(replace(operation, kind="max_pool", tensors={}))
        else:
            self.put(operation)

    def put(self, operation: Operation) -> None:
        """The operation with float buffers; all its outputs become one buffer."""
        first, *others = operation.outputs.values()
        self.same |= dict.fromkeys(others, first)
        self.buffers[first] = Buffer("float", self.graph.buffers[first].shape)
        inputs = {role: self.name(buffer) for role, buffer in operation.inputs.items()}
        self.operations.append(replace(operation, inputs=inputs, outputs={"float": first}))

    def pack(self, operation: Operation) -> None:
        tensors = {role: array for role, array in operation.tensors.items() if role != "level"}
        if not tensors:
            self.same[operation.outputs["bits"]] = self.name(operation.inputs["x"])
            return
        channels = self.graph.buffers[operation.inputs["x"]].shape[2]
        for role, value in (("scale", 1.0), ("shift", 0.0)):
            tensors.setdefault(role, np.full(channels, value, np.float32))
        self.put(replace(operation, kind="affine", tensors=tensors, attributes={}))

    def binary_conv(self, operation: Operation) -> None:
        tensors, attributes = dict(operation.tensors), dict(operation.attributes)
        channels = self.graph.buffers[operation.inputs["x"]].shape[2] // attributes.get("groups", 1)
        attributes.pop("pad", None)
        tensors.pop("level", None)
        tensors["weight"] = self.numbers.setdefault(id(tensors["weight"]), unpack(tensors["weight"], channels))
        if "threshold" in tensors:
            tensors["shift"] = -tensors.pop("threshold").astype(np.float32)
            attributes["activation"] = ["hardtanh", -1.0, 1.0]
        self.put(replace(operation, kind="float_conv", tensors=tensors, attributes=attributes))
