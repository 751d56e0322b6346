"""A run that was stopped, killed or moved goes on, and ends as if nothing had happened."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs import STEPS, assert_same_run, events, log_of, small, state_of, words

from rbnn.errors import CheckpointError
from rbnn.nn import binary_layers
from rbnn.training import checkpoint
from rbnn.training.checkpoint import load_network
from rbnn.training.config import read_recipe
from rbnn.training.loop import Progress, train
from rbnn.training.optimizer import learning_rate


def rbnn_that_gets(name: str, after: int, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("signalled_run.py")
    return subprocess.run(
        [sys.executable, str(script), name, str(after), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(("name", "epoch", "step"), [("SIGINT", 1, 2), ("SIGTERM", 0, 3)])
def test_resume_after_a_polite_stop(name: str, epoch: int, step: int, uninterrupted: Path, tmp_path: Path) -> None:
    out = tmp_path / "a run"
    stopped = rbnn_that_gets(name, epoch * STEPS + step, words(out))
    assert stopped.returncode == 130
    *lines, last = stopped.stderr.splitlines()
    assert last == f"stopped; continue with: rbnn train '{out}' --resume"
    assert [line.split()[:2] for line in lines] == [["epoch", str(done + 1)] for done in range(epoch)]
    assert stopped.stdout == ""
    state = state_of(out / "last.pt")
    assert (state["epoch"], state["step"], state["sums"]["images"]) == (epoch, step, step * 64)
    assert len(log_of(out)) == epoch
    train(small(out, resume=True))
    assert_same_run(uninterrupted, out)
    for curve in events(out).values():
        assert [step for step, _ in curve] == [0, 1]


def test_resume_after_a_kill(uninterrupted: Path, tmp_path: Path) -> None:
    killed = rbnn_that_gets("SIGKILL", STEPS + 2, words(tmp_path))
    assert killed.returncode == -signal.SIGKILL
    assert state_of(tmp_path / "last.pt")["epoch"] == 1
    train(small(tmp_path, resume=True))
    assert_same_run(uninterrupted, tmp_path)


class Killed(BaseException):
    """End a run immediately, as a kill would."""


class KillAt(Progress):
    def __init__(self, step: int) -> None:
        self.left = step

    def step(self, images: int, loss: float, top1: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed


@pytest.mark.parametrize("after", [STEPS, 2 * STEPS])
def test_resume_from_anywhere(after: int, uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(small(tmp_path), KillAt(after))
    train(small(tmp_path, resume=True))
    assert_same_run(uninterrupted, tmp_path)


def test_resume_after_a_kill_between_log_and_checkpoint(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch is in the log and in best.pt, but not in last.pt: it is repeated and logged once."""

    def killed(*args: Any, **kwargs: Any) -> None:
        raise Killed

    def only_first_epoch(path: Path, *args: Any, **more: Any) -> None:
        (killed if path.name == "last.pt" and more["epoch"] == 2 else save)(path, *args, **more)

    save = checkpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", only_first_epoch)
        with pytest.raises(Killed):
            train(small(tmp_path))
    assert len(log_of(tmp_path)) == 2
    train(small(tmp_path, resume=True))
    assert_same_run(uninterrupted, tmp_path)


def test_resume_with_a_log_that_was_cut_short(uninterrupted: Path, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        train(small(tmp_path), KillAt(STEPS + 1))
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"epoch": 1, "lr": 0.0')
    train(small(tmp_path, resume=True))
    assert_same_run(uninterrupted, tmp_path)


def test_a_finished_run_that_was_moved_is_resumed_to_its_result(uninterrupted: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(uninterrupted, tmp_path / "moved")
    result = train(small(moved, resume=True, workers=0, data_dir="elsewhere"))
    entries = log_of(uninterrupted)
    assert result.best_top1 == max(entry["top1"] for entry in entries)
    assert result.last["loss"] == entries[-1]["loss"]
    assert_same_run(uninterrupted, moved)


def test_a_run_that_was_stopped_resumes_though_its_start_is_gone(float_twin: Path, tmp_path: Path) -> None:
    start = shutil.copytree(float_twin, tmp_path / "start")
    config: dict[str, Any] = {"start_from": str(start), "limit": 128}
    with pytest.raises(Killed):
        train(small(tmp_path / "run", **config), KillAt(3))
    shutil.rmtree(start)
    assert train(small(tmp_path / "run", resume=True, **config)).last["epoch"] == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lr", 0.1),
        ("binary_lr", 3.0),
        ("seed", 7),
        ("options", {"alpha": "layer"}),
        ("method", "float"),
        ("model", "resnet20"),
        ("start_from", "elsewhere.pt"),
        ("teacher", "elsewhere.pt"),
        ("decay", "weights"),
        ("precision", "bf16"),
    ],
)
def test_resume_with_another_field_names_it(key: str, value: object, uninterrupted: Path) -> None:
    with pytest.raises(CheckpointError, match=rf"was trained with (no )?{key}\b.*, not {key} = .*change it back"):
        train(small(uninterrupted, resume=True, **{key: value}))


def test_a_run_goes_on_for_more_epochs(uninterrupted: Path, tmp_path: Path) -> None:
    """Rates and sharpness continue as in a run of the new length, and the weights are kept."""
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    begun = log_of(run)
    longer = small(run, epochs=5, resume=True)
    train(longer)
    log = log_of(run)
    assert log[:2] == begun
    assert [entry["epoch"] for entry in log] == [0, 1, 2, 3, 4]
    assert [entry["lr"] for entry in log[2:]] == [learning_rate(longer, e + 1 - 1 / STEPS) for e in (2, 3, 4)]
    assert log[2]["lr"] > log[1]["lr"]
    last = load_network(run / "last.pt").model
    assert {layer.method.progress for _, layer in binary_layers(last)} == {4 / 5}
    assert read_recipe(run / "config.toml").epochs == 5, "so that it is resumed without naming them again"
    train(replace(read_recipe(run / "config.toml"), resume=True))
    assert log_of(run) == log
