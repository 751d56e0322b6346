"""`rbnn info` with a name, a run directory, and neither."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rbnn.cli import main
from rbnn.text import shorten
from rbnn.training import checkpoint
from rbnn.training.config import TrainConfig
from rbnn.training.contract import InputContract


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["info", *words]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["info", *words]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert "Traceback" not in caught.err
    assert caught.err.count("\n") == 1
    return caught.err


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return json.loads(said(capsys, *words, "--json"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run directory of an untrained network for 12×12 greyscale images of seven classes."""
    config = TrainConfig(model="resnet20", method="xnor-net")
    contract = InputContract(1, 12, (0.5,), (0.5,), tuple("abcdefg"))
    checkpoint.save(tmp_path / checkpoint.BEST, config, contract, checkpoint.build(config, contract))
    return tmp_path


def test_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "resnet20-bireal")
    assert set(found) == {"model", "method", "input", "layers", "total", "float_parts"}
    assert (found["model"], found["method"], found["input"]) == ("resnet20-bireal", "rbnn", [3, 32, 32])
    assert (found["total"]["binary_macs"], found["total"]["bytes"]) == (40_108_032, 43_752)
    assert [part["name"] for part in found["float_parts"]] == ["affines", "fc", "conv1"]
    first = found["layers"][0]
    assert first == {
        "name": "conv1",
        "kind": "conv",
        "bits": 32,
        "weight": [16, 3, 3, 3],
        "output": [16, 32, 32],
        "calls": 1,
        "parameters": 432,
        "binary_macs": 0,
        "float_macs": 442_368,
        "bytes": 1728,
        "float_bytes": 1728,
    }
    for key in ("parameters", "binary_macs", "float_macs", "bytes", "float_bytes"):
        assert found["total"][key] == sum(layer[key] for layer in found["layers"])


def test_what_stays_of_a_method_is_not_said_to_go(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "resnet20-bireal", "--method", "xnor++")
    plain = as_json(capsys, "resnet20-bireal")
    assert [set(layer) for layer in found["layers"]] == [set(layer) for layer in plain["layers"]]
    assert set(found["total"]) == set(plain["total"])
    assert (found["total"]["bytes"], found["total"]["training_only"]) == (78_696, 0)
    assert found["float_parts"][0] == {"name": "position factors", "bytes": 32_256, "share": 32_256 / 78_696}
    text = said(capsys, "resnet20-bireal", "--method", "xnor++")
    assert "The export drops" not in text
    assert "position factors 41.0 %" in text


def test_the_float_twin(capsys: pytest.CaptureFixture[str]) -> None:
    total = as_json(capsys, "resnet20", "--method", "float")["total"]
    assert (total["bytes"], total["bytes_ratio"], total["binary_macs"]) == (1_079_400, 1.0, 0)
    text = said(capsys, "resnet20", "--method", "float")
    assert "all in float" in text
    assert "smaller" not in text


def test_networks_for_imagenet_have_a_thousand_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert as_json(capsys, "resnet18", "--method", "xnor-net")["layers"][-1]["weight"] == [1000, 512]
    assert as_json(capsys, "resnet18", "--method", "xnor-net", "--classes", "5")["layers"][-1]["weight"] == [5, 512]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "resnet18")
    assert max(map(len, text.splitlines())) <= 100
    for name in ("conv1", "layers.1.0.shortcut.0", "layers.3.1.conv2", "fc", "21 batch norms"):
        assert f"{name} " in text
    stem = next(line.split() for line in text.splitlines() if line.startswith("conv1"))
    assert stem == ["conv1", "conv", "64×3×7×7", "64×112×112", "32", "9.41", "k", "–", "118", "M", "37,632"]
    total = next(line.split() for line in text.splitlines() if line.startswith("total"))
    assert total == ["total", "11.7", "M", "1.68", "G", "138", "M", "4,193,440"]
    assert "the float twin 46.76 MB: 11.2× smaller" in text
    assert "from being smaller, by share of its bytes: fc 48.9 %" in " ".join(text.split())
    assert "The export drops" in text


@pytest.mark.parametrize("net", ["resnet18", "resnet18-cifar", "resnet20-bireal", "vgg-small"])
def test_at_80_columns_nothing_is_cut(
    net: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = said(capsys, net)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    rows = [line.split() for line in text.partition("Deployed")[0].splitlines() if line]
    layers = as_json(capsys, net)["layers"]
    wanted = [(layer["name"], f"{layer['bytes']:,}") for layer in layers if layer["kind"] != "batch norm"]
    assert [(row[0], row[-1]) for row in rows[4 : 4 + len(wanted)]] == wanted


def test_a_run_directory_and_a_checkpoint(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, str(run))
    assert found == as_json(capsys, str(run / "best.pt"))
    assert (found["model"], found["method"], found["input"]) == ("resnet20", "xnor-net", [1, 12, 12])
    assert found["layers"][0]["output"] == [16, 12, 12]
    assert found["layers"][-1]["weight"] == [7, 64]


def test_what_lies_here_wins_over_a_name(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "vgg-small").symlink_to(run / "best.pt")
    monkeypatch.chdir(run)
    assert as_json(capsys, "vgg-small")["model"] == "resnet20"


def test_a_name_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'resnet20'?" in refused(capsys, "resnet21")
    mistyped = refused(capsys, "resnet20-bireal-digit")
    assert "did you mean 'resnet20-bireal-digits'?" in mistyped
    assert " resnet20-bireal-cifar10," in mistyped
    assert " vgg-small" in mistyped
    assert "did you mean 'xnor-net'?" in refused(capsys, "resnet20", "--method", "xnor-ne")
    assert "no run directory, checkpoint or packed file is named runs/nowhere" in refused(capsys, "runs/nowhere")
    assert "no run directory, checkpoint or packed file is named last.pt" in refused(capsys, "last.pt")
    assert "num_classes must be at least 2" in refused(capsys, "resnet20", "--classes", "-3")


def test_what_is_no_network(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (run / "best.pt").read_bytes()
    broken = run / "broken.pt"
    for content in (b"", b"not a checkpoint", whole[: len(whole) // 2]):
        broken.write_bytes(content)
        assert "broken.pt is not a readable checkpoint" in refused(capsys, str(broken))
    torch.save({"weights": torch.zeros(3)}, broken)
    assert "not an rbnn checkpoint" in refused(capsys, str(broken))
    empty = run / "empty"
    empty.mkdir()
    assert "contains neither best.pt nor last.pt" in refused(capsys, str(empty))


def test_a_trained_network_has_its_method(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, value in (("--method", "rbnn"), ("--classes", "7"), ("--activation", "prelu"), ("--shortcut", "conv")):
        assert "apply only to the name of a network" in refused(capsys, str(run), flag, value)


def test_long_names_lose_their_middle() -> None:
    assert shorten("layers.0.conv1", 14) == "layers.0.conv1"
    for width in range(4, 40):
        short = shorten("backbone.stages.3.blocks.11.attention.projection.conv2", width)
        assert len(short) == width
        assert short.count("…") == 1
    assert shorten("backbone.stages.3.blocks.11.attention.projection.conv2", 22) == "backbon…ojection.conv2"
