"""Networks for other engines: each agrees with the oracle on the same graph."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_networks import image_for, one_operation, picture_network, signs, small_network

from rbnn.bench.float_twin import float_twin, without_bytes
from rbnn.bench.rivals import amx, contenders
from rbnn.bench.rivals.compare import compare, noise
from rbnn.errors import ConfigError
from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import ACTIVATIONS, KINDS
from rbnn.packed.session import Session

for package in ("onnx", "onnxruntime", "openvino"):
    pytest.importorskip(package)

Shape = tuple[int, int, int]


def by_onnxruntime(graph: Graph, images: Any) -> Any:
    import onnx

    from rbnn.translating.onnx_model import to_onnx

    model = to_onnx(graph, len(images)).model
    onnx.checker.check_model(model, full_check=True)
    return contenders._onnxruntime(model.SerializeToString(), images, 1)()


def by_openvino(graph: Graph, images: Any) -> Any:
    from rbnn.bench.rivals.openvino_model import to_openvino

    return contenders._openvino(to_openvino(graph, len(images)), images, 1)()


def by_torch(graph: Graph, images: Any) -> Any:
    import torch

    from rbnn.bench.rivals.torch_module import to_torch

    return to_torch(graph, len(images))(torch.from_numpy(images)).numpy()


every_engine = pytest.mark.parametrize("engine", [by_torch, by_onnxruntime, by_openvino])
Engine = Callable[[Graph, Any], Any]


def agree(engine: Engine, graph: Graph, images: Any) -> None:
    wanted = oracle.run(graph, images)
    got = engine(graph, images).reshape(wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * max(float(np.abs(wanted).max()), 1))


def floats(*shape: int) -> Any:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


CONV = {"kernel": [3, 2], "stride": [2, 1], "padding": [1, 2], "dilation": [1, 2]}
FINISH = {"scale": floats(64), "shift": floats(64)}
NUMBERS = {"hardtanh": [-0.5, 2.0], "leaky_relu": [0.2], "elu": [0.7], "softplus": [2.0, 1.5], "power": [3.0]}
"""The parameters of activations."""
CASES: list[tuple[str, dict[str, Shape], dict[str, Shape], dict[str, Any], dict[str, Any]]] = [
    ("float_conv", {"x": (7, 8, 6), "residual": (4, 10, 64)}, {"float": (4, 10, 64)},
     FINISH | {"weight": floats(64, 3, 2, 3)}, CONV | {"groups": 2, "activation": ["relu"]}),
    ("float_conv", {"x": (1, 1, 9)}, {"float": (1, 1, 64)}, FINISH | {"weight": floats(64, 1, 1, 9)},
     {"kernel": [1, 1]}),
    ("float_conv", {"x": (1, 1, 9)}, {"float": (3, 3, 4)}, {"weight": floats(4, 1, 1, 9)},
     {"kernel": [1, 1], "padding": [1, 1]}),
    ("binary_conv", {"x": (7, 8, 64), "residual": (4, 8, 64)}, {"float": (4, 8, 64), "bits": (4, 8, 64)},
     FINISH | {"level": floats(65)[1:], "weight": signs(np.random.default_rng(0), 64, 3, 3, 64)},
     {"kernel": [3, 3], "stride": [2, 1], "padding": [1, 1]}),
    ("binary_conv", {"x": (7, 8, 64)}, {"bits": (7, 8, 64)},
     {"weight": signs(np.random.default_rng(0), 64, 3, 3, 64), "threshold": np.arange(-32, 32, dtype=np.int32)},
     {"kernel": [3, 3], "padding": [1, 1]}),
    ("binary_conv", {"x": (7, 8, 64)}, {"float": (7, 8, 64)}, {"weight": signs(np.random.default_rng(0), 64, 3, 3, 64)},
     {"kernel": [3, 3], "padding": [1, 1], "pad": -1}),
    ("binary_conv", {"x": (7, 8, 64), "residual": (7, 8, 64)}, {"float": (7, 8, 64)},
     FINISH | {"weight": signs(np.random.default_rng(0), 64, 3, 3, 32)},
     {"kernel": [3, 3], "padding": [1, 1], "groups": 2}),
    ("int8_conv", {"x": (7, 8, 6), "residual": (4, 10, 64)}, {"float": (4, 10, 64)},
     FINISH | {"weight": np.random.default_rng(0).integers(-128, 128, (64, 3, 2, 6), np.int8),
               "zero": 90 * np.abs(floats(6))}, CONV | {"activation": ["relu"]}),
    ("quantize", {"x": (3, 4, 5)}, {"bytes": (3, 4, 5)}, {"scale": 90 * floats(5), "shift": 90 * floats(5)}, {}),
    ("pack", {"x": (3, 4, 64)}, {"bits": (3, 4, 64)}, {}, {"level": 0.3}),
    ("pack", {"x": (3, 4, 64)}, {"bits": (3, 4, 64)}, {}, {"level": "mean"}),
    ("pack", {"x": (3, 4, 64)}, {"bits": (3, 4, 64)}, {"level": floats(64)}, {}),
    ("pack", {"x": (3, 4, 64)}, {"bits": (3, 4, 64)}, dict(FINISH), {}),
    ("affine", {"x": (3, 4, 64)}, {"float": (3, 4, 64)}, dict(FINISH), {}),
    ("max_pool", {"x": (7, 8, 5)}, {"float": (4, 4, 5)}, {},
     {"kernel": [3, 2], "stride": [2, 2], "padding": [1, 0], "ceil": True}),
    ("max_pool", {"x": (7, 8, 5)}, {"float": (3, 8, 5)}, {}, {"kernel": [3, 1], "stride": [1, 1], "dilation": [2, 1]}),
    ("avg_pool", {"x": (7, 8, 5)}, {"float": (4, 4, 5)}, {},
     {"kernel": [2, 2], "padding": [1, 0], "count_padding": False}),
    ("avg_pool", {"x": (7, 8, 5)}, {"float": (4, 4, 5)}, {}, {"kernel": [2, 2], "padding": [1, 0]}),
    ("avg_pool", {"x": (8, 8, 5)}, {"float": (4, 3, 5)}, {}, {"kernel": [2, 3], "ceil": True}),
    ("max_pool_bits", {"x": (6, 8, 64)}, {"bits": (3, 4, 64)}, {}, {"kernel": [2, 2]}),
    ("max_pool_bits", {"x": (6, 8, 64)}, {"bits": (3, 4, 64)}, {"invert": signs(np.random.default_rng(0), 64)},
     {"kernel": [2, 2]}),
    ("adaptive_max_pool", {"x": (7, 5, 3)}, {"float": (3, 2, 3)}, {}, {"size": [3, 2]}),
    ("adaptive_avg_pool", {"x": (3, 5, 3)}, {"float": (5, 2, 3)}, {}, {"size": [5, 2]}),
    ("mean", {"x": (7, 5, 3)}, {"float": (1, 1, 3)}, {}, {"over": "hw"}),
    ("mean", {"x": (7, 5, 3)}, {"float": (7, 5, 1)}, {}, {"over": "c"}),
    ("mean", {"x": (7, 5, 3)}, {"float": (7, 1, 1)}, {}, {"over": "wc"}),
    ("mean", {"x": (7, 5, 3)}, {"float": (1, 1, 1)}, {}, {"over": "hwc"}),
    *(
        ("reduce", {"x": (7, 5, 3)}, {"float": (7, 1, 3)}, {}, {"how": how, "over": "w"})
        for how in ("sum", "max", "min")
    ),
    ("reduce", {"x": (7, 5, 3)}, {"float": (1, 5, 1)}, {}, {"how": "sum", "over": "hc"}),
    *(
        ("softmax", {"x": (7, 5, 3)}, {"float": (7, 5, 3)}, {}, {"over": over, "log": log})
        for over in ("c", "h", "hw", "wc", "hwc") for log in (False, True)
    ),
    *(
        ("standardize", {"x": (7, 5, 6)}, {"float": (7, 5, 6)}, {}, {"over": over, "eps": 0.01})
        for over in ("c", "hw", "wc", "hwc")
    ),
    ("standardize", {"x": (7, 5, 6)}, {"float": (7, 5, 6)}, {}, {"over": "hwc", "eps": 0.01, "groups": 3}),
    *(
        ("local_norm", {"x": (4, 5, 9)}, {"float": (4, 5, 9)}, {},
         {"window": window, "alpha": 0.7, "beta": 0.75, "k": 2})
        for window in (1, 4, 5)
    ),
    ("divide", {"a": (3, 4, 5), "b": (1, 4, 1)}, {"float": (3, 4, 5)}, {}, {}),
    ("maximum", {"a": (3, 4, 5), "b": (1, 4, 1)}, {"float": (3, 4, 5)}, {}, {}),
    ("minimum", {"a": (3, 1, 5), "b": (3, 4, 5)}, {"float": (3, 4, 5)}, {}, {}),
    ("matmul", {"a": (3, 4, 5), "b": (4, 7, 5)}, {"float": (3, 7, 5)}, {}, {}),
    ("permute", {"x": (3, 4, 6)}, {"float": (3, 4, 6)}, {}, {"sides": [12, 2, 3], "order": [0, 2, 1]}),
    ("permute", {"x": (3, 4, 8)}, {"float": (6, 8, 2)}, {}, {"sides": [3, 4, 2, 2, 2], "order": [0, 3, 1, 4, 2]}),
    ("permute", {"x": (4, 3, 5)}, {"float": (5, 3, 4)}, {}, {"sides": [6, 10], "order": [1, 0]}),
    *(
        ("resize", {"x": (4, 5, 3)}, {"float": (size[0], size[1], 3)}, {}, {"mode": mode, "size": size, **more})
        for mode, size, more in (
            ("nearest", [8, 15], {}), ("nearest", [7, 3], {}), ("nearest_exact", [8, 5], {}), ("bilinear", [8, 3], {}),
            ("bilinear", [7, 9], {"align": True}), ("bilinear", [6, 8], {"scale": [1.7, 1.7]}),
            ("bicubic", [7, 10], {}), ("bicubic", [8, 9], {"align": True}), ("bilinear", [9, 9], {"scale": [2, 3]}),
        )
    ),
    *(
        ("pad", {"x": (3, 4, 5)}, {"float": (5, 7, 5)}, {}, {"before": [0, 1, 0], "after": [2, 2, 0], "mode": mode})
        for mode in ("reflect", "replicate", "circular")
    ),
    ("concat", {"x0": (3, 4, 5), "x1": (2, 4, 5)}, {"float": (5, 4, 5)}, {}, {"axis": "h"}),
    ("add", {"a": (1, 4, 1), "b": (3, 1, 5)}, {"float": (3, 4, 5)}, {}, {}),
    ("multiply", {"a": (3, 4, 5), "b": (1, 1, 5)}, {"float": (3, 4, 5)}, {}, {}),
    ("concat", {"x0": (3, 4, 5), "x1": (3, 4, 7)}, {"float": (3, 4, 12)}, {}, {}),
    ("reshape", {"x": (3, 4, 5)}, {"float": (5, 6, 2)}, {}, {"order": "chw"}),
    ("reshape", {"x": (3, 4, 5)}, {"float": (5, 6, 2)}, {}, {"order": "hwc"}),
    ("slice", {"x": (7, 8, 9)}, {"float": (4, 3, 2)}, {}, {"start": [0, 1, 2], "stop": [7, 8, 6], "step": [2, 3, 3]}),
    *(
        ("select", {"x": (3, 4, 5)}, {"float": shape}, {}, {"axis": axis, "places": places})
        for axis, shape, places in (
            ("h", (2, 4, 5), [2, 0]), ("w", (3, 5, 5), [3, 1, 1, 0, 2]), ("c", (3, 4, 6), [4, 0, 0, 3, 1, 2]),
        )
    ),
    ("pad", {"x": (3, 4, 5)}, {"float": (4, 4, 8)}, {}, {"before": [1, 0, 1], "after": [0, 0, 2], "value": -2.5}),
    ("constant", {}, {"float": (3, 5, 7)}, {"value": floats(3, 5, 7)}, {}),
    *(
        ("activation", {"x": (3, 4, 64)}, {"float": (3, 4, 64)}, {"slope": floats(64)} if name == "prelu" else {},
         {"activation": [name, *NUMBERS.get(name, [])]})
        for name in ACTIVATIONS
    ),
]  # fmt: skip


def test_every_kind_is_there() -> None:
    assert {case[0] for case in CASES} == set(KINDS)


def test_several_answers_have_no_translation() -> None:
    graph = small_network()
    with pytest.raises(ConfigError, match="has 2 outputs, but other engines take networks with one"):
        by_torch(replace(graph, output=["logits", "e"]), floats(1, 3, 8, 8))


@every_engine
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[4]}")
def test_an_operation(case: Any, engine: Engine) -> None:
    graph = one_operation(*case)
    images = image_for(graph, np.random.default_rng(0))
    agree(engine, graph, np.where(images == 0, np.float32(1), images) if case[0] == "divide" else images)


@every_engine
@pytest.mark.parametrize("change", [lambda graph: graph, float_twin], ids=["bits", "float twin"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_network(batch: int, change: Callable[[Graph], Graph], engine: Engine) -> None:
    agree(engine, change(small_network()), floats(batch, 3, 8, 8))


# The float twin


def test_the_twin_is_a_network_without_bits_that_our_engine_runs() -> None:
    twin = float_twin(small_network())
    twin.check()
    assert all(buffer.type == "float" for buffer in twin.buffers.values())
    assert [o.kind for o in twin.operations] == ["float_conv"] * 3 + ["max_pool", "float_conv", "mean", "float_conv"]
    images = floats(2, 3, 8, 8)
    np.testing.assert_allclose(Session(twin)(images), oracle.run(twin, images), rtol=1e-3, atol=1e-3)


def test_the_twin_has_the_weights_as_numbers_and_no_signs() -> None:
    """Two channels, one pixel: 3·(2 − 5) and 3·(−2 + 5) with the shortcut, clamped to ±4; 0.5 differs from its sign."""
    weight = np.packbits(np.array([[1, 0], [0, 1]], np.uint8), axis=-1, bitorder="little").reshape(2, 1, 1, 1)
    graph = one_operation(
        "binary_conv", {"x": (1, 1, 2), "residual": (1, 1, 2)}, {"float": (1, 1, 2)},
        {"weight": weight, "scale": np.float32([3, 3])}, {"kernel": [1, 1], "activation": ["hardtanh", -4, 4]},
    )  # fmt: skip
    images = np.float32([2, 5, 0.5, -8]).reshape(1, 4, 1, 1)
    assert oracle.run(float_twin(graph), images).tolist() == [[-4.0, 1.0]]
    assert oracle.run(graph, images).tolist() == [[0.5, -4.0]]


@pytest.mark.parametrize("zero", [90, 30, None])
def test_bytes_become_floats(zero: float | None) -> None:
    """u = round(90 x + 90) and Σ w·(u − zero); without rounding it differs by up to half a step for each of 27 taps."""
    weight = np.random.default_rng(0).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
    tensors = {"weight": weight, "scale": np.full(8, 0.01, np.float32)}
    if zero is not None:
        tensors["zero"] = np.full(3, zero, np.float32)
    graph = one_operation(
        "int8_conv", {"x": (6, 7, 3)}, {"float": (6, 7, 8)}, tensors, {"kernel": [3, 3], "padding": [1, 1]}
    )  # fmt: skip
    images = image_for(graph, np.random.default_rng(0)).clip(-1, 1.8)
    plain = without_bytes(graph)
    plain.check()
    assert all(buffer.type == "float" for buffer in plain.buffers.values())
    assert [o.kind for o in plain.operations].count("affine") == (zero != 90)
    largest = 0.01 * 0.5 * np.abs(weight.astype(int)).sum((1, 2, 3)).max()
    difference = np.abs(oracle.run(plain, images) - oracle.run(graph, images)).max()
    assert 1e-3 < difference < largest
    assert np.abs(oracle.run(graph, images)).max() > 5 * largest


def test_int8_weights_of_a_float_layer_are_numbers() -> None:
    graph = one_operation(
        "float_conv", {"x": (1, 1, 2)}, {"float": (1, 1, 1)}, {"weight": np.int8([[[[3, -5]]]])}, {"kernel": [1, 1]}
    )  # fmt: skip
    images = np.float32([2, 0.5]).reshape(1, 2, 1, 1)
    assert oracle.run(float_twin(graph), images).tolist() == [[3.5]]
    for engine in (by_torch, by_onnxruntime, by_openvino):
        agree(engine, float_twin(graph), images)


def test_a_threshold_becomes_a_shift() -> None:
    weight, threshold = np.uint8([[[[3]]]]), np.int32([1])
    graph = one_operation(
        "binary_conv", {"x": (1, 1, 2)}, {"bits": (1, 1, 1)}, {"weight": weight, "threshold": threshold},
        {"kernel": [1, 1]},
    )  # fmt: skip
    twin = float_twin(replace(graph, operations=graph.operations[:-1], output="out.bits"))
    images = np.float32([[1.5, 0.25], [9, 9]]).reshape(2, 2, 1, 1)
    assert oracle.run(twin, images).tolist() == [[0.75], [1.0]]


# Contenders


def test_the_contenders_answer_the_same_question() -> None:
    graph, images = small_network(), floats(2, 3, 8, 8)
    made = {each.name: each.call() for each in contenders.rivals(graph, images, 1, list(contenders.ENGINES))}
    assert list(made) == [
        "torch float32", "onnxruntime float32", "onnxruntime int8",
        "openvino float32", "openvino int8", "openvino 1-bit",
    ]  # fmt: skip
    exact, twin = oracle.run(graph, images), oracle.run(float_twin(graph), images)
    for name, answer in made.items():
        if not name.endswith("int8"):  # coarse steps, which thresholds make coarser
            wanted = exact if name.endswith("1-bit") else twin
            np.testing.assert_allclose(answer.reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-3)


def test_all_contenders_see_the_same_pictures() -> None:
    session = Session(picture_network())
    pixels, images = noise(session, 4)
    assert (pixels.dtype, images.dtype, images.shape) == (np.uint8, np.float32, (4, 3, 8, 8))
    np.testing.assert_allclose(images, (pixels / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(session(pixels), session(images))
    for graph in (small_network(), replace(picture_network(), input=Input("image"))):  # the last has no mean and std
        ours, others = noise(Session(graph), 2)
        assert ours.dtype == np.float32
        np.testing.assert_array_equal(ours, others)


def test_int8_is_the_network_in_coarser_numbers() -> None:
    weight = floats(8, 3, 3, 3)
    graph = one_operation(
        "float_conv", {"x": (9, 9, 3)}, {"float": (9, 9, 8)}, {"weight": weight},
        {"kernel": [3, 3], "padding": [1, 1], "activation": ["relu"]},
    )  # fmt: skip
    images = image_for(graph, np.random.default_rng(0))
    wanted = oracle.run(graph, images)
    for each in contenders.rivals(graph, images, 1, ["onnxruntime", "openvino"]):
        error = np.abs(each.call().reshape(wanted.shape) - wanted).max() / wanted.max()
        assert (1e-4 < error < 0.05) == (each.numbers == "int8"), each.name


def test_int8_layers_around_a_resize(tmp_path: Path) -> None:
    import torch
    from torch import nn

    import rbnn

    layers = nn.Conv2d(3, 8, 3, stride=2), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(8, 4, 3)
    rbnn.export(nn.Sequential(*layers).eval(), tmp_path / "net.rbnn", torch.randn(2, 3, 16, 16))
    images = np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)
    session = Session(tmp_path / "net.rbnn")
    for rival in contenders.rivals(session.graph, images, 1, ["onnxruntime"]):
        np.testing.assert_allclose(rival.call(), session(images), atol=0.1)


def test_a_network_with_one_output_in_a_table_is_compared() -> None:
    found = compare(replace(small_network(), output={"out": "logits"}), ["openvino"], seconds=0.01)
    assert [each["engine"] for each in found["contenders"]][:2] == ["rbnn", "openvino"]
    assert found["openvino_binary"]["largest_difference"] < 1e-3


def test_an_engine_that_cannot_load_the_network_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("Exception from core.cpp:117:\ncould not append a post-op\n")

    monkeypatch.setattr(contenders, "_openvino", fail)
    found = compare(small_network(), ["onnxruntime", "openvino"], seconds=0.01)
    assert [each["engine"] for each in found["contenders"]] == ["rbnn", "onnxruntime", "onnxruntime"]
    assert found["openvino_binary"] is None
    assert found["refused"][0] == (
        "openvino float32 is left out, because openvino cannot load this network: "
        "Exception from core.cpp:117: could not append a post-op"
    )


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert contenders.missing("openvino") is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("openvino", "torch") else name)
    assert contenders.missing("onnxruntime") is None
    assert contenders.missing("openvino") == "openvino is left out: pip install 'rbnn[bench]' (lacks openvino)"
    assert contenders.missing("torch") == "torch is left out: pip install 'rbnn[train]' (lacks torch)"


# AMX


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The system reports nothing about the CPU yet."""
    monkeypatch.setattr(amx, "CPU", tmp_path / "cpuinfo")
    monkeypatch.setenv(amx.LIMIT, "to be restored")
    monkeypatch.delenv(amx.LIMIT)
    amx.avoid_deadly_amx.cache_clear()
    yield tmp_path / "cpuinfo"
    amx.avoid_deadly_amx.cache_clear()


@pytest.mark.parametrize(("program", "survives"), [("", True), ("raise SystemExit(1)", True), ("os.abort()", False)])
def test_openvino_does_without_amx_where_that_kills(
    cpu: Path, program: str, survives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = subprocess.run
    monkeypatch.setattr(
        subprocess, "run", lambda command, **more: run([command[0], "-c", f"import os; {program}"], **more)
    )
    assert amx.avoid_deadly_amx() is None
    assert amx.LIMIT not in os.environ  # not such a CPU, so nothing was tried
    cpu.write_text("flags : sse2 avx512f amx_tile amx_int8", encoding="utf-8")
    amx.avoid_deadly_amx.cache_clear()
    said = amx.avoid_deadly_amx()
    assert (said is None) == survives
    assert os.environ.get(amx.LIMIT) == (None if survives else amx.WITHOUT_AMX)


def test_a_limit_of_the_user_stays(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu.write_text("flags : amx_int8", encoding="utf-8")
    monkeypatch.setenv(amx.LIMIT, "AVX2")
    assert amx.avoid_deadly_amx() is None
    assert os.environ[amx.LIMIT] == "AVX2"


def test_the_probe_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", amx.__name__],
        env=os.environ | {amx.LIMIT: amx.WITHOUT_AMX},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
