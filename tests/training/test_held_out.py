"""Validation without the test set: which images are held out, and that the test set is used once."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import log_of, small
from stopped_run import assert_resumes_bit_for_bit

from rbnn import data
from rbnn.cli import main
from rbnn.errors import ConfigError
from rbnn.training import loop
from rbnn.training.batches import Batches
from rbnn.training.held_out import split
from rbnn.training.loop import train


def test_classes_are_balanced_and_every_image_is_on_one_side() -> None:
    digits = data.load("digits", Path("data"), "train")
    for count in (100, 107):
        learnt, held = split(digits, count)
        assert len(held) == count
        assert sorted([*learnt, *held]) == list(range(len(digits)))
        shares = np.bincount(digits.labels[held], minlength=10)
        assert shares.max() - shares.min() == (count % 10 > 0)


def test_the_same_images_are_held_out_whatever_the_seed_of_the_run() -> None:
    digits = data.load("digits", Path("data"), "train")
    np.random.seed(5)
    torch.manual_seed(5)
    before = split(digits, 100)[1]
    np.random.seed(6)
    torch.manual_seed(6)
    assert np.array_equal(before, split(digits, 100)[1])


def test_too_many_images_are_refused() -> None:
    digits = data.load("digits", Path("data"), "train")
    with pytest.raises(ConfigError, match=r"validation = 1437 needs 144 images of class .*: hold out fewer"):
        split(digits, 1437)


def test_training_never_sees_what_is_held_out() -> None:
    digits = data.load("digits", Path("data"), "train")
    learnt, held = split(digits, 200)
    batches = Batches(digits, 64, train=True, seed=0, only=learnt, limit=640)
    seen = np.concatenate([batches._shuffled(epoch)[1] for epoch in range(2)])
    assert len(np.unique(seen)) == 640
    assert not np.isin(seen, held).any()
    judging = Batches(digits, 64, train=False, seed=0, only=held)
    labels = torch.cat([labels for _, labels in judging.epoch(0)])
    assert labels.tolist() == digits.labels[held].tolist()


def test_the_test_set_is_looked_at_after_the_last_epoch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = loop.evaluate

    def watched(model: torch.nn.Module, batches: Batches, processes: loop.Processes) -> dict[str, float]:
        sizes.append(sum(len(labels) for _, labels in batches.epoch(0)))
        return real(model, batches, processes)

    monkeypatch.setattr(loop, "evaluate", watched)
    train(small(tmp_path / "held", validation=100, epochs=3))
    assert sizes == [100, 100, 100, 360]
    entries = log_of(tmp_path / "held")
    assert [entry["evaluated_on"] for entry in entries] == ["validation"] * 3
    assert [sorted(key for key in entry if key.startswith("last_test")) for entry in entries] == [
        [],
        [],
        ["last_test_loss", "last_test_top1", "last_test_top5"],
    ]
    sizes.clear()
    train(small(tmp_path / "plain", epochs=2))
    assert sizes == [360, 360]
    assert "last_test_top1" not in log_of(tmp_path / "plain")[-1]


def test_a_run_with_held_out_images_resumes_bit_for_bit(tmp_path: Path) -> None:
    assert_resumes_bit_for_bit(tmp_path, validation=100)


def test_command_and_report_say_what_was_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--epochs", "1", "--limit", "128", "--batch-size", "64", "--validation", "100", "--out", str(tmp_path)]
    assert main(["train", "digits", *words]) == 0
    entry = json.loads((tmp_path / "log.jsonl").read_text())
    answer = " ".join(capsys.readouterr().out.split())
    assert f"accuracy on 100 held-out training images {entry['top1']:.2f} %" in answer
    assert f"test accuracy after the last epoch {entry['last_test_top1']:.2f} %" in answer
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "report.html")]) == 0
    page = " ".join((tmp_path / "report.html").read_text().split())
    assert f"Reached {entry['top1']:.2f} % on the held-out training images of digits in epoch 1" in page
    assert f"evaluated once, after the last epoch: {entry['last_test_top1']:.2f} %" in page
