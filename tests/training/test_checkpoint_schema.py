"""A checkpoint is validated completely before any of it is used; one sentence says what is wrong with it."""

import math
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from runs import small, state_of
from torch import Tensor

from rbnn.errors import CheckpointError
from rbnn.training.checkpoint import load_network
from rbnn.training.checkpoint_schema import Place
from rbnn.training.layer_measures import load_signs
from rbnn.training.log import read_log
from rbnn.training.loop import train

State = dict[str, Any]
Change = Callable[[State], object]


def weight(change: Callable[[Tensor], Tensor], name: str = "conv1.weight") -> Change:
    def rewrite(state: State) -> None:
        state["model"][name] = change(state["model"][name])

    return rewrite


def filled(value: float, name: str = "conv1.weight", kind: torch.dtype = torch.float32) -> Change:
    return weight(lambda tensor: torch.full(tensor.shape, value, dtype=kind), name)


def quantized(tensor: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)


def nested(tensor: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor(list(tensor))


def contract(**values: object) -> Change:
    return lambda state: state["contract"].update(values)


NETWORKS: dict[str, tuple[Change, str]] = {
    "3e38": (filled(3e38), "values of conv1.weight above 1e\\+18"),
    "infinite": (filled(math.inf), "values of conv1.weight that are not finite"),
    "1e300 in float64": (filled(1e300, kind=torch.float64), "conv1.weight that are not finite"),
    "a negative variance": (filled(-1, "bn1.running_var"), "bn1.running_var below 0"),
    "a huge mean": (filled(1e30, "bn1.running_mean"), "bn1.running_mean above"),
    "a huge scale": (filled(1e25, "layers.0.0.conv1.method.scale"), "method.scale above"),
    "a negative count": (filled(-1, "bn1.num_batches_tracked", torch.int64), "num_batches_tracked below 0"),
    "a count of halves": (filled(0.5, "bn1.num_batches_tracked"), "num_batches_tracked as torch.float32"),
    "whole numbers": (filled(1, kind=torch.int64), "conv1.weight as torch.int64, expected torch.float32"),
    "complex": (filled(1, kind=torch.complex64), "conv1.weight as torch.complex64"),
    "sparse": (weight(lambda tensor: tensor.to_sparse()), "conv1.weight, which is sparse, quantized"),
    "quantized": (weight(quantized), "conv1.weight, which is sparse, quantized"),
    "nested": (weight(nested), "conv1.weight, which is sparse, quantized|is not a readable checkpoint"),
    "meta": (weight(lambda tensor: tensor.to("meta")), "conv1.weight, which is .* without its numbers"),
    "a list": (lambda state: state["model"].update({"conv1.weight": [1.0]}), "conv1.weight, which is no tensor"),
    "another shape, huge": (weight(lambda t: torch.zeros(1).expand(1 << 40)), "conv1.weight has shape"),
    "a name of a megabyte": (lambda state: state["model"].update({"x" * 1_000_000: torch.zeros(1)}), "only in the"),
    "std 0": (contract(std=(0.0,)), "cannot be normalised with mean .* and std"),
    "std infinite": (contract(std=(math.inf,)), "cannot be normalised"),
    "mean not a number": (contract(mean=(math.nan,)), "cannot be normalised"),
    "mean beyond any float": (contract(mean=(10**400,)), "cannot be normalised"),
    "a rate beyond any float": (lambda state: state["config"].update(lr=10**400), "lr in .* must be below 2\\^63"),
    "mean of words": (contract(mean=("0.5",)), "its contract has values of the wrong type"),
    "classes of numbers": (contract(classes=(1, 2)), "its contract has values of the wrong type"),
    "channels of halves": (contract(channels=1.0), "its contract has values of the wrong type"),
    "a contract with more": (contract(secret=1), "its contract must have channels"),
    "keys that are numbers": (lambda state: state["config"].update({5: 5}), "its config is not a table"),
    "a version in a tensor": (lambda state: state.update(rbnn=torch.ones(2)), "checkpoint version"),
    "a progress beyond the end": (
        lambda state: state["model"].update(
            {"layers.0.0.conv1.method._extra_state": torch.tensor([1e300], dtype=torch.float64)}
        ),
        "progress of layers.0.0.conv1 must be 0 to 1",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_cannot_be_computed_with(name: str, uninterrupted: Path, tmp_path: Path) -> None:
    change, says = NETWORKS[name]
    state = torch.load(uninterrupted / "best.pt", weights_only=True)
    change(state)
    torch.save(state, tmp_path / "odd.pt")
    with pytest.raises(CheckpointError, match=says) as refused:
        load_network(tmp_path / "odd.pt")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600


def field(**values: object) -> Change:
    return lambda state: state.update(values)


def momentum(change: Callable[[Tensor], object]) -> Change:
    def rewrite(state: State) -> None:
        held = state["optimizer"]["state"][0]
        held["momentum_buffer"] = change(held["momentum_buffer"])

    return rewrite


PLACES: dict[str, tuple[Change, str]] = {
    "epoch -1": (field(epoch=-1), "epoch must be 0 to 2, got -1"),
    "epoch not a number": (field(epoch=math.nan), "epoch must be 0 to 2, got nan"),
    "epoch true": (field(epoch=True), "epoch must be 0 to 2, got True"),
    "epoch beyond the end": (field(epoch=3), "epoch must be 0 to 2, got 3"),
    "epoch in a tensor": (field(epoch=torch.ones(3)), "epoch must be 0 to 2, got tensor"),
    "step -1": (field(step=-1), "step must be 0 to 4, got -1"),
    "step in words": (field(step="x" * 1_000_000), "step must be 0 to 4, got 'xxx"),
    "step after the end": (field(step=1), "step 1 after its last epoch"),
    "no best": (field(best_top1=math.nan), "best_top1 must be a percentage, got nan"),
    "a best in words": (field(best_top1="97"), "best_top1 must be a percentage"),
    "a best beyond any float": (field(best_top1=10**400), "best_top1 must be a percentage"),
    "no sums": (field(sums=None), "its sums do not fit step 0"),
    "sums of another kind": (field(sums={"images": 0.0}), "its sums do not fit step 0"),
    "infinite sums": (
        field(sums={"images": math.inf, "loss": 0.0, "hit1": 0.0, "seconds": 0.0}),
        "its sums do not fit step 0",
    ),
    "sums without steps": (
        field(sums={"images": 64.0, "loss": 9.0, "hit1": 3.0, "seconds": 1.0}),
        "its sums do not fit step 0",
    ),
    "steps without sums": (field(epoch=1, step=2), "its sums do not fit step 2"),
    "rng of a few bytes": (field(rng=torch.zeros(5, dtype=torch.uint8)), "its rng is not a state"),
    "rng of floats": (field(rng=torch.zeros(5056)), "its rng is not a state"),
    "rng of zeros": (field(rng=torch.full((5056,), 255, dtype=torch.uint8)), "its rng is not a state"),
    "no rng": (field(rng=None), "rng, which is no tensor"),
    "no schedule": (field(schedule=[1]), "its schedule must be within 2 epochs"),
    "a schedule beyond the end": (field(schedule={"epoch": 1e9, "epochs": 2}), "its schedule must be within 2 epochs"),
    "no optimizer": (field(optimizer=3), "its optimizer belongs to another network"),
    "an optimizer of one group": (
        lambda state: state["optimizer"]["param_groups"].append({}),
        "its optimizer belongs to another network",
    ),
    "another decay": (
        lambda state: state["optimizer"]["param_groups"][0].update(weight_decay=1e30),
        "its optimizer has weight_decay = 1e\\+30, expected 0.0001",
    ),
    "a rate that is none": (
        lambda state: state["optimizer"]["param_groups"][0].update(lr="x"),
        "different parameter groups",
    ),
    "a momentum of another shape": (momentum(lambda tensor: tensor[:1]), "momentum of parameter 0 has shape"),
    "an infinite momentum": (momentum(lambda tensor: tensor / 0), "momentum of parameter 0 that are not finite"),
    "a sparse momentum": (momentum(lambda tensor: tensor.to_sparse()), "momentum of parameter 0, which is sparse"),
    "a momentum in words": (momentum(lambda tensor: "x"), "momentum of parameter 0, which is no tensor"),
    "a momentum of nobody": (
        lambda state: state["optimizer"]["state"].update({999: {}}),
        "parameter 999 does not exist",
    ),
    "no signs": (field(previous_signs={}), "previous_signs belong to other layers"),
    "signs of another type": (
        lambda state: state["previous_signs"].update({"layers.0.0.conv1": torch.zeros(16, 3)}),
        "previous_signs of layers.0.0.conv1 do not fit",
    ),
    "3e38": (filled(3e38), "values of conv1.weight above"),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_a_run_cannot_go_on_from(name: str, uninterrupted: Path, tmp_path: Path) -> None:
    """Nothing is written before everything has been validated; in particular, the log stays unchanged."""
    change, says = PLACES[name]
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    state = torch.load(run / "last.pt", weights_only=True)
    change(state)
    (run / "last.pt").unlink()  # previous.pt may be the same file
    torch.save(state, run / "last.pt")
    before = contents(run)
    with pytest.raises(CheckpointError, match=says) as refused:
        train(small(run, resume=True))
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 600
    assert contents(run) == before


def test_every_part_of_a_place_is_tried(uninterrupted: Path) -> None:
    state = torch.load(uninterrupted / "last.pt", weights_only=True)
    assert set(Place.__annotations__) | {"rbnn", "config", "contract", "model", "pictures"} == set(state)
    changed = set()
    for change, _ in PLACES.values():
        each = torch.load(uninterrupted / "last.pt", weights_only=True)
        change(each)
        changed |= {key for key in state if str(each[key]) != str(state[key])}
    assert changed >= set(Place.__annotations__)


def test_checkpoints_of_earlier_versions_are_read_and_resumed(uninterrupted: Path, tmp_path: Path) -> None:
    """They do not record their images, and the extra state of a method holds only its progress."""
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    for name in ("last.pt", "best.pt"):
        state = torch.load(run / name, weights_only=True)
        state.pop("pictures", None)
        for key in list(state["config"]):
            if key in ("activation", "shortcut", "validation", "augment", "imports"):
                del state["config"][key]
        for key in state["model"]:
            if key.endswith("._extra_state"):
                state["model"][key] = torch.tensor([0.5], dtype=torch.float64)
        (run / name).unlink()
        torch.save(state, run / name)
    load_network(run)
    assert train(small(run, resume=True, epochs=3)).last["epoch"] == 2


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.bfloat16, torch.float32])
def test_initial_signs_of_another_type(kind: torch.dtype, uninterrupted: Path, tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    safetensors.torch.save_file({"layers.0.0.conv1": torch.zeros(16, 3).to(kind)}, run / "initial.safetensors")
    with pytest.raises(CheckpointError, match=r"cannot read the initial signs in .* 64-bit words"):
        train(small(run, resume=True))


def test_initial_signs_of_any_size(uninterrupted: Path, tmp_path: Path) -> None:
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    with (run / "initial.safetensors").open("r+b") as file:
        file.truncate(20 << 30)
    with pytest.raises(CheckpointError, match=r"is too large for the initial signs: expected at most 268,435,456"):
        train(small(run, resume=True))


def test_initial_signs_do_not_follow_the_file(uninterrupted: Path, tmp_path: Path) -> None:
    """They are in memory: a map of the file would change with it, and end the process where the file is cut."""
    path = Path(shutil.copy(uninterrupted / "initial.safetensors", tmp_path))
    signs, wanted = load_signs(path), load_signs(uninterrupted / "initial.safetensors")
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        assert all(np.array_equal(signs[name], words) for name, words in wanted.items())
        file.truncate(8)
    assert signs.keys() == wanted.keys()
    assert all(np.array_equal(signs[name], words) for name, words in wanted.items())


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1e308", "NaN", "Infinity", "true", '"1"'])
@pytest.mark.parametrize("where", ['"loss": ', '"angle": '])
def test_logs_with_numbers_that_are_none(where: str, number: str, uninterrupted: Path, tmp_path: Path) -> None:
    line = (uninterrupted / "log.jsonl").read_text().splitlines()[0]
    head, _, tail = line.partition(where)
    (tmp_path / "log.jsonl").write_text(f"{head}{where}{number}{tail[tail.index(',') :]}\n")
    with pytest.raises(CheckpointError, match="epoch 0 is incomplete"):
        read_log(tmp_path / "log.jsonl")


@pytest.mark.parametrize("epoch", ["-1", "1" + "0" * 400, "true", "1.5", "null"])
def test_logs_of_epochs_that_are_none(epoch: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(f'{{"epoch": {epoch}}}\n{{"epoch": 1}}\n')
    with pytest.raises(CheckpointError, match="line 1 does not describe an epoch"):
        read_log(tmp_path / "log.jsonl")


def test_a_run_does_not_go_on_with_other_pictures(
    uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from rbnn import data

    load = data.load
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    before = contents(run)
    digits = load("digits", None, "train").classes
    others = {
        "class 0 is '0', not 'nought'": {"classes": ("nought", *digits[1:])},
        "in another order: class 0 is '0', not '1'": {"classes": (digits[1], digits[0], *digits[2:])},
        "std = .*, not": {"std": (0.3,)},
        "other training images": {"images": np.zeros((1437, 8, 8, 1), np.uint8)},
    }
    for says, changed in others.items():

        def load_other(*words: Any, changed: dict[str, Any] = changed) -> Any:
            found = load(*words)
            return replace(found, **{k: v[: len(found)] if k == "images" else v for k, v in changed.items()})

        monkeypatch.setattr(data, "load", load_other)
        with pytest.raises(CheckpointError, match=rf"last\.pt was trained with .*{says}"):
            train(small(run, resume=True))
    assert contents(run) == before
    assert state_of(run / "last.pt")["epoch"] == 2
