"""rbnn export, end to end on a network trained on digits."""

import json
from pathlib import Path

import numpy as np
import torch
from answers import Rbnn

from rbnn.packed import file as packfile
from rbnn.packed.session import Session
from rbnn.training.checkpoint import load_network


def test_a_run_becomes_a_packed_file(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "a name.rbnn"
    answer = rbnn("export", run_directory, "-o", file, "--json")
    assert (answer.code, answer.err) == (0, "")
    report = json.loads(answer.out)
    assert report["path"] == str(file)
    assert report["bytes"] == file.stat().st_size < 80_000
    assert (report["pictures"], report["images"]) == ("test", 4)
    assert (report["binary_layers"], report["float_layers"]) == (18, 2)
    network = load_network(run_directory)
    contract = packfile.read(file).input
    assert (contract.mean, contract.std) == (network.contract.mean, network.contract.std)
    assert contract.classes == network.contract.classes
    session = Session(file)
    images = torch.randn(8, *session.input_shape)
    with torch.no_grad():
        wanted = network.model.eval()(images).numpy()
    np.testing.assert_allclose(session(images.numpy()), wanted, atol=1e-3)


def test_int8_makes_the_file_smaller(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    sizes = []
    for flags in ([], ["--float-layers", "int8"], ["--stem", "int8", "--float-layers", "int8"]):
        answer = rbnn("export", run_directory, "-o", tmp_path / "net.rbnn", *flags, "--json")
        assert (answer.code, answer.err) == (0, "")
        sizes.append(json.loads(answer.out)["bytes"])
    assert sizes[0] > sizes[1]
    assert "int8_conv" in [operation.kind for operation in packfile.read(tmp_path / "net.rbnn").operations]


def test_the_report_for_people(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    answer = rbnn("export", run_directory / "last.pt", "-o", tmp_path / "net.rbnn", "--images", "2")
    assert answer.code == 0
    first, layers, whole = answer.out.splitlines()
    assert first.startswith(f"{tmp_path / 'net.rbnn'}: ")
    assert "18 binary and 2 float layers" in first
    assert layers.startswith("each layer compared with torch: ")
    assert whole.startswith(
        ("whole network: signs differ in ", "whole network: no sign differs in 2 images; outputs differ by")
    )


def test_what_cannot_be_exported(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    answer = rbnn("export", tmp_path / "none", "-o", tmp_path / "net.rbnn")
    assert (answer.code, answer.out) == (2, "")
    assert "no checkpoint, run directory, packed file or pretrained network is named" in answer.err
    answer = rbnn("export", run_directory, "-o", tmp_path / "no" / "net.rbnn")
    assert answer.code == 2
    answer = rbnn("export", run_directory, "-o", tmp_path / "net.rbnn", "--images", "0")
    assert "--images must be 1 to 100" in answer.err
    assert not list(tmp_path.iterdir())


def test_free_sizes(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.rbnn"
    answer = rbnn("export", run_directory, "-o", file, "--free-size")
    assert (answer.code, answer.err) == (0, "")
    session, model = Session(file), load_network(run_directory).model.eval()
    images = torch.randn(2, 1, 19, 26)
    with torch.no_grad():
        wanted = model(images).numpy()
    np.testing.assert_allclose(session(images.numpy()), wanted, atol=1e-3)
    refused = rbnn("export", run_directory, "--onnx", tmp_path / "net.onnx", "--free-size")
    assert (refused.code, refused.out) == (2, "")
    assert "--free-size applies to the packed file" in refused.err


def test_a_loop_of_links_is_one_sentence(run_directory: Path, tmp_path: Path, rbnn: Rbnn) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    said = rbnn("export", run_directory, "-o", loop / "net.rbnn")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
