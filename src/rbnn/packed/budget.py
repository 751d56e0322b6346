"""The limit of a network's work; otherwise a file of a few hundred bytes could run for hours."""

import os
from collections.abc import Mapping
from math import prod

from rbnn.errors import ConfigError, PackError
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Buffer, Operation
from rbnn.text import as_count, quoted

MOST_WORK = 10**11
"""The default limit per image: about fifty times the work of a ResNet-18 at 224 × 224."""
LEAST_WORK = 1 << 24
"""The minimum that each operation counts, because a large number of operations is also work."""
BLOCK = 64
"""Output channels that a binary convolution computes at once."""
RESIZE_TAPS = 16
"""The largest number of input pixels that an output pixel is made of."""
FUNCTIONS = {"softmax": 32, "standardize": 4, "activation": 16}
"""The cost of a value, for operations that cost more than one multiply-add per value."""
ENVIRONMENT = "RBNN_MOST_WORK"
"""The environment variable with another limit."""


def work(graph: Graph) -> int:
    """Multiply-adds of convolutions, taps of pools, and values of all other operations, for one image of a checked
    graph."""
    return sum(max(_of_operation(each, graph.buffers), LEAST_WORK) for each in graph.operations)


def check_work(graph: Graph, most: float | None) -> None:
    """Raises PackError if the graph needs more than ``most``, or the environment's limit, or MOST_WORK."""
    limit = _limit() if most is None else most
    if not isinstance(limit, int | float) or not limit > 0:
        raise ConfigError(f"most_work must be a positive number, got {quoted(most)}")
    if (wanted := work(graph)) > limit:
        raise PackError(
            f"the network needs {as_count(wanted)} multiply-adds per image, counting at least {as_count(LEAST_WORK)} "
            f"for each of its {len(graph.operations):,} operations, but the limit is {as_count(int(limit))}. If you "
            f"trust it, set the environment variable {ENVIRONMENT}, or most_work of a Session, to {wanted} or inf"
        )


def _limit() -> float:
    text = os.environ.get(ENVIRONMENT, "")
    try:
        limit = float(text or MOST_WORK)
    except ValueError:
        limit = 0.0
    if not limit > 0:
        raise ConfigError(f"{ENVIRONMENT} must be a positive number, got {text!r}")
    return limit


def _of_operation(operation: Operation, buffers: Mapping[str, Buffer]) -> int:
    written = prod(buffers[next(iter(operation.outputs.values()))].shape)
    values = max(written, *(prod(buffers[name].shape) for name in operation.inputs.values()), 0)
    if "weight" in operation.tensors:
        weight, groups = operation.tensors["weight"], operation.attributes.get("groups", 1)
        channels = weight.shape[3]
        if operation.kind == "binary_conv":
            channels *= 8
            if groups > 1:  # each group computes whole blocks
                pixels, outputs = written // len(weight), len(weight) // groups
                written = pixels * groups * -(-outputs // BLOCK) * BLOCK
        return written * int(weight.shape[1] * weight.shape[2] * channels)
    if "kernel" in operation.attributes:
        return written * int(prod(operation.attributes["kernel"]))
    if operation.kind.startswith("adaptive"):  # cells may overlap by a row and a column
        sides = zip(buffers[operation.inputs["x"]].shape[:2], operation.attributes["size"], strict=True)
        return written * int(prod(-(-side // count) + 1 for side, count in sides))
    if operation.kind == "matmul":
        return written * buffers[operation.inputs["a"]].shape[1]
    if operation.kind == "local_norm":
        return written * min(int(operation.attributes["window"]), buffers[operation.inputs["x"]].shape[2])
    if operation.kind == "resize":
        return written * RESIZE_TAPS
    return values * FUNCTIONS.get(operation.kind, 1)
