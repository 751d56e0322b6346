"""Whether OpenVINO's binary convolution is correct: its sums compared with those of the oracle."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.bench.float_twin import float_twin
from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation


def exact_layers(graph: Graph) -> dict[str, bool]:
    """Whether every sum is correct, for each binary convolution alone on random signs."""
    return {
        operation.name: _is_exact(alone)
        for operation in graph.operations
        if operation.kind == "binary_conv"
        for alone in [by_itself(graph, operation)]
    }


def by_itself(graph: Graph, operation: Operation) -> Graph:
    """A binary convolution from floats to its sums, with only the sign before it and nothing after it."""
    shape, side = graph.buffers[operation.inputs["x"]].shape, next(iter(operation.outputs.values()))
    buffers = {
        "image": Buffer("float", shape),
        "bits": Buffer("bits", shape),
        "sums": Buffer("float", graph.buffers[side].shape),
    }
    attributes = {name: value for name, value in operation.attributes.items() if name != "activation"}
    operations = [
        Operation("pack", "pack", {"x": "image"}, {"bits": "bits"}),
        replace(
            operation,
            inputs={"x": "bits"},
            outputs={"float": "sums"},
            tensors={"weight": operation.tensors["weight"]},
            attributes=attributes,
        ),
    ]
    return Graph(Input("image"), "sums", buffers, operations)


def _is_exact(graph: Graph) -> bool:
    from rbnn.bench.rivals.openvino_model import core, to_openvino

    height, width, channels = graph.buffers["image"].shape
    images = np.random.default_rng(0).choice([-1, 1], (1, channels, height, width)).astype(np.float32)
    request = core().compile_model(to_openvino(graph, 1), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.array_equal(request({0: images})[0], _sums(graph, images))


def _sums(graph: Graph, images: NDArray[Any]) -> NDArray[Any]:
    """The sums by the oracle's float convolution of signs, which is exact and faster than the one of bits."""
    if graph.operations[1].attributes.get("pad", 0):
        return np.asarray(oracle.run(graph, images)).reshape(1, -1, *graph.buffers["sums"].shape[:2])
    return oracle.run_all(float_twin(graph), images)["sums"].transpose(0, 3, 1, 2)
