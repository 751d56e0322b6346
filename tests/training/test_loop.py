"""A training run: what it writes, and that interruptions do not change what it computes."""

import errno
import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from runs import STEPS, assert_same_run, difference, log_of, small, state_of, words
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch import Tensor, nn

from rbnn.errors import CheckpointError, ConfigError, RbnnError, TrainingError
from rbnn.methods import method_names, method_options
from rbnn.models import MODELS
from rbnn.models._registry import Bricks, Entry
from rbnn.nn import binary_layers
from rbnn.training import checkpoint
from rbnn.training.checkpoint import load_network
from rbnn.training.config import as_table, from_table, read_recipe, with_all_options
from rbnn.training.log import read_log
from rbnn.training.loop import Progress, train
from rbnn.training.optimizer import learning_rate


class Tiny(nn.Module):
    """One float convolution, one binary convolution and a linear layer; batch norm only on request."""

    def __init__(self, bricks: Bricks, batch_norm: bool) -> None:
        super().__init__()
        norm = nn.BatchNorm2d if batch_norm else nn.Identity
        self.conv1, self.bn1 = nn.Conv2d(bricks.in_channels, 32, 3, 1, 1), norm(32)
        self.conv2, self.bn2 = bricks.conv(32, 64, 3, 2), norm(64)
        self.fc = nn.Linear(64 * (bricks.image_size // 2) ** 2, bricks.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.hardtanh(self.bn1(self.conv1(x)))
        return self.fc(nn.functional.hardtanh(self.bn2(self.conv2(x))).flatten(1))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two networks for tests that need many steps."""
    monkeypatch.setitem(MODELS, "tiny", Entry(lambda bricks: Tiny(bricks, batch_norm=True), 8))
    monkeypatch.setitem(MODELS, "tiny-without-norm", Entry(lambda bricks: Tiny(bricks, batch_norm=False), 8))


@pytest.mark.parametrize(("model", "warned"), [("tiny", 0), ("tiny-without-norm", 1)])
def test_a_run_begins_with_a_notice_of_missing_norms(tiny: None, tmp_path: Path, model: str, warned: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(small(tmp_path, model=model, epochs=1))
    said = [str(one.message) for one in caught if "no norm follows binary layer 'conv2'" in str(one.message)]
    assert len(said) == warned


# What a run writes


def test_files_of_a_run(uninterrupted: Path) -> None:
    names = {p.name for p in uninterrupted.iterdir() if not p.name.startswith("events.out.tfevents")}
    assert names == {"config.toml", "log.jsonl", "initial.safetensors", "last.pt", "previous.pt", "best.pt"}
    kept = read_recipe(uninterrupted / "config.toml")
    assert kept == with_all_options(small(uninterrupted))
    assert kept.options == method_options("rbnn")  # a changed default must not change a stored run


def test_log_has_the_documented_keys(uninterrupted: Path) -> None:
    entries = read_log(uninterrupted / "log.jsonl")
    assert [entry["epoch"] for entry in entries] == [0, 1]
    model = load_network(uninterrupted).model
    for entry in entries:
        run_keys = {"epoch", "lr", "loss", "train_top1", "test_loss", "top1", "top5", "images_per_second", "layers"} | {
            "notices",
            "evaluated_on",
        }
        assert set(entry) == run_keys | ({"method"} if entry["epoch"] == 0 else set())
        assert 0 <= entry["top1"] <= entry["top5"] <= 100
        assert entry["images_per_second"] > 0
        assert list(entry["layers"]) == [name for name, _ in binary_layers(model)]
        for figures in entry["layers"].values():
            assert set(figures) == {"angle", "error", "flips", "epoch_flips", "alpha"}
            assert 0 < figures["angle"] < 90
            assert figures["error"] == pytest.approx(math.sin(math.radians(figures["angle"])) ** 2, abs=1e-4)
            assert 0 <= figures["flips"] <= 1
            assert 0 <= figures["epoch_flips"] <= 1
            assert 0 <= figures["alpha"] <= 1


def test_flips_are_counted_from_the_signs_of_the_initial_weights(uninterrupted: Path) -> None:
    network = load_network(uninterrupted / "last.pt")
    initial = safetensors.numpy.load_file(uninterrupted / "initial.safetensors")
    torch.manual_seed(0)
    fresh = dict(binary_layers(checkpoint.build(network.config, network.contract)))
    for name, layer in binary_layers(network.model):
        count = layer.weight[0].numel()
        bits = np.unpackbits(initial[name].view(np.uint8), axis=1, bitorder="little")[:, :count]
        assert np.array_equal(bits, (fresh[name].weight > 0).flatten(1).numpy())
        now = (layer.method.signs(layer.weight) > 0).flatten(1).numpy()
        assert log_of(uninterrupted)[-1]["layers"][name]["flips"] == pytest.approx(float((bits != now).mean()))


def events(run: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(run))
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_tensorboard_has_what_the_log_has(uninterrupted: Path) -> None:
    curves = events(uninterrupted)
    for entry in log_of(uninterrupted):
        epoch = entry["epoch"]
        assert curves["run/top1"][epoch] == (epoch, pytest.approx(entry["top1"]))
        for name, figures in entry["layers"].items():
            for key, value in figures.items():
                assert curves[f"{key}/{name}"][epoch] == (epoch, pytest.approx(value))


def test_tensorboard_has_histograms_of_the_latent_weights(uninterrupted: Path) -> None:
    accumulator = EventAccumulator(str(uninterrupted), {"histograms": 0})
    accumulator.Reload()
    layers = dict(binary_layers(load_network(uninterrupted / "last.pt").model))
    assert accumulator.Tags()["histograms"] == [f"latent weights/{name}" for name in layers]
    for name, layer in layers.items():
        shown = accumulator.Histograms(f"latent weights/{name}")
        assert [each.step for each in shown] == [entry["epoch"] for entry in log_of(uninterrupted)]
        weight = layer.weight.detach()
        last = shown[-1].histogram_value
        assert (last.num, last.min, last.max) == (weight.numel(), float(weight.min()), float(weight.max()))
        assert last.sum == pytest.approx(float(weight.double().sum()), abs=1e-3)


def test_tensorboard_has_the_configuration(uninterrupted: Path) -> None:
    accumulator = EventAccumulator(str(uninterrupted))
    accumulator.Reload()
    content = accumulator.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    given = HParamsPluginData.FromString(content).session_start_info.hparams
    assert given["method"].string_value == "rbnn"
    assert given["epochs"].number_value == read_recipe(uninterrupted / "config.toml").epochs
    assert given["options.cycles"].number_value == 3
    assert given["resume"].bool_value is False
    shown = HParamsPluginData.FromString(accumulator.summary_metadata["_hparams_/experiment"].plugin_data.content)
    assert [each.name.tag for each in shown.experiment.metric_infos] == ["run/top1"]
    assert not [path for path in uninterrupted.iterdir() if path.is_dir()]


def test_a_run_from_before_a_field_existed_resumes(tmp_path: Path) -> None:
    """Fields that it did not record have the default of that time."""
    train(small(tmp_path, epochs=1))
    for name in ("last.pt", "best.pt"):
        state = torch.load(tmp_path / name, weights_only=True)
        for field in ("activation", "shortcut", "validation", "augment", "imports"):
            del state["config"][field]
        torch.save(state, tmp_path / name)
    train(small(tmp_path, resume=True))
    assert len(log_of(tmp_path)) == 2


@pytest.mark.parametrize(
    ("method", "option", "earlier", "now"),
    [("rbnn", "rotate_until", 0.0, 1.0), ("xnor-net", "gradient", "exact", "release")],
)
def test_a_run_from_before_a_default_changed_goes_on_as_it_was(
    tmp_path: Path, method: str, option: str, earlier: Any, now: Any
) -> None:
    """It recorded only the options that its user had set."""
    old, new = as_table(small(tmp_path, method=method)), {"method": method}
    assert from_table(old).options == {option: earlier}
    assert from_table(old | {"options": {option: now}}).options == {option: now}
    assert from_table(new).options == {}  # a recipe: today's default
    train(small(tmp_path / "run", method=method, epochs=1, options={option: earlier}))
    for path in (tmp_path / "run" / "last.pt", tmp_path / "run" / "best.pt"):
        state = torch.load(path, weights_only=True)
        state["config"]["options"] = {}
        torch.save(state, path)
    assert load_network(tmp_path / "run").config.options == {option: earlier}
    train(small(tmp_path / "run", method=method, options={option: earlier}, resume=True))
    with pytest.raises(CheckpointError, match=f"{option}"):
        train(small(tmp_path / "run", method=method, epochs=3, resume=True))


def test_the_log_says_whether_the_method_is_the_papers(tmp_path: Path, uninterrupted: Path) -> None:
    assert log_of(uninterrupted)[0]["method"] == "rbnn as in its paper"
    train(small(tmp_path, epochs=1, options={"rotate_until": 0.0}))
    assert log_of(tmp_path)[0]["method"] == "rbnn, not as in its paper: rotate_until = 0 (paper: 1)"


def test_best_is_the_best_epoch_and_last_the_last(uninterrupted: Path) -> None:
    top1 = [entry["top1"] for entry in log_of(uninterrupted)]
    best, last = state_of(uninterrupted / "best.pt"), state_of(uninterrupted / "last.pt")
    assert best["epoch"] == top1.index(max(top1))
    assert best["top1"] == max(top1) == last["best_top1"]
    assert (last["epoch"], last["step"]) == (2, 0)


def test_the_learning_rate_follows_the_schedule_step_by_step(uninterrupted: Path) -> None:
    """Warm-up takes a tenth of 2 epochs, then a cosine follows; the log has the rate of the epoch's last step."""
    warmup, steps = 0.2, [STEPS - 1, 2 * STEPS - 1]
    for entry, step in zip(log_of(uninterrupted), steps, strict=True):
        angle = math.pi * (step / STEPS - warmup) / (2 - warmup)
        assert entry["lr"] == pytest.approx(0.05 * (1 + math.cos(angle)) / 2)


# Every method


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("method", method_names())
def test_every_method_learns(method: str, tmp_path: Path) -> None:
    result = train(small(tmp_path, model="tiny", method=method, epochs=3, limit=0))
    assert result.best_top1 > 70
    losses = [entry["loss"] for entry in log_of(tmp_path)]
    assert losses == sorted(losses, reverse=True)
    assert bool(result.last["layers"]) == (method != "float")
    assert load_network(tmp_path).config.method == method


def test_a_binary_run_starts_from_its_float_twin(float_twin: Path, tmp_path: Path) -> None:
    """With learning rate 0 the weights stay at their initial values."""
    assert log_of(float_twin)[0]["layers"] == {}
    train(small(tmp_path, epochs=1, lr=0, start_from=str(float_twin)))
    before, after = state_of(float_twin / "best.pt")["model"], state_of(tmp_path / "last.pt")["model"]
    taken = [name for name in before if name.endswith((".weight", ".bias"))]
    assert "layers.0.0.conv1.weight" in taken
    for name in taken:
        assert torch.equal(before[name], after[name])
    initial = safetensors.numpy.load_file(tmp_path / "initial.safetensors")["layers.0.0.conv1"]
    bits = np.unpackbits(initial.view(np.uint8), axis=1, bitorder="little")[:, : 16 * 9]
    assert np.array_equal(bits, (before["layers.0.0.conv1.weight"] > 0).flatten(1).numpy())
    scale = before["layers.0.0.conv1.weight"].abs().mean((1, 2, 3))
    torch.testing.assert_close(after["layers.0.0.conv1.method.scale"], scale)


@pytest.mark.usefixtures("tiny")
def test_start_from_another_network_is_refused(float_twin: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot start from .* this run's network is a tiny"):
        train(small(tmp_path, model="tiny", start_from=str(float_twin)))


def test_the_other_resnet_20_is_refused_though_its_tensors_fit(float_twin: Path, tmp_path: Path) -> None:
    there = load_network(float_twin).config.model
    here = "resnet20" if there == "resnet20-bireal" else "resnet20-bireal"
    with pytest.raises(
        CheckpointError, match=f"it is a {there}, but this run's network is a {here}: use --model {there}"
    ):
        train(small(tmp_path, model=here, start_from=str(float_twin)))


# Determinism


def test_same_seed_same_bits_other_seed_other_bits(uninterrupted: Path, tmp_path: Path) -> None:
    again = train(small(tmp_path / "again")).out
    assert_same_run(uninterrupted, again)
    other = train(small(tmp_path / "other", seed=1, epochs=1)).out
    assert difference(state_of(uninterrupted / "last.pt")["model"], state_of(other / "last.pt")["model"]) is not None
    assert log_of(uninterrupted)[0]["loss"] != log_of(other)[0]["loss"]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("method", ["float", "rbnn"])
def test_micro_batches_add_up_to_the_whole_batch(method: str, tmp_path: Path) -> None:
    shared: dict[str, Any] = {"model": "tiny-without-norm", "method": method, "epochs": 1}
    whole = train(small(tmp_path / "whole", **shared))
    parts = train(small(tmp_path / "parts", accumulate=4, **shared))
    assert parts.last["loss"] == pytest.approx(whole.last["loss"], rel=1e-5)
    a, b = (state_of(run.out / "last.pt")["model"] for run in (whole, parts))
    for name in a:
        torch.testing.assert_close(b[name], a[name], rtol=1e-3, atol=1e-5)


# Interruptions


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
    assert stopped.stderr.splitlines() == [f"stopped; continue with: rbnn train '{out}' --resume", "interrupted"]
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


# What is rejected


def test_a_run_is_not_overwritten(uninterrupted: Path) -> None:
    before = (uninterrupted / "last.pt").read_bytes()
    with pytest.raises(ConfigError, match=r"already contains a run: add --resume .* or choose another --out"):
        train(small(uninterrupted))
    assert (uninterrupted / "last.pt").read_bytes() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("lr", 0.1),
        ("binary_lr", 3.0),
        ("seed", 7),
        ("epochs", 1),
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


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def not_finite_in_the_end(logits: Tensor, wanted: Tensor, **how: str) -> Tensor:
        nonlocal steps
        steps += torch.is_grad_enabled()
        return cross_entropy(logits, wanted, **how) * (math.nan if steps == STEPS + 3 else 1)

    cross_entropy = torch.nn.functional.cross_entropy
    monkeypatch.setattr("torch.nn.functional.cross_entropy", not_finite_in_the_end)
    with pytest.raises(TrainingError) as stopped:
        train(small(tmp_path))
    assert str(stopped.value) == (
        f"the loss is nan at step 2 of epoch 1: lower lr (now 0.05); the last good checkpoint stays in {tmp_path}"
    )
    state = state_of(tmp_path / "last.pt")
    assert (state["epoch"], state["step"]) == (1, 0)
    assert all(bool(t.isfinite().all()) for t in state["model"].values())
    load_network(tmp_path / "last.pt")
    assert len(log_of(tmp_path)) == 1


def test_a_huge_learning_rate_ends_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"loss is (nan|inf) .*step \d of epoch 0: lower lr \(now 1e\+10\)"):
        train(small(tmp_path, lr=1e10))
    for line in (tmp_path / "log.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize("last_step", [2 * STEPS - 1, STEPS + 1])
def test_weights_that_are_not_finite_are_never_saved(
    last_step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step with a finite loss makes the weights non-finite, and then the epoch ends or Ctrl-C arrives."""
    steps = 0
    optimizer_step = torch.optim.SGD.step

    def blow_up(self: torch.optim.SGD, *args: Any) -> None:
        nonlocal steps
        optimizer_step(self, *args)
        if steps == last_step:
            self.param_groups[0]["params"][0].data.fill_(math.nan)
            if last_step < 2 * STEPS - 1:
                os.kill(os.getpid(), signal.SIGINT)
        steps += 1

    monkeypatch.setattr(torch.optim.SGD, "step", blow_up)
    with pytest.raises(TrainingError, match=f"conv1.weight is not finite after step {last_step - STEPS} of epoch 1"):
        train(small(tmp_path))
    assert state_of(tmp_path / "last.pt")["epoch"] == 1
    assert len(log_of(tmp_path)) == 1
    load_network(tmp_path)


def test_nothing_to_keep_in_the_first_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.functional.cross_entropy", lambda logits, wanted: logits.sum() * math.nan)
    with pytest.raises(TrainingError, match=r"the loss is nan at step 0 of epoch 0: .*there was no checkpoint yet"):
        train(small(tmp_path))
    assert not (tmp_path / "last.pt").exists()


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    class Impatient(Progress):
        def step(self, images: int, loss: float, top1: float) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        train(small(tmp_path), Impatient())
    assert not (tmp_path / "last.pt").exists()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_run_directory_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigError, match="cannot write to the run directory"):
            train(small(out))

    def read_only(path: Path, write: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr("rbnn.training.loop.write_whole", read_only)
    with pytest.raises(ConfigError, match=r"cannot write to the run directory .*Read-only file system"):
        train(small(tmp_path / "run"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_run_directory_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match=r"cannot write to the run directory .*Permission denied"):
        train(small(tmp_path / "run"))


def test_a_full_disk_leaves_the_checkpoint_before(uninterrupted: Path, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    network = load_network(uninterrupted)
    path = tmp_path / "last.pt"
    checkpoint.save(path, network.config, network.contract, network.model, epoch=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(CheckpointError, match=r"cannot write checkpoint .*last\.pt: File too large"):
            checkpoint.save(path, network.config, network.contract, network.model, epoch=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_network(path).state["epoch"] == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"data": "cifar10", "data_dir": "nowhere"}, "cifar"),
        ({"image_size": 32}, "images of digits have size 8"),
        ({"device": "tpu"}, "device 'tpu' is not available"),
        ({"device": "meta"}, "device 'meta' is not available"),
        ({"limit": 10, "batch_size": 64, "accumulate": 4}, "10 images .* cannot be split into 4"),
        ({"options": {"rotation": "none"}}, "set alpha = 'none'"),
        ({"options": {"estimator": "stee"}}, "'estimator' .* must be one of"),
    ],
)
def test_runs_that_cannot_be(values: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(RbnnError, match=says):
        train(small(tmp_path, **values))
