"""What `rbnn train` shows while it runs, and its errors for impossible runs."""

import errno
import io
from pathlib import Path
from typing import NoReturn

import pytest
from answers import Rbnn
from rich.console import Console

from rbnn.cli.train import Watch, parse
from rbnn.training.config import TrainConfig


@pytest.mark.parametrize("first", [0, 2])
def test_no_bar_for_an_epoch_that_never_comes(first: int) -> None:
    """After the last epoch, and for a run that is already complete, only the run's progress bar stays."""
    watch = Watch()
    watch.bars.live.console = shown = Console(file=io.StringIO(), force_terminal=True, width=100)
    watch.bars.disable = False
    config = TrainConfig(epochs=2)
    figures = {"loss": 1.0, "train_top1": 50.0, "top1": 50.0, "images_per_second": 9.0, "evaluated_on": "test"}
    watch.begin(config, 3, first, 0)
    for epoch in range(first, 2):
        assert watch.bars.tasks[watch.now].description == f"epoch {epoch + 1}"
        watch.epoch({"epoch": epoch} | figures)
    shown.print(watch.bars.get_renderable())
    drawn = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "epoch" not in drawn.splitlines()[-1]
    assert [task.description for task in watch.bars.tasks if task.visible] == ["run"]


@pytest.mark.parametrize("flags", [["--batch-size", "1"], ["--batch-size", "2", "--accumulate", "2"]])
def test_batch_norm_needs_more_than_one_image(flags: list[str], tmp_path: Path, rbnn: Rbnn) -> None:
    words = ["train", "digits", "--epochs", "1", "--limit", "4", "--threads", "1", "--out", tmp_path / "run", *flags]
    said = rbnn(*words)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), said
    assert said.err.startswith("rbnn: batch norm needs more than one image: batch_size ")


def test_no_room_for_tensorboard_is_one_sentence(tmp_path: Path, rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes in its own thread, which fails first."""

    def full(*args: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
    out = tmp_path / "run"
    said = rbnn("train", "digits", "--epochs", "1", "--limit", "64", "--threads", "1", "--out", out)
    assert (said.code, said.err) == (2, f"rbnn: cannot access {out}: No space left on device\n")


@pytest.mark.parametrize(("more", "explained"), [
    ([], True),
    (["--options", "rotation=none", "alpha=none"], False),
    (["--method", "xnor-net"], False),
])  # fmt: skip
def test_flips_of_the_first_rotation_are_explained(
    more: list[str], explained: bool, tmp_path: Path, rbnn: Rbnn
) -> None:
    words = "train", "digits", "--epochs", "1", "--limit", "64", "--threads", "1", "--out", tmp_path / "run"
    said = rbnn(*words, *more)
    assert said.code == 0
    assert ("About 50 % of flips from the start are normal" in said.out) is explained
    mean = next(line for line in said.out.splitlines() if "mean" in line).split("│")
    assert (abs(float(mean[-3]) - 50) < 10) is explained


def test_names_that_are_not_unicode(run_directory: Path, tmp_path: Path, rbnn: Rbnn) -> None:
    """A file name is bytes; the report shows ? for bytes that cannot be decoded."""
    odd, packed = tmp_path / "run-\udcff", tmp_path / "net-\udcfe.rbnn"
    odd.symlink_to(run_directory)
    assert rbnn("export", odd, "-o", packed).code == 0
    page, figures = tmp_path / "page-\udcfd.html", tmp_path / "f\udcfc"
    said = rbnn("report", odd, "--packed", packed, "-o", page, "--figures", figures)
    assert said.code == 0, said.err
    text = page.read_text()
    assert "run-?" in text
    assert "net-?" in text


def test_a_run_without_a_recipe_says_what_it_trains(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse([]) == TrainConfig()
    said = capsys.readouterr().err
    assert said == "rbnn: no recipe is named: resnet20-bireal by rbnn on digits with the default settings\n"
    parse(["digits"])
    assert capsys.readouterr().err == ""
