"""Every method as ONNX and QONNX, run by ONNX Runtime, against the oracle."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import VARIANTS, network, pictures

from rbnn.exporting import packed
from rbnn.methods import method_names
from rbnn.packed import oracle
from rbnn.translating.onnx_check import run, standard
from rbnn.translating.onnx_file import write

both_forms = pytest.mark.parametrize("qonnx", [False, True], ids=["onnx", "qonnx"])


def agree(path: Path, method: str, qonnx: bool, *given: Any, float_layers: str = "float32", **options: Any) -> None:
    """Write the file, which compares every operation with the engine, and compare its outputs with the oracle."""
    images = pictures(2, 32)
    model = network("resnet20-bireal", method, 32, **options)
    stem = "int8" if given else "float32"
    graph = packed(model, images, *given, stem=stem, float_layers=float_layers).graph
    report = write(graph, path, images.numpy(), qonnx=qonnx)
    assert report.bytes == path.stat().st_size
    assert report.signs >= (0 if method == "float" else 2 * 18 * 64 * 8 * 8)
    wanted = oracle.run(graph, images.numpy())
    got = run(standard(onnx.load(path)), {"image": images.numpy()})["answer"]
    near = np.abs(got - wanted).max(1) <= 1e-4 * np.maximum(np.abs(wanted).max(1), 1)
    assert int((~near).sum()) <= report.images_with_near_ties


@both_forms
@pytest.mark.parametrize("method", method_names())
def test_every_method(tmp_path: Path, method: str, qonnx: bool) -> None:
    agree(tmp_path / "net.onnx", method, qonnx)


@both_forms
@pytest.mark.parametrize("variant", VARIANTS)
def test_options_that_inference_depends_on(tmp_path: Path, variant: str, qonnx: bool) -> None:
    agree(tmp_path / "net.onnx", variant.partition(" ")[0], qonnx, **VARIANTS[variant])


@both_forms
@pytest.mark.parametrize("method", ["rbnn", "bi-real"])
def test_int8_layers(tmp_path: Path, method: str, qonnx: bool) -> None:
    agree(tmp_path / "net.onnx", method, qonnx, (0.5,) * 3, (0.25,) * 3, float_layers="int8")
