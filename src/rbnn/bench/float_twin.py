"""The float twin of a packed network: the same layers with numbers in place of bits, as a graph of its own.

Binary convolutions become float ones with the weights ±1, signs are left out, and where only a sign followed a
convolution (its threshold) stands what the sign was made from: acc − threshold, between −1 and 1.  Layers of whole
numbers get float weights of the same size, and bytes are left out.
"""

from dataclasses import replace
from typing import Any

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
    return Graph(graph.input, twin.name(graph.output), twin.buffers, twin.operations, twin.tensors)


def without_bytes(graph: Graph) -> Graph:
    """The same network with int8 layers as float ones; bits stay."""
    buffers = {name: buffer for name, buffer in graph.buffers.items() if buffer.type != "bytes"}
    tensors = dict(graph.tensors)
    for name, array in graph.tensors.items():
        if array.dtype == np.int8:
            tensors[name] = array.astype(np.float32)
    plain = Graph(graph.input, graph.output, buffers, [], tensors)
    makers = {each.outputs["bytes"]: each for each in graph.operations if each.kind == "quantize"}
    for operation in graph.operations:
        if operation.kind == "int8_conv":
            _add_as_float(plain, operation, makers[operation.inputs["x"]])
        elif operation.kind != "quantize":
            plain.operations.append(operation)
    return plain


def _add_as_float(graph: Graph, operation: Operation, quantize: Operation) -> None:
    """Σ w·(u − zero) with u = x·scale + shift, not rounded: where shift is zero, Σ (w·scale)·x."""
    scale, shift = (graph.tensors[quantize.tensors[role]] for role in ("scale", "shift"))
    zero = graph.tensors[operation.tensors["zero"]] if "zero" in operation.tensors else np.zeros_like(shift)
    source, name, weight = quantize.inputs["x"], f"{operation.name} as floats", operation.tensors["weight"]
    if np.allclose(shift, zero, atol=1e-3):
        graph.tensors[name] = graph.tensors[weight] * scale
        weight = name
    else:
        roles = {"scale": quantize.tensors["scale"], "shift": f"{name}.shift"}
        graph.tensors[roles["shift"]] = shift - zero
        graph.buffers[name] = Buffer("float", graph.buffers[source].shape)
        graph.operations.append(Operation("affine", name, {"x": source}, {"float": name}, roles))
        source = name
    tensors = {role: tensor for role, tensor in operation.tensors.items() if role != "zero"} | {"weight": weight}
    inputs = operation.inputs | {"x": source}
    graph.operations.append(replace(operation, kind="float_conv", inputs=inputs, tensors=tensors))


class _Twin:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.same: dict[str, str] = {}
        """Buffers of the packed graph that the twin does not have → the ones that hold their values."""
        self.buffers = {graph.input.buffer: graph.buffers[graph.input.buffer]}
        self.operations: list[Operation] = []
        self.tensors: dict[str, NDArray[Any]] = {}

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
        """The operation with its buffers as floats; whatever it writes is one buffer."""
        first, *others = operation.outputs.values()
        self.same |= dict.fromkeys(others, first)
        self.buffers[first] = Buffer("float", self.graph.buffers[first].shape)
        for name in operation.tensors.values():
            self.tensors.setdefault(name, self.graph.tensors.get(name, np.empty(0)))
        inputs = {role: self.name(buffer) for role, buffer in operation.inputs.items()}
        self.operations.append(replace(operation, inputs=inputs, outputs={"float": first}))

    def pack(self, operation: Operation) -> None:
        roles = {role: name for role, name in operation.tensors.items() if role != "level"}
        if not roles:
            self.same[operation.outputs["bits"]] = self.name(operation.inputs["x"])
            return
        channels = self.graph.buffers[operation.inputs["x"]].shape[2]
        for role, value in (("scale", 1.0), ("shift", 0.0)):
            if role not in roles:
                roles[role] = f"{operation.name}.{role}"
                self.tensors[roles[role]] = np.full(channels, value, np.float32)
        self.put(replace(operation, kind="affine", tensors=roles, attributes={}))

    def binary_conv(self, operation: Operation) -> None:
        channels = self.graph.buffers[operation.inputs["x"]].shape[2]
        roles, attributes = dict(operation.tensors), dict(operation.attributes)
        attributes.pop("pad", None)
        roles.pop("level", None)
        roles["weight"] = f"{operation.tensors['weight']} as numbers"
        self.tensors[roles["weight"]] = unpack(self.graph.tensors[operation.tensors["weight"]], channels)
        if threshold := roles.pop("threshold", None):
            roles["shift"] = f"{threshold} as shift"
            self.tensors[roles["shift"]] = -self.graph.tensors[threshold].astype(np.float32)
            attributes["activation"] = ["hardtanh", -1.0, 1.0]
        self.put(replace(operation, kind="float_conv", tensors=roles, attributes=attributes))
