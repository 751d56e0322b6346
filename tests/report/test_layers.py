"""The measures of a network's layers against their formulas in NumPy, and the log."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rbnn.errors import CheckpointError
from rbnn.nn import BinaryConv2d
from rbnn.report.layers import EDGES, GAUSSIAN_ANGLE, GAUSSIAN_COSINE, GAUSSIAN_NEAR_ONE, Layer, layers
from rbnn.report.run_directory import Run, read_runs
from rbnn.training.checkpoint import Network
from rbnn.training.config import TrainConfig
from rbnn.training.contract import InputContract


def run_of(model: torch.nn.Module, **more: object) -> Run:
    """A run whose network is this one."""
    config = TrainConfig(method="xnor-net")
    network = Network(model, config, InputContract(1, 4, (0.5,), (0.5,), ("a", "b")), {"epoch": 0})
    return Run("it", Path("it"), config, [], network, **({"initial": None} | more))  # type: ignore[arg-type]


def layer_with(weights: np.ndarray) -> Layer:
    """The measures of a layer that binarizes these values."""
    conv = BinaryConv2d(weights.size, 1, 1, bias=False, method="xnor-net")
    with torch.no_grad():
        conv.weight.copy_(torch.from_numpy(weights.astype(np.float32)).reshape(conv.weight.shape))
    (found,) = layers(run_of(torch.nn.Sequential(conv)))
    return found


def test_formulas() -> None:
    w = np.random.default_rng(0).standard_normal(300).astype(np.float32).astype(np.float64)
    b = np.where(w > 0, 1.0, -1.0)
    found = layer_with(w)
    cosine = w @ b / np.linalg.norm(w) / np.sqrt(300)
    scale = np.abs(w).mean()
    assert found.shape == (1, 300, 1, 1)
    assert found.cosine == pytest.approx(cosine, abs=1e-12)
    assert found.angle == pytest.approx(np.degrees(np.arccos(cosine)), abs=1e-9)
    assert found.relative_error == pytest.approx(1 - cosine**2, abs=1e-12)
    assert found.error == pytest.approx(((w - scale * b) ** 2).sum(), rel=1e-12)
    assert found.relative_error == pytest.approx(found.error / (w @ w), rel=1e-9)
    assert found.scale == pytest.approx(scale, rel=1e-12)
    assert found.near_one == pytest.approx(((np.abs(w) / scale >= 0.5) & (np.abs(w) / scale <= 1.5)).mean())
    assert found.flips is None
    assert found.alpha is None


def test_the_histogram_counts_every_weight_once() -> None:
    w = np.array([-9.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0])  # λ* = 2: −4.5 lies beyond the last bin
    found = layer_with(w)
    assert found.histogram is not None
    assert found.histogram.sum() == pytest.approx(1.0)
    shares = dict(zip(np.round(EDGES[:-1], 1).tolist(), found.histogram.tolist(), strict=True))
    assert shares[-4.0] == pytest.approx(1 / 8)
    assert shares[0.5] == pytest.approx(5 / 8)


def test_two_modes() -> None:
    rng = np.random.default_rng(1)
    signs = np.where(rng.random(4000) < 0.5, -1.0, 1.0)
    assert layer_with(signs * (1 + 0.2 * rng.standard_normal(4000))).two_modes is True
    assert layer_with(rng.standard_normal(4000)).two_modes is False
    assert layer_with(rng.random(4000) * 2 - 1).two_modes is False


def test_zeros_have_no_direction() -> None:
    found = layer_with(np.zeros(8))
    assert (found.cosine, found.angle, found.error, found.scale) == (0.0, 90.0, 0.0, 1.0)


def test_gaussian_references_are_what_gaussian_weights_have() -> None:
    found = layer_with(np.random.default_rng(2).standard_normal(200_000))
    assert found.cosine == pytest.approx(GAUSSIAN_COSINE, abs=2e-3)
    assert found.angle == pytest.approx(GAUSSIAN_ANGLE, abs=0.2)
    assert found.near_one == pytest.approx(GAUSSIAN_NEAR_ONE, abs=5e-3)


def test_the_best_epoch_measures_as_it_was_logged(rbnn_run: Path) -> None:
    (run,) = read_runs([rbnn_run])
    assert run.network is not None
    epoch = run.network.state["epoch"]
    logged = json.loads((rbnn_run / "log.jsonl").read_text().splitlines()[epoch])["layers"]
    found = layers(run)
    assert [layer.name for layer in found] == list(logged)
    for layer in found:
        figures = logged[layer.name]
        assert layer.angle == pytest.approx(figures["angle"], abs=1e-4)
        assert layer.relative_error == pytest.approx(figures["error"], abs=1e-6)
        assert (layer.flips, layer.alpha) == (pytest.approx(figures["flips"]), pytest.approx(figures["alpha"]))
    assert run.measured == f"epoch {epoch + 1} (best)"


def test_without_a_checkpoint_the_log_speaks(rbnn_run: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "log.jsonl"):
        (tmp_path / name).write_bytes((rbnn_run / name).read_bytes())
    (run,) = read_runs([tmp_path])
    last = run.epochs[-1]["layers"]
    for layer in layers(run):
        figures = last[layer.name]
        assert (layer.angle, layer.relative_error, layer.flips) == (
            figures["angle"],
            figures["error"],
            figures["flips"],
        )
        assert layer.cosine == pytest.approx(np.sqrt(1 - figures["error"]), abs=1e-6)
        assert (layer.error, layer.histogram, layer.near_one, layer.two_modes) == (None, None, None, None)
    assert run.measured == "epoch 3 (from the log)"


def test_signs_of_another_network_are_refused(rbnn_run: Path) -> None:
    (run,) = read_runs([rbnn_run])
    assert run.initial is not None
    wrong = {name: words[:-1] for name, words in run.initial.items()}
    broken = Run(run.name, run.path, run.config, run.epochs, run.network, wrong)
    with pytest.raises(CheckpointError, match="another network"):
        layers(broken)
