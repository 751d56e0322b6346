"""Checkpoints that are damaged, foreign or hostile are rejected, and nothing in them is executed."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from runs import small

from rbnn.errors import CheckpointError
from rbnn.training.checkpoint import load_network
from rbnn.training.loop import train


class Malicious:
    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.touched,)


def unreadable_checkpoints(folder: Path, good: Path) -> dict[str, Path]:
    whole = good.read_bytes()
    path = {name: folder / f"{name}.pt" for name in ("empty", "short", "text", "foreign", "pickle", "zip", "version")}
    path["empty"].write_bytes(b"")
    path["short"].write_bytes(whole[: len(whole) // 2])
    path["text"].write_text("not a checkpoint\n" * 100)
    torch.save({"state_dict": {"weight": torch.zeros(3)}}, path["foreign"])
    path["pickle"].write_bytes(pickle.dumps({"rbnn": 1, "model": Malicious(folder / "touched")}))
    torch.save({"rbnn": 1, "model": Malicious(folder / "touched")}, path["zip"])
    torch.save(torch.load(good, weights_only=True) | {"rbnn": 99}, path["version"])
    return path | {"missing": folder / "missing.pt", "directory": folder}


def test_what_is_no_checkpoint_is_refused_and_never_run(uninterrupted: Path, tmp_path: Path) -> None:
    for name, path in unreadable_checkpoints(tmp_path, uninterrupted / "best.pt").items():
        with pytest.raises(CheckpointError, match=str(path)) as refused:
            load_network(path)
        assert "\n" not in str(refused.value), name
        if path.is_file():
            run = tmp_path / f"run of {name}"
            shutil.copytree(uninterrupted, run)
            (run / "previous.pt").unlink()
            shutil.copy(path, run / "last.pt")
            with pytest.raises(CheckpointError):
                train(small(run, resume=True))
    assert not (tmp_path / "touched").exists()


def test_best_in_place_of_last_cannot_be_resumed(uninterrupted: Path, tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    shutil.copy(run / "best.pt", run / "last.pt")
    with pytest.raises(CheckpointError, match=r"last\.pt cannot be resumed from: 'best_top1' is missing"):
        train(small(run, resume=True))


def test_damaged_checkpoints_are_refused_or_read(uninterrupted: Path, tmp_path: Path) -> None:
    """Whichever bytes are damaged, the only exception is CheckpointError."""
    whole = bytearray((uninterrupted / "best.pt").read_bytes())
    random = np.random.default_rng(0)
    path = tmp_path / "damaged.pt"
    refused = 0
    places = [*range(0, 3000, 100), *random.integers(0, len(whole), 20), *range(len(whole) - 3000, len(whole), 150)]
    for place in places:
        damaged = whole.copy()
        damaged[place : place + 4] = random.bytes(4)
        path.write_bytes(damaged)
        try:
            load_network(path)
        except CheckpointError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": None}, "does not describe a network"),
        ({"model": "of another shape"}, r"conv1\.weight has shape \(16, 16, 1, 1\), expected \(16, 16, 3, 3\)"),
        ({"config": {"modle": "resnet20"}}, "did you mean 'model'"),
        ({"contract": {"channels": 3}}, "does not describe a network"),
        ({"contract": 3}, "does not describe a network"),
        ({"model": None}, "contains no weights"),
        ({"model": {"conv1.weight": 3}}, "contains conv1.weight, which is no tensor"),
        ({"model": {}}, r"another network: conv1\.weight is not in the checkpoint"),
    ],
)
def test_a_checkpoint_that_contradicts_itself(
    change: dict[str, Any], says: str, uninterrupted: Path, tmp_path: Path
) -> None:
    state = torch.load(uninterrupted / "best.pt", weights_only=True)
    if change == {"model": "of another shape"}:
        change = {"model": dict(state["model"]) | {"layers.0.0.conv1.weight": torch.zeros(16, 16, 1, 1)}}
    torch.save(state | change, tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match=says):
        load_network(tmp_path / "odd.pt")


@pytest.mark.parametrize("name", ["conv1.weight", "layers.0.0.conv1.method.scale", "layers.0.0.conv1.method.beta"])
def test_a_checkpoint_with_numbers_that_are_none(name: str, uninterrupted: Path, tmp_path: Path) -> None:
    state = torch.load(uninterrupted / "best.pt", weights_only=True)
    state["model"][name].view(-1)[-1] = torch.nan
    torch.save(state, tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match=f"values of {name} that are not finite"):
        load_network(tmp_path / "odd.pt")


def test_initial_signs_of_another_run(uninterrupted: Path, tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    safetensors.numpy.save_file({"conv": np.zeros(3, np.uint64)}, run / "initial.safetensors")
    with pytest.raises(CheckpointError, match="belongs to another network"):
        train(small(run, resume=True))
    (run / "initial.safetensors").write_bytes(b"\0" * 5)
    with pytest.raises(CheckpointError, match="cannot read the initial signs"):
        train(small(run, resume=True))
    shutil.copy(uninterrupted / "initial.safetensors", run)
    (run / "log.jsonl").write_text('["epoch"]\n{"epoch": 1}\n')
    with pytest.raises(CheckpointError, match="line 1 does not describe an epoch"):
        train(small(run, resume=True))
