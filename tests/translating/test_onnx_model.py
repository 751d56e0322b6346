"""ONNX models of packed networks: every operation on odd shapes, with exact signs, in standard operators and QONNX."""

import itertools
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, numpy_helper
from packed_networks import image_for, one_operation, picture_network, signs, small_network
from random_graphs import random_graph

from rbnn.errors import ExportError, InputError
from rbnn.packed import oracle
from rbnn.packed.graph import Answer, Graph, Input
from rbnn.packed.operations import ACTIVATIONS, KINDS, Buffer, Operation
from rbnn.packed.session import Session
from rbnn.translating.onnx_check import by_operation, run, standard
from rbnn.translating.onnx_model import ANSWER, OPSET, to_onnx
from rbnn.translating.onnx_nodes import IMAGE, QONNX
from rbnn.translating.translate import translates

both_forms = pytest.mark.parametrize("qonnx", [False, True], ids=["onnx", "qonnx"])


def answer(graph: Graph, images: Any, qonnx: bool) -> Any:
    """Run the model with ONNX Runtime, after onnx has checked it."""
    model = to_onnx(graph, qonnx=qonnx).model
    onnx.checker.check_model(model)
    onnx.checker.check_model(standard(model), full_check=True)
    return run(standard(model), {IMAGE: images})[ANSWER]


def floats(*shape: int, seed: int = 7) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# Every operation × odd shapes

SEEDS = range(120)


def answered(seed: int) -> tuple[Graph, Any, dict[str, Any]]:
    """A random network without overflow.  Every float buffer is an output, because a model omits what no output
    needs."""
    for attempt in itertools.count():
        rng = np.random.default_rng([seed, attempt])
        graph = random_graph(rng)
        height, width, channels = graph.buffers["image"].shape
        images = rng.normal(size=(2, channels, height, width)).astype(np.float32)
        floats: list[Answer] = [
            name for each in graph.operations for role, name in each.outputs.items() if role == "float"
        ]
        graph = replace(graph, output={"given": graph.output, "all": floats})
        try:
            return graph, images, oracle.run_all(graph, images)
        except InputError:
            continue
    raise AssertionError


@cache
def compared(seed: int, qonnx: bool) -> set[str]:
    """Compare each operation of a random network and return the kinds.  With the oracle's input, each gives the
    oracle's signs (except at near-ties) and nearly its floats."""
    graph, images, wanted = answered(seed)
    network = to_onnx(graph, qonnx=qonnx)
    onnx.checker.check_model(standard(network.model), full_check=True)
    found = by_operation(graph, network, images, wanted)
    floats = {each.name for each in graph.operations if "float" in each.outputs}
    assert floats <= {each.name for each in found}
    return {each.kind for each in found}


@both_forms
@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks(seed: int, qonnx: bool) -> None:
    assert compared(seed, qonnx)


@both_forms
def test_they_have_every_kind(qonnx: bool) -> None:
    """Except pools of signs that something reads: see test_pools_of_signs_are_exact."""
    assert set().union(*(compared(seed, qonnx) for seed in SEEDS)) | {"max_pool_bits"} == set(KINDS)


def test_every_kind_has_a_translation() -> None:
    assert [kind for kind in KINDS if not translates(kind)] == []


def binary(channels: int, outputs: int, **more: Any) -> Graph:
    rng = np.random.default_rng(channels)
    window = {"kernel": [3, 2], "stride": [2, 1], "padding": [1, 2], "dilation": [1, 2]} | more.pop("window", {})
    size = (7, 8, channels)
    after = (4, 10, outputs)
    tensors = {"weight": signs(rng, outputs, 3, 2, channels)} | more.pop("tensors", {})
    writes = dict.fromkeys(more.pop("writes", ["float"]), after)
    inputs = {"x": size} | ({"residual": after} if more.pop("residual", False) else {})
    return one_operation("binary_conv", inputs, writes, tensors, window | more)


ODD = [1, 3, 8, 31, 64, 65]


@both_forms
@pytest.mark.parametrize("channels", ODD)
@pytest.mark.parametrize("pad", [0, -1])
def test_sums_of_signs_are_exact(channels: int, pad: int, qonnx: bool) -> None:
    graph = binary(channels, 5, pad=pad)
    images = image_for(graph, np.random.default_rng(0))
    np.testing.assert_array_equal(answer(graph, images, qonnx), oracle.run(graph, images))


@both_forms
@pytest.mark.parametrize("outputs", ODD)
@pytest.mark.parametrize("residual", [False, True])
def test_the_finish_of_a_binary_layer_is_exact(outputs: int, residual: bool, qonnx: bool) -> None:
    """Bit for bit, so that the next sign is the same: nothing may be folded into the weights.  A shift of 0 and sums of
    0 test the rule at 0."""
    shift = np.where(np.arange(outputs) % 3, floats(outputs), np.float32(0))
    tensors = {"scale": floats(outputs), "shift": shift, "level": floats(outputs + 1)[1:] * np.float32(outputs % 2)}
    graph = binary(
        33, outputs, tensors=tensors, residual=residual, writes=["float", "bits"], activation=["hardtanh", -9.0, 9.0]
    )
    images = image_for(graph, np.random.default_rng(0))
    np.testing.assert_array_equal(answer(graph, images, qonnx), oracle.run(graph, images))


@both_forms
@pytest.mark.parametrize("outputs", ODD)
def test_thresholds_are_exact(outputs: int, qonnx: bool) -> None:
    threshold = np.random.default_rng(1).integers(-20, 20, outputs).astype(np.int32)
    threshold[:: max(outputs // 3, 1)] = [-(2**31), 2**31 - 1, 0][outputs % 3]
    graph = binary(30, outputs, tensors={"threshold": threshold}, writes=["bits"])
    images = image_for(graph, np.random.default_rng(0))
    np.testing.assert_array_equal(answer(graph, images, qonnx), oracle.run(graph, images))


@both_forms
@pytest.mark.parametrize("channels", ODD)
@pytest.mark.parametrize("how", ["zero", "number", "mean", "tensor", "scaled"])
def test_signs_are_exact(how: str, channels: int, qonnx: bool) -> None:
    shape = (3, 5, channels)
    attributes = {"number": {"level": 0.3}, "mean": {"level": "mean"}}.get(how, {})
    roles = {"tensor": ["level"], "scaled": ["scale", "shift"]}.get(how, [])
    tensors = {role: floats(channels, seed=len(role)) for role in roles}
    graph = one_operation("pack", {"x": shape}, {"bits": shape}, tensors, attributes)
    images = image_for(graph, np.random.default_rng(0), count=20)
    np.testing.assert_array_equal(answer(graph, images, qonnx), oracle.run(graph, images))


@both_forms
def test_the_rule_at_zero(qonnx: bool) -> None:
    """0 and −0 become −1, and the next larger number becomes 1; the same holds at a level."""
    smallest = np.float32(1e-45)
    values = np.array([0.0, -0.0, smallest, -smallest, 1e-30, -1e-30, 3.0, -3.0], np.float32)
    wanted = np.where(values > 0, 1, -1)
    level = np.float32(1.5)
    around = np.array([level, np.nextafter(level, np.float32(2)), np.nextafter(level, np.float32(1))])
    for numbers, at, right in ((values, 0.0, wanted), (around, 1.5, [-1, 1, -1])):
        count = len(numbers)
        weight = np.packbits(np.eye(count, dtype=np.uint8), axis=-1, bitorder="little")[:, None, None]
        graph = one_operation("pack", {"x": (1, 1, count)}, {"bits": (1, 1, count)}, {}, {"level": at})
        assert graph.operations[-1].tensors["weight"].tolist() == weight.tolist()
        got = answer(graph, numbers.reshape(1, -1, 1, 1), qonnx)[0]
        assert ((got + sum(right)) / 2).tolist() == list(right)  # 2 s_o − Σ s


@both_forms
@pytest.mark.parametrize("channels", ODD)
@pytest.mark.parametrize("ceil", [False, True])
def test_pools_of_signs_are_exact(channels: int, ceil: bool, qonnx: bool) -> None:
    attributes = {"kernel": [3, 2], "stride": [2, 2], "padding": [1, 1], "ceil": ceil}
    tensors = {"invert": signs(np.random.default_rng(1), channels)}
    after = (4 if ceil else 3, 4, channels)
    graph = one_operation("max_pool_bits", {"x": (6, 7, channels)}, {"bits": after}, tensors, attributes)
    graph.check()
    images = image_for(graph, np.random.default_rng(0))
    np.testing.assert_array_equal(answer(graph, images, qonnx), oracle.run(graph, images))


@pytest.mark.parametrize("weights", [np.float32, np.int8])
@pytest.mark.parametrize(
    ("shape", "window", "after"),
    [
        ((9, 10, 3), {"kernel": [3, 3], "padding": [1, 1]}, (9, 10, 24)),
        ((9, 10, 5), {"kernel": [4, 3], "stride": [2, 3], "padding": [2, 1], "dilation": [1, 2]}, (5, 3, 24)),
        ((5, 7, 64), {"kernel": [1, 1], "stride": [2, 1]}, (3, 7, 24)),
        ((5, 7, 128), {"kernel": [1, 1]}, (5, 7, 24)),
    ],
)
def test_small_float_layers_add_up_in_the_order_of_the_engine(
    shape: tuple[int, int, int], window: dict[str, list[int]], after: tuple[int, int, int], weights: type
) -> None:
    """Bit for bit, if both have fused multiply-adds."""
    rng = np.random.default_rng(0)
    weight = (50 * rng.normal(size=(24, *window["kernel"], shape[2]))).astype(weights)
    tensors = {"weight": weight, "scale": floats(24), "shift": floats(24, seed=1)}
    graph = one_operation("float_conv", {"x": shape}, {"float": after}, tensors, window)
    images = image_for(graph, rng)
    got, wanted = answer(graph, images, False), oracle.run(graph, images)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    if Session(graph).kernels in ("avx2", "avx512"):
        np.testing.assert_array_equal(got, Session(graph)(images))


# The model


@both_forms
@pytest.mark.parametrize("graph", [small_network(), picture_network()], ids=["floats", "bytes"])
def test_the_batch_is_free(graph: Graph, qonnx: bool) -> None:
    images = floats(7, 3, 8, 8)
    alone = np.concatenate([answer(graph, images[i : i + 1], qonnx) for i in range(7)])
    np.testing.assert_array_equal(answer(graph, images, qonnx), alone)
    assert alone.shape == (7, 5)


@both_forms
def test_constants_are_there_for_each_picture(qonnx: bool) -> None:
    buffers = {"image": Buffer("float", (2, 3, 4)), "c": Buffer("float", (2, 3, 4)), "d": Buffer("float", (2, 3, 4))}
    buffers |= {"all": Buffer("float", (2, 3, 12)), "sum": Buffer("float", (2, 3, 4))}
    operations = [
        Operation("constant", "c", {}, {"float": "c"}, {"value": floats(2, 3, 4)}),
        Operation("constant", "d", {}, {"float": "d"}, {"value": floats(2, 3, 4, seed=1)}),
        Operation("add", "sum", {"a": "c", "b": "image"}, {"float": "sum"}),
        Operation("concat", "all", {"x0": "sum", "x1": "c", "x2": "d"}, {"float": "all"}),
    ]
    graph = Graph(Input("image"), "all", buffers, operations)
    graph.check()
    images = floats(3, 4, 2, 3)
    np.testing.assert_array_equal(answer(graph, images, qonnx), oracle.run(graph, images))


def wide() -> Graph:
    weight = signs(np.random.default_rng(0), 256, 3, 3, 256)
    return one_operation(
        "binary_conv", {"x": (6, 6, 256)}, {"float": (4, 4, 256)}, {"weight": weight}, {"kernel": [3, 3]}
    )  # fmt: skip


def test_a_weight_takes_a_bit() -> None:
    size = len(to_onnx(wide()).model.SerializeToString())
    assert 1 <= 8 * size / (256 * 256 * 9) < 1.03


def test_shared_weights_are_stored_once() -> None:
    graph = wide()
    again = replace(graph.operations[-1], name="again", outputs={"float": "again"})
    twice = Operation("add", "twice", {"a": "out.float", "b": "again"}, {"float": "twice"})
    shape = graph.buffers["out.float"]
    both = replace(
        graph, output="twice", buffers=graph.buffers | {"again": shape, "twice": shape},
        operations=[*graph.operations, again, twice],
    )  # fmt: skip
    network = to_onnx(both).model
    assert len(network.SerializeToString()) < 1.03 * 256 * 256 * 9 / 8
    assert [node.op_type for node in network.graph.node].count("BitShift") == 1
    images = image_for(graph, np.random.default_rng(0), 1)
    np.testing.assert_array_equal(answer(both, images, False), 2 * oracle.run(graph, images))


def test_only_standard_operators_of_opset_18() -> None:
    for seed in range(150):
        model = to_onnx(random_graph(np.random.default_rng(seed))).model
        assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
        for node in model.graph.node:
            assert node.domain == ""
            assert not defs.get_schema(node.op_type, OPSET).deprecated


def test_qonnx_has_its_own_operator_for_signs_alone() -> None:
    model = to_onnx(small_network(), qonnx=True).model
    own = [node for node in model.graph.node if node.domain]
    assert {(node.domain, node.op_type, len(node.input)) for node in own} == {(QONNX, "BipolarQuant", 2)}
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    weights = [node.input[0] for node in own if node.input[0] in tensors]
    assert len(weights) == 3  # and as many activations
    assert len(own) == 6
    assert all(set(np.unique(tensors[name])) == {-1.0, 1.0} for name in weights)
    assert all(tensors[node.input[1]] == 1 for node in own)
    assert not {"Where", "Greater", "BitShift"} & {node.op_type for node in model.graph.node}


def test_whole_weights_of_float_layers_stay_whole() -> None:
    for shape, kernel in (((5, 5, 3), [3, 3]), ((1, 1, 3), [1, 1])):
        weight = np.random.default_rng(0).integers(-128, 128, (70, *kernel, 3), np.int8)
        graph = one_operation(
            "float_conv", {"x": shape}, {"float": (shape[0] - kernel[0] + 1, shape[1] - kernel[1] + 1, 70)},
            {"weight": weight, "scale": floats(70), "shift": floats(70)}, {"kernel": kernel},
        )  # fmt: skip
        stored = [t for t in to_onnx(graph).model.graph.initializer if t.data_type == TensorProto.INT8]
        assert [np.prod(tensor.dims) for tensor in stored] == [weight.size]
        images = image_for(graph, np.random.default_rng(0))
        wanted = oracle.run(graph, images)
        np.testing.assert_allclose(answer(graph, images, False), wanted, atol=2e-6 * np.abs(wanted).max())


@both_forms
def test_a_first_layer_on_bytes(qonnx: bool) -> None:
    """Bit for bit: bytes, sums and everything up to the first average of floats."""
    graph = picture_network()
    images = floats(5, 3, 8, 8)
    network = to_onnx(graph, qonnx=qonnx)
    wanted = oracle.run_all(graph, images)
    compared = {each.name: each for each in by_operation(graph, network, images, wanted)}
    assert {name for name, each in compared.items() if each.difference} <= {"mean", "fc"}
    assert sum(each.near_ties for each in compared.values()) == 0
    assert compared["one"].signs > 0


@both_forms
def test_the_border_of_a_layer_on_bytes_is_small(qonnx: bool) -> None:
    """Σ w·zero over the taps inside the image: 9 kinds of positions among 100 × 90."""
    weight = np.random.default_rng(0).integers(-128, 128, (8, 3, 3, 3), np.int8)
    tensors = {"weight": weight, "zero": np.float32([100.5, 120.25, 7.125]), "scale": floats(8)}
    attributes = {"kernel": [3, 3], "padding": [1, 1]}
    graph = one_operation("int8_conv", {"x": (100, 90, 3)}, {"float": (100, 90, 8)}, tensors, attributes)
    assert len(to_onnx(graph, qonnx=qonnx).model.SerializeToString()) < 8000
    images = image_for(graph, np.random.default_rng(0))
    np.testing.assert_array_equal(answer(graph, images, qonnx), oracle.run(graph, images))


def test_nodes_have_the_names_of_their_layers() -> None:
    names = [node.name for node in to_onnx(small_network()).model.graph.node]
    assert len(set(names)) == len(names)
    assert {"stem/Conv", "one/BitShift", "one/Conv", "two/Conv", "fc/Gemm"} <= set(names)


def test_the_page_says_what_becomes_of_every_operation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    table, _, activations = page.partition("## Operations")[2].partition("\n## ")[0].partition("\n\nThese activations")
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| `")]
    assert sorted(kind for row in rows for kind in re.findall(r"`(\w+)`", row[1])) == sorted(KINDS)
    assert set(re.findall(r"`(\w+)`", activations)) >= set(ACTIVATIONS)
    named = set(re.findall(r"`([A-Z]\w+)`", page)) - {"Session", "BipolarQuant", "RGB"}
    assert all(defs.has(name) for name in named), named


def test_an_operation_without_translation_is_named() -> None:
    graph = small_network()
    odd = replace(graph.operations[-1], kind="warp")
    with pytest.raises(ExportError, match=r"^operation 'fc' \(warp\) has no translation"):
        to_onnx(replace(graph, operations=[*graph.operations[:-1], odd]))
