"""A training run: that it learns and is determined by its seed, and which runs are rejected."""

import errno
import json
import math
import os
import signal
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from runs import STEPS, assert_same_run, difference, log_of, small, state_of
from torch import Tensor, nn

from rbnn.errors import CheckpointError, ConfigError, RbnnError, TrainingError
from rbnn.methods import method_names
from rbnn.models import MODELS
from rbnn.models._registry import Bricks, Entry
from rbnn.training import checkpoint
from rbnn.training.checkpoint import load_network
from rbnn.training.loop import Progress, train


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


# What is rejected


def test_a_run_is_not_overwritten(uninterrupted: Path) -> None:
    before = (uninterrupted / "last.pt").read_bytes()
    with pytest.raises(ConfigError, match=r"already contains a run: add --resume .* or choose another --out"):
        train(small(uninterrupted))
    assert (uninterrupted / "last.pt").read_bytes() == before


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
        f"the loss is nan at step 2 of epoch 2: lower lr (now 0.05); the last good checkpoint stays in {tmp_path}"
    )
    state = state_of(tmp_path / "last.pt")
    assert (state["epoch"], state["step"]) == (1, 0)
    assert all(bool(t.isfinite().all()) for t in state["model"].values())
    load_network(tmp_path / "last.pt")
    assert len(log_of(tmp_path)) == 1


def test_a_huge_learning_rate_ends_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"loss is (nan|inf) .*step \d of epoch 1: lower lr \(now 1e\+10\)"):
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
    with pytest.raises(TrainingError, match=f"conv1.weight is not finite after step {last_step - STEPS} of epoch 2"):
        train(small(tmp_path))
    assert state_of(tmp_path / "last.pt")["epoch"] == 1
    assert len(log_of(tmp_path)) == 1
    load_network(tmp_path)


def test_nothing_to_keep_in_the_first_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.nn.functional.cross_entropy", lambda logits, wanted: logits.sum() * math.nan)
    with pytest.raises(TrainingError, match=r"the loss is nan at step 0 of epoch 1: .*there was no checkpoint yet"):
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
        with pytest.raises(ConfigError, match=r"cannot be created, because .*/file is a file: choose another --out"):
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
