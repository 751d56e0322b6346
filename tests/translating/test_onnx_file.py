"""`rbnn.export_onnx`: from any name of a network to a file that other engines run."""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from packed_networks import picture_network, small_network
from random_graphs import random_graph

import rbnn
from rbnn import data
from rbnn.data.preprocess import normalise
from rbnn.errors import ExportError, RbnnError
from rbnn.packed import file as packfile
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer
from rbnn.translating.onnx_check import run, standard
from rbnn.translating.onnx_file import describe, noise, write
from rbnn.translating.onnx_model import OnnxNetwork

DIGITS = "resnet20-bireal-digits"


def metadata(path: Path) -> dict[str, Any]:
    return {each.key: json.loads(each.value) for each in onnx.load(path).metadata_props}


@pytest.mark.parametrize("qonnx", [False, True])
def test_all_test_digits_have_the_same_class(tmp_path: Path, qonnx: bool) -> None:
    """The whole of docs/onnx.md at small size."""
    file = tmp_path / "digits.onnx"
    report = rbnn.export_onnx(DIGITS, file, qonnx=qonnx)
    assert (report.path, report.bytes, report.beside) == (file, file.stat().st_size, "the packed network")
    assert (report.binary_layers, report.float_layers, report.images) == (18, 2, 4)
    assert report.signs > 10_000
    session, tests = rbnn.load(DIGITS), data.load("digits", tmp_path, "test")
    assert isinstance(tests, data.ImageSet)
    images = normalise(tests.images, session.graph.input.mean, session.graph.input.std)
    model = onnx.load(file)
    if qonnx:
        answers = run(standard(model), {"image": images})["answer"]
    else:
        (answers,) = onnxruntime.InferenceSession(file).run(None, {"image": images})
    wanted = session(images)
    assert len(wanted) == 360
    assert wanted.argmax(1).tolist() == answers.argmax(1).tolist()
    near = np.abs(answers - wanted).max(1) < 1e-4
    assert near.mean() >= (0.98 if qonnx else 1)  # QONNX has a plain first layer, so signs may differ at near-ties


def test_whatever_names_a_network(tmp_path: Path) -> None:
    packfile.write(small_network(), tmp_path / "net.rbnn")
    session = rbnn.Session(tmp_path / "net.rbnn")
    sources = [session, tmp_path / "net.rbnn", str(tmp_path / "net.rbnn")]
    for number, net in enumerate(sources):
        rbnn.export_onnx(net, tmp_path / f"{number}.onnx")
    assert len({(tmp_path / f"{number}.onnx").read_bytes() for number in range(3)}) == 1


def test_what_is_known_of_pictures_and_classes_travels_along(tmp_path: Path) -> None:
    write(small_network(), tmp_path / "net.onnx", noise(small_network(), 2))
    assert metadata(tmp_path / "net.onnx") == {
        "rbnn.classes": ["a", "b", "c", "d", "e"],
        "rbnn.input": {
            "channels": 3, "height": 8, "width": 8, "mean": [0.5] * 3, "std": [0.25] * 3, "colours": "RGB",
            "resize_shorter_side": 8, "centre_crop": 8,
        },
    }  # fmt: skip
    plain = replace(small_network(), input=Input("image"))
    write(plain, tmp_path / "plain.onnx", noise(plain, 2))
    assert metadata(tmp_path / "plain.onnx") == {
        "rbnn.classes": [], "rbnn.input": {"channels": 3, "height": 8, "width": 8},
    }  # fmt: skip
    model = onnx.load(tmp_path / "net.onnx")
    assert (model.producer_name, model.producer_version) == ("rbnn", rbnn.__version__)
    assert [each.name for each in (*model.graph.input, *model.graph.output)] == ["image", "answer"]


def test_large_pictures_lose_their_margin() -> None:
    large = replace(small_network(), buffers=small_network().buffers | {"image": Buffer("float", (224, 224, 3))})
    network = OnnxNetwork(onnx.ModelProto(), "answer", {}, {}, {})
    describe(network, large)
    given = {each.key: json.loads(each.value) for each in network.model.metadata_props}["rbnn.input"]
    assert (given["resize_shorter_side"], given["centre_crop"]) == (256, 224)


@pytest.mark.parametrize("graph", [small_network(), picture_network()], ids=["floats", "bytes"])
def test_random_pictures_are_what_the_network_takes(graph: Graph) -> None:
    images = noise(graph, 5)
    assert (images.shape, images.dtype) == ((5, 3, 8, 8), np.float32)
    np.testing.assert_allclose(images * 0.25 + 0.5, np.round((images * 0.25 + 0.5) * 255) / 255, atol=1e-6)


def test_what_cannot_be_translated_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_text("before", encoding="utf-8")
    graph = small_network()
    odd = replace(graph, operations=[*graph.operations[:-1], replace(graph.operations[-1], kind="warp")])
    with pytest.raises(ExportError, match=r"operation 'fc' \(warp\) has no translation"):
        write(odd, path, noise(graph, 2))
    assert path.read_text(encoding="utf-8") == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_missing_packages_are_named_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else found(name))
    with pytest.raises(ModuleNotFoundError, match=r"needs onnxruntime: pip install 'rbnn\[onnx\]'"):
        rbnn.export_onnx("no such network", tmp_path / "net.onnx")


def test_bad_places_are_named_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"no such/net\.onnx"):
        rbnn.export_onnx("no such network", tmp_path / "no such" / "net.onnx")


NO_ANSWER = r"operation '.*' \((divide|activation|\w+_conv)\): its values are larger than a float holds"


def test_any_network_is_written_or_refused_in_a_sentence(tmp_path: Path) -> None:
    """Random networks of every kind of operation; a few have no output for noise, because a root or quotient fails,
    alone or as the activation of a convolution."""
    refused = []
    for seed in range(40):
        graph = random_graph(np.random.default_rng(seed))
        try:
            write(graph, tmp_path / "net.onnx", noise(graph, 2), qonnx=bool(seed % 2))
        except RbnnError as reason:
            refused.append(str(reason))
    assert len(refused) <= 2
    assert [said for said in refused if not re.fullmatch(NO_ANSWER, said)] == []
