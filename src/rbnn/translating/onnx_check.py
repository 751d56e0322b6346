"""Compare an ONNX model with the packed network, operation by operation, each with the engine's values as its input."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from rbnn.errors import ExportError
from rbnn.packed.comparison import (
    Compared,
    Comparison,
    Sides,
    answer_differences,
    largest,
    leaves,
)
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation
from rbnn.packed.session import Session
from rbnn.text import shorten
from rbnn.translating.onnx_model import BATCH, OnnxNetwork
from rbnn.translating.onnx_nodes import IMAGE, QONNX

Array = NDArray[Any]
SIDES = Sides("ONNX Runtime's", "the packed network's")


def compare(graph: Graph, network: OnnxNetwork, images: Array) -> Comparison:
    """Raise ExportError at the first operation that differs by more than rounding."""
    session = Session(graph)
    wanted, answers = session.trace(images, {}), dict(zip(network.answers, leaves(session(images)), strict=True))
    compared = by_operation(graph, network, images, wanted)
    other, difference = _whole(network, images, wanted, answers)
    return Comparison(compared, len(images), other, difference)


def by_operation(graph: Graph, network: OnnxNetwork, images: Array, wanted: dict[str, Array]) -> list[Compared]:
    """Run each operation of the model on ``wanted``, the buffers of the packed network as (N, H, W, C)."""
    wanted = wanted | {graph.input.buffer: images.transpose(0, 2, 3, 1)}
    model = _cut(network, graph)
    given = {f"{GIVEN}{network.values[name]}": _nchw(wanted[name]) for name in network.values}
    feeds = {each.name for each in model.graph.input}
    read = {IMAGE: images} | {name: array for name, array in given.items() if name in feeds}
    seen = {IMAGE: images} | run(model, read)
    return [each for operation in graph.operations for each in _operation(graph, operation, network, wanted, seen)]


GIVEN = "given "


def _cut(network: OnnxNetwork, graph: Graph) -> "onnx.ModelProto":
    """The model, in which readers of a buffer get a given value, and the computed value becomes an output."""
    model = standard(network.model)
    cuts = set(network.values.values())
    read = set()
    for node in model.graph.node:
        read |= cuts & set(node.input)
        node.input[:] = [GIVEN + name if name in cuts else name for name in node.input]
    shapes = {network.values[name]: graph.buffers[name].shape for name in network.values}
    model.graph.input.extend(_described(GIVEN + name, shapes[name]) for name in sorted(read))
    _answer_with(model, cuts | {value for value, _ in network.before_sign.values()})
    return model


def _described(name: str, shape: tuple[int, int, int]) -> Any:
    height, width, channels = shape
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, channels, height, width])


def _answer_with(model: "onnx.ModelProto", values: set[str]) -> None:
    """Add these values to the outputs."""
    made = {name for node in model.graph.node for name in node.output} - {each.name for each in model.graph.output}
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in sorted(values & made)
    )


def standard(model: "onnx.ModelProto") -> "onnx.ModelProto":
    """A copy in which standard operators replace `BipolarQuant`: scale if x ≥ 0, otherwise −scale."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.node[:]
    copy.graph.node.extend(each for node in model.graph.node for each in _in_standard_operators(node))
    kept = [opset for opset in model.opset_import if opset.domain != QONNX]
    del copy.opset_import[:]
    copy.opset_import.extend(kept)
    if len(kept) < len(model.opset_import):
        copy.graph.initializer.append(helper.make_tensor(ZERO, TensorProto.FLOAT, [], [0.0]))
    return copy


ZERO = "zero of BipolarQuant"


def _in_standard_operators(node: Any) -> Iterator[Any]:
    if node.op_type != "BipolarQuant":
        yield node
        return
    (x, scale), (answer,) = node.input, node.output
    yield helper.make_node("GreaterOrEqual", [x, ZERO], [f"{answer} ≥"])
    yield helper.make_node("Neg", [scale], [f"{answer} −"])
    yield helper.make_node("Where", [f"{answer} ≥", scale, f"{answer} −"], [answer])


def run(model: "onnx.ModelProto", feeds: dict[str, Array]) -> dict[str, Array]:
    """The outputs of ONNX Runtime, by name.  Raises ExportError if it does not run the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are reported below
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))
    except Exception as reason:  # its exceptions have no common class
        said = " ".join(str(reason).split())
        raise ExportError(f"ONNX Runtime does not run the model: {shorten(said, 300)}") from None


def _nchw(array: Array) -> Array:
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2), np.float32)


def _operation(
    graph: Graph, operation: Operation, network: OnnxNetwork, wanted: dict[str, Array], seen: dict[str, Array]
) -> Iterator[Compared]:
    values = {buffer: name for name, buffer in network.answers.items()} | network.values
    names = [name for name in operation.outputs.values() if name in values]
    difference, signs, near_ties = 0.0, 0, 0
    for name in names:
        right = _nchw(wanted[name])
        got = seen[values[name]].reshape(right.shape)  # outputs have other shapes
        if name in network.before_sign:
            signs += right.size
            before, level = network.before_sign[name]
            numbers = seen[before].astype(np.float64)
            near_ties += SIDES.near_ties(operation, right != got, numbers, numbers - level)
        else:
            least = _least(operation, {role: wanted[each] for role, each in operation.inputs.items()})
            difference = max(difference, SIDES.float_difference(graph, operation, right, got, least))
    if names:
        yield Compared(operation.name, operation.kind, difference, signs, near_ties)


FUNCTIONS = (
    "sigmoid", "elu", "selu", "gelu", "gelu_tanh", "silu", "softplus", "tanh", "hardsigmoid", "mish",
)  # fmt: skip
"""Activations that ONNX Runtime computes with an absolute error below the last digit of 1, even near 0."""


def _least(operation: Operation, inputs: dict[str, Array]) -> Array:
    """The smallest reference for relative differences.  If large values may cancel, it is their size."""
    if operation.kind in ("mean", "reduce", "resize"):
        return largest(inputs["x"])
    if operation.kind == "matmul":
        return np.asarray(largest(inputs["a"]) * largest(inputs["b"]))
    rounds = operation.kind == "standardize" or operation.attributes.get("activation", [""])[0] in FUNCTIONS
    return np.asarray(float(rounds))


def _whole(
    network: OnnxNetwork, images: Array, wanted: dict[str, Array], answers: dict[str, Array]
) -> tuple[int, float]:
    """Images in which a sign differs when the model runs on its own, and the largest difference of the others."""
    model = standard(network.model)
    got = run(model, {IMAGE: images})  # before signs become outputs too, because then an engine may merge less
    signs = {name: network.values[name] for name in network.before_sign}
    _answer_with(model, set(signs.values()))
    seen = run(model, {IMAGE: images})
    same = np.ones(len(images), bool)
    for name, value in signs.items():
        same &= (seen[value] == _nchw(wanted[name])).all((1, 2, 3))
    worst_of_each = np.max([answer_differences(answers[name], got[name]) for name in answers], 0)
    return SIDES.answer_difference(worst_of_each, same)
