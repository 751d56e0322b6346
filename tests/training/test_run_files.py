"""What a run writes: its files, its log, its events, its checkpoints."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from runs import STEPS, events, log_of, small, state_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from rbnn.errors import CheckpointError
from rbnn.methods import method_options
from rbnn.nn import binary_layers
from rbnn.training import checkpoint
from rbnn.training.checkpoint import load_network
from rbnn.training.config import as_table, from_table, read_recipe, with_all_options
from rbnn.training.log import read_log
from rbnn.training.loop import train


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
