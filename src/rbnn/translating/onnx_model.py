"""A graph as an ONNX model.

In standard operators (opset 18), signs are the numbers −1 and 1.  The signs of weights are stored as bits, which the
model unpacks.  In QONNX, both are made from numbers by `BipolarQuant`, as FINN and hls4ml expect.
"""

from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, helper

from rbnn.packed.graph import Answer, Graph, unused
from rbnn.translating.builder import Array
from rbnn.translating.onnx_nodes import IMAGE, QONNX, Bipolar, Nodes
from rbnn.translating.translate import Signs, translate

OPSET, IR_VERSION = 18, 8
"""The oldest versions that have `BitwiseAnd`."""
ANSWER, BATCH = "answer", "batch"


@dataclass(frozen=True)
class OnnxNetwork:
    """A model, and the places of the graph's buffers in it."""

    model: "onnx.ModelProto"
    answer: Answer
    """What the network returns, with the names of the model's outputs in place of buffers."""
    answers: dict[str, str]
    """Output → its buffer, in the order of ``answer``."""
    values: dict[str, str]
    """Buffer → its value in the model, N×C×H×W, with signs as −1 and 1.  The input has none.  Signs that only a pool
    reads have none either, because the pool works on the numbers before them."""
    before_sign: dict[str, tuple[str, Array]]
    """Buffer of signs → the value before the sign, and its levels, (1, C, 1, 1) or (1, 1, 1, 1)."""


def to_onnx(graph: Graph, batch: int | None = None, *, qonnx: bool = False, engine_order: bool = True) -> OnnxNetwork:
    """The model that takes ``image`` (N, C, H, W) and returns ``answer``: (N, O), or (N, O, H', W') for a map.  N is
    ``batch``, by default free.  Several outputs have their own names (`answer_names`).

    With ``engine_order``, small float convolutions add in the order of our engine, so that no sign after a first layer
    differs.  QONNX keeps them as convolutions, because its readers know no other form."""
    answer, answers = answer_names(graph.output)
    nodes = Bipolar(answers) if qonnx else Nodes(answers, engine_order)
    translated = translate(graph, nodes, IMAGE)
    number: Any = BATCH if batch is None else batch
    height, width, channels = graph.buffers[graph.input.buffer].shape
    given = helper.make_tensor_value_info(IMAGE, TensorProto.FLOAT, [number, channels, height, width])
    shaped = {name: _answer(graph, nodes, translated, buffer) for name, buffer in answers.items()}
    nodes.end({name: value for name, (value, _) in shaped.items()})
    made = helper.make_graph(
        nodes.nodes,
        "rbnn",
        [given],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [number, *sides])
            for name, (_, sides) in shaped.items()
        ],
        list(nodes.tensors.values()),
    )
    domains = {"": OPSET} | ({QONNX: 1} if qonnx else {})
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    model = helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="rbnn")
    return OnnxNetwork(model, answer, answers, *_places(nodes, translated))


def answer_names(output: Answer) -> tuple[Answer, dict[str, str]]:
    """The output with a name in place of each buffer, and the buffer of each name.  A single output is ``answer``; a
    list has ``answer.0``, ``answer.1``, …; a dictionary has its keys, and nested ones ``key.0`` or ``key.other``."""
    buffers: dict[str, str] = {}

    def named(answer: Answer, name: str) -> Answer:
        if isinstance(answer, list):
            return [named(each, f"{name or ANSWER}.{number}") for number, each in enumerate(answer)]
        if isinstance(answer, dict):
            return {key: named(each, f"{name}.{key}" if name else key) for key, each in answer.items()}
        name = unused(name or ANSWER, {IMAGE, *buffers})
        buffers[name] = answer
        return name

    return named(output, ""), buffers


def _answer(graph: Graph, nodes: Nodes, translated: dict[str, str | Signs], buffer: str) -> tuple[str, tuple[int, ...]]:
    """The value of an output, and its shape without the batch."""
    (height, width, channels), value = graph.buffers[buffer].shape, translated[buffer]
    assert isinstance(value, str), "outputs are float buffers"
    if buffer in graph.shapes:
        sides = tuple(graph.shapes[buffer])
        return nodes.reshape(value, sides), sides
    if (height, width) == (1, 1):
        return nodes.flat(value), (channels,)
    return value, (channels, height, width)


def _places(nodes: Nodes, translated: dict[str, str | Signs]) -> tuple[dict[str, str], dict[str, tuple[str, Array]]]:
    made = {name for node in nodes.nodes for name in node.output}
    values: dict[str, str] = {}
    before_sign: dict[str, tuple[str, Array]] = {}
    for name, value in translated.items():
        at = nodes.called(value.binarized if isinstance(value, Signs) else value)
        if at in made:
            values[name] = at
            if isinstance(value, Signs):
                before_sign[name] = nodes.called(value.value), value.level
    return values, before_sign
