"""Networks with several outputs as ONNX: names, shapes, and the buffer of each."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from packed_networks import small_network

from rbnn.errors import ExportError
from rbnn.packed.comparison import leaves
from rbnn.packed.graph import Answer
from rbnn.packed.session import Session
from rbnn.translating.onnx_check import compare, run, standard
from rbnn.translating.onnx_file import noise, write
from rbnn.translating.onnx_model import answer_names, to_onnx
from rbnn.translating.onnx_nodes import IMAGE

both_forms = pytest.mark.parametrize("qonnx", [False, True], ids=["onnx", "qonnx"])
IMAGES = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("output", "named"),
    [
        ("a", "answer"),
        (["a", "b"], ["answer.0", "answer.1"]),
        ({"out": "a", "aux": "b"}, {"out": "out", "aux": "aux"}),
        ({"maps": ["a", {"x": "b"}], "maps.0": "c"}, {"maps": ["maps.0", {"x": "maps.1.x"}], "maps.0": "maps.0.2"}),
        ({"image": "a", "": "b"}, {"image": "image.2", "": "answer"}),
        ([["a"], ["a"]], [["answer.0.0"], ["answer.1.0"]]),
    ],
)
def test_names(output: Answer, named: Answer) -> None:
    answer, buffers = answer_names(output)
    assert answer == named
    assert list(buffers) == leaves_of(named)
    assert list(buffers.values()) == leaves_of(output)


def leaves_of(answer: Any) -> list[str]:
    if isinstance(answer, str):
        return [answer]
    return [each for part in (answer.values() if isinstance(answer, dict) else answer) for each in leaves_of(part)]


OUTPUTS: list[Answer] = [
    ["logits", "e"],
    {"out": "logits", "maps": ["b", "e"], "pooled": "f"},
    ["logits", "logits", "e", "e"],  # the same output twice
    {"v0": "e", "v3": "b", "stem.weight": "logits", "one.bits": "a", "image": "f"},  # names that other values have too
]


@both_forms
@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_each_answer_is_the_sessions(output: Answer, qonnx: bool) -> None:
    graph = replace(small_network(), output=output, input=replace(small_network().input, classes=()))
    graph.check()
    network = to_onnx(graph, qonnx=qonnx)
    onnx.checker.check_model(standard(network.model), full_check=True)
    answers, got = leaves(Session(graph)(IMAGES)), run(standard(network.model), {IMAGE: IMAGES})
    assert list(got) == list(network.answers)
    for wanted, found in zip(answers, got.values(), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert compare(graph, network, IMAGES).answer_difference < 1e-5


@both_forms
def test_other_shapes(qonnx: bool) -> None:
    graph = replace(
        small_network(), output=["e", "f"], shapes={"e": (12, 8), "f": (2, 3, 4)},
        input=replace(small_network().input, classes=()),
    )  # fmt: skip
    graph.check()
    model = to_onnx(graph, qonnx=qonnx).model
    sides = [[each.dim_value for each in output.type.tensor_type.shape.dim[1:]] for output in model.graph.output]
    assert sides == [[12, 8], [2, 3, 4]]
    first, second = run(standard(model), {IMAGE: IMAGES}).values()
    wanted = Session(graph)(IMAGES)
    assert (first.shape, second.shape) == ((3, 12, 8), (3, 2, 3, 4))
    np.testing.assert_allclose(first, wanted[0], atol=1e-4)
    np.testing.assert_allclose(second, wanted[1], atol=1e-4)


def test_the_file_says_how_they_belong_together(tmp_path: Path) -> None:
    output: Answer = {"out": "logits", "maps": ["b", "e"]}
    graph = replace(small_network(), output=output, input=replace(small_network().input, classes=()))
    write(graph, tmp_path / "net.onnx", noise(graph, 2))
    model = onnx.load(tmp_path / "net.onnx")
    known = {each.key: json.loads(each.value) for each in model.metadata_props}
    assert known["rbnn.answer"] == {"out": "out", "maps": ["maps.0", "maps.1"]}
    assert [each.name for each in model.graph.output] == ["out", "maps.0", "maps.1"]


def test_a_wrong_answer_is_named_whichever_it_is() -> None:
    graph = replace(small_network(), output=["logits", "e"], input=replace(small_network().input, classes=()))
    network = to_onnx(graph)
    (node,) = [node for node in network.model.graph.node if "answer.1" in node.output]
    assert node.op_type == "PRelu"
    node.op_type = "Relu"
    del node.input[1:]
    with pytest.raises(ExportError, match="layer 'three': ONNX Runtime's output differs"):
        compare(graph, network, IMAGES)
