"""`rbnn train --start-from` with a pretrained name, a run, a checkpoint or a packed file, on the user's images."""

import json
from pathlib import Path

import pytest
import torch
from digit_files import CLASSES, pictures

from rbnn.cli import main
from rbnn.nn import binary_layers
from rbnn.packed import pretrained
from rbnn.training.checkpoint import load_network

DIGITS = "resnet20-bireal-digits"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("pictures"), 32, 20)


def entries(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_three_classes_of_a_folder(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Images get the size and normalisation of the network; a resumed run keeps them."""
    run = tmp_path / "three"
    words = ["train", "--start-from", "resnet20-bireal-cifar10", "--data", "image-folder", "--data-dir", str(folder)]
    words += ["--epochs", "2", "--batch-size", "32", "--lr", "0.05", "--threads", "1", "--workers", "0"]
    assert main([*words, "--out", str(run)]) == 0
    assert (
        "resnet20-bireal-cifar10 has 10 classes and this network has 3: its last layer 'fc' starts from scratch"
        in capsys.readouterr().err
    )
    network = load_network(run)
    assert network.contract.image_size == 32
    assert network.contract.mean == (0.4914, 0.4822, 0.4465)
    assert network.contract.classes == CLASSES
    assert entries(run)[-1]["top1"] > 55  # three classes, six steps
    assert all(figures["flips"] < 0.2 for figures in entries(run)[-1]["layers"].values())
    assert main([*words, "--out", str(run), "--resume", "--epochs", "3"]) == 0
    assert load_network(run / "last.pt").contract.mean == (0.4914, 0.4822, 0.4465)
    assert len(entries(run)) == 3


@pytest.mark.parametrize("start", ["name", "file"])
def test_at_learning_rate_0_it_is_the_packed_network(start: str, tmp_path: Path) -> None:
    """Signs and accuracy stay; the batch-norm statistics follow the images of the run."""
    net = DIGITS if start == "name" else str(pretrained.path(DIGITS))
    words = ["train", "digits", "--start-from", net, "--lr", "0", "--epochs", "1", "--limit", "512", "--out"]
    assert main([*words, str(tmp_path / "run")]) == 0
    (entry,) = entries(tmp_path / "run")
    assert abs(entry["top1"] - pretrained.card(DIGITS).packed_top1) < 3  # statistics of a few augmented images
    assert entry["train_top1"] > 95  # batch norms with the batch's own statistics
    assert all(figures["flips"] == 0 for figures in entry["layers"].values())
    model = load_network(tmp_path / "run").model
    assert all(torch.equal(layer.method.R1, torch.eye(len(layer.method.R1))) for _, layer in binary_layers(model))


def test_another_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", "--start-from", DIGITS, "--model", "vgg-small", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert "it is a resnet20-bireal, but this run's network is a vgg-small" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_network_for_colour_does_not_start_on_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forgetting --data leaves the default, digits."""
    words = ["train", "--start-from", "resnet20-bireal-cifar10", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(words) == 2
    assert (
        "cannot start from resnet20-bireal-cifar10: its images have 3 channels, and those of digits have 1: choose "
        "another data set with --data" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_exist_is_not_resumed_silently(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits", "--limit", "64", "--batch-size", "32", "--threads", "1", "--out", str(tmp_path / "run")]
    assert main([*words, "--epochs", "2", "--resume"]) == 0
    assert "run contains no checkpoint to resume from: the run starts from scratch" in capsys.readouterr().err
    assert main([*words, "--epochs", "1", "--resume"]) == 2
    said = capsys.readouterr().err
    assert "was trained for epochs = 2: a run can become longer, but not shorter, got 1" in said
