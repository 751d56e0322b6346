"""Compare the packed network with torch, operation by operation, each with torch's values as its input."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from rbnn.errors import ExportError
from rbnn.exporting.draft import Array, TorchValue, pictures
from rbnn.packed import oracle
from rbnn.packed.comparison import (
    Compared,
    Comparison,
    Sides,
    answer_differences,
    average_rounds,
    leaves,
)
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.session import Session

ACCUMULATORS = "accumulators of "
SIDES = Sides("the packed", "torch's")
SHIFT_ROUNDS = 0.1
"""Part of a shift that counts as the size of a layer's output.  If the shift cancels the sums, as after a batch norm
whose channels do not vary, only about 1e-7 of the shift is left: the rounding of float32."""


def compare(
    graph: Graph, torch_values: dict[str, TorchValue], images: Tensor | list[Tensor], answers: list[Tensor]
) -> Comparison:
    """Raise an ExportError at the first operation that differs by more than rounding.  ``images`` has the images of
    each input."""
    graph_with_sums = _with_accumulators(graph)
    known = {name: torch_value for name, torch_value in torch_values.items() if name in graph.buffers}
    given = {name: _expected(torch_value) for name, torch_value in known.items()}
    tensors = [images] if isinstance(images, Tensor) else images
    pixels = [np.ascontiguousarray(each.numpy()) for each in tensors]
    seen = Session(graph_with_sums).trace(pixels if graph.input.names else pixels[0], given)
    found = [_operation(graph, operation, known, given, seen) for operation in graph.operations]
    compared = [each for each in found if each is not None]
    return Comparison(compared, len(pixels[0]), *_whole(graph, known, given, pixels, answers))


def _expected(torch_value: TorchValue) -> Array:
    return pictures(torch_value.value if torch_value.signs is None else torch_value.signs)


def _with_accumulators(graph: Graph) -> Graph:
    """The graph, with an additional convolution next to each binary convolution that writes its plain sums."""
    operations: list[Operation] = []
    buffers = dict(graph.buffers)
    for operation in graph.operations:
        operations.append(operation)
        if operation.kind == "binary_conv":
            sums = ACCUMULATORS + next(iter(operation.outputs.values()))
            buffers[sums] = Buffer("float", graph.buffers[next(iter(operation.outputs.values()))].shape)
            operations.append(
                Operation(
                    "binary_conv", sums, {"x": operation.inputs["x"]}, {"float": sums},
                    {"weight": operation.tensors["weight"]},
                    {role: value for role, value in operation.attributes.items() if role != "activation"},
                )
            )  # fmt: skip
    return replace(graph, buffers=buffers, operations=operations)


def _operation(
    graph: Graph, operation: Operation, known: dict[str, TorchValue], given: dict[str, Array], seen: dict[str, Array]
) -> Compared | None:
    if operation.kind == "binary_conv":
        sums = ACCUMULATORS + next(iter(operation.outputs.values()))
        bits = given.get(operation.inputs["x"], seen[operation.inputs["x"]])
        if not np.array_equal(seen[sums], _sums(operation, operation.tensors["weight"], bits)):
            raise ExportError(f"layer {operation.name!r}: the packed sums of signs differ from torch's")
    difference, signs, near_ties = 0.0, 0, 0
    compared = False
    for name in operation.outputs.values():
        if name not in known:
            continue
        compared = True
        least = SHIFT_ROUNDS * max(known[name].shift, float(np.abs(operation.tensors.get("shift", 0.0)).max()))
        if known[name].signs is None:
            difference = max(difference, SIDES.float_difference(graph, operation, given[name], seen[name], least))
        else:
            signs += given[name].size
            values, level = known[name].value.double(), known[name].level
            assert level is not None, "signs have a level"
            differ = given[name] != seen[name]
            near_ties += SIDES.near_ties(operation, differ, pictures(values), pictures(values - level.double()), least)
    return Compared(operation.name, operation.kind, difference, signs, near_ties) if compared else None


def _sums(operation: Operation, weight: NDArray[np.uint8], bits: Array) -> Array:
    """Exact, because the sums are integers below 2²⁴ in float32."""
    groups = operation.attributes.get("groups", 1)
    filters = torch.from_numpy(oracle.unpack(weight, bits.shape[3] // groups)).permute(0, 3, 1, 2)
    attributes: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "pad": 0}
    attributes |= operation.attributes
    height, width = attributes["padding"]
    padded = F.pad(
        torch.from_numpy(bits).permute(0, 3, 1, 2), (width, width, height, height), value=float(attributes["pad"])
    )
    stride, dilation = tuple(attributes["stride"]), tuple(attributes["dilation"])
    sums = F.conv2d(padded, filters, stride=stride, dilation=dilation, groups=groups)
    return sums.permute(0, 2, 3, 1).numpy()


def _whole(
    graph: Graph, known: dict[str, TorchValue], given: dict[str, Array], pixels: list[Array], answers: list[Tensor]
) -> tuple[int, float]:
    """Images in which a sign differs when the network runs on its own, and the largest difference of the others."""
    session = Session(graph)
    seen = session.trace(pixels if graph.input.names else pixels[0], {})
    same = np.ones(len(pixels[0]), bool)
    for name, torch_value in known.items():
        if torch_value.signs is not None and name in seen:
            same &= (seen[name] == given[name]).all((1, 2, 3))
    answered = leaves(session(*pixels))
    differences = [answer_differences(wanted.numpy(), got) for wanted, got in zip(answers, answered, strict=True)]
    rounds = max((average_rounds(graph, each) for each in graph.operations), default=0.0)
    return SIDES.answer_difference(np.max(differences, 0), same, rounds)
