"""rbnn export --onnx and --qonnx of a run, a checkpoint, a packed file and a name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from answers import WITHOUT_TORCH, Rbnn

import rbnn as package
from rbnn.packed import file as packfile


def answers(path: Path, images: object) -> object:
    return onnxruntime.InferenceSession(path).run(None, {"image": images})[0]


def test_a_run_becomes_all_three_files(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    packed, plain, quantised = tmp_path / "net.rbnn", tmp_path / "net.onnx", tmp_path / "net.qonnx"
    answer = rbnn("export", run_directory, "-o", packed, "--onnx", plain, "--qonnx", quantised, "--json")
    assert (answer.code, answer.err) == (0, "")
    report = json.loads(answer.out)
    assert (report["path"], report["beside"], report["pictures"]) == (str(packed), "torch", "test")
    for form, path in (("onnx", plain), ("qonnx", quantised)):
        assert (report[form]["path"], report[form]["bytes"]) == (str(path), path.stat().st_size)
        assert report[form]["beside"] == "the packed network"
        assert report[form]["signs"] > 0
        assert report[form]["layers"]
    assert {node.op_type for node in onnx.load(quantised).graph.node} >= {"BipolarQuant"}
    session = package.Session(packed)
    images = np.random.default_rng(0).normal(size=(3, *session.input_shape)).astype(np.float32)
    np.testing.assert_allclose(answers(plain, images), session(images), atol=1e-4)


def test_a_checkpoint_by_itself_with_int8_layers(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    flags = ["--stem", "int8", "--float-layers", "int8"]
    answer = rbnn("export", run_directory / "last.pt", "--onnx", file, *flags)
    assert (answer.code, answer.err) == (0, "")
    first, layers, whole = answer.out.splitlines()
    assert first.startswith(f"{file}: ")
    assert layers.startswith("each layer compared with the packed network: all ")
    assert whole.startswith("whole network: no sign differs in 4 images; outputs differ by at most ")
    assert "Round" in [node.op_type for node in onnx.load(file).graph.node]
    types = [tensor.data_type for tensor in onnx.load(file).graph.initializer]
    assert types.count(onnx.TensorProto.INT8) == 2
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("net", ["NAME", "FILE"])
def test_a_packed_network_without_torch(net: str, tmp_path: Path) -> None:
    """The file has the same bytes, however the network is named."""
    name = "resnet20-bireal-digits"
    if net == "FILE":
        packfile.write(package.load(name).graph, tmp_path / "net.rbnn")
    words = ["export", name if net == "NAME" else "net.rbnn", "--onnx", "net.onnx", "--images", "2", "--json"]
    program = WITHOUT_TORCH.replace('"onnx", "onnxruntime", ', "")
    assert program != WITHOUT_TORCH
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["pictures"], report["onnx"]["images"]) == ("random", 2)
    package.export_onnx(name, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "net.onnx").read_bytes()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    words = ["export", "resnet20-bireal-digits", "--onnx", "net.onnx"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rbnn: `rbnn export` needs onnx: pip install 'rbnn[onnx]'\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["RUN"], "no output file given: add -o FILE, --onnx FILE or --qonnx FILE"),
        (["RUN", "--onnx", "a", "--qonnx", "./a"], "name the same file: give each its own name"),
        (["resnet20-bireal-digits", "-o", "a", "--onnx", "b"], "is a packed network, which has no training state"),
        (["resnet20-bireal-digits", "--onnx", "a", "--stem", "int8"], "is already packed: --stem and --float-layers"),
        (["resnet20-bireal-digit", "--onnx", "a"], "did you mean resnet20-bireal-digits?"),
        (["none.rbnn", "--onnx", "a"], "none.rbnn: no such file"),
        (["RUN", "--onnx", "no such/a"], "cannot access no such/a: the directory no such does not exist"),
        (["RUN", "--qonnx", "."], "cannot access .: it is a directory, but the output must be a file"),
        (["RUN", "--onnx", "a", "--images", "0"], "--images must be 1 to 100"),
    ],
)
def test_bad_input(
    words: list[str], says: str, rbnn: Rbnn, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = rbnn("export", *(run_directory if word == "RUN" else word for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert answer.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
