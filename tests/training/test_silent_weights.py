"""Adaptive gradient scaling and silence-aware decay against their formulas, written out in float64."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import log_of, small, state_of
from stopped_run import assert_resumes_bit_for_bit
from torch import nn

import rbnn
from rbnn.errors import ConfigError
from rbnn.nn import BinaryConv2d, BinaryLinear
from rbnn.training.loop import train
from rbnn.training.silent_weights import SilentWeights

OVSW: dict[str, Any] = {"gradient_floor": 0.04, "silent_decay": 9e-4}


def by_hand(g: Any, w: Any, s: Any, flipped: Any, floor: float, decay: float, memory: float, below: float) -> Any:
    """One layer, filter by filter."""
    g, s = g.copy(), memory * s + (1 - memory) * flipped
    for o in range(len(g)):
        length = max(np.sqrt((g[o] ** 2).sum()), 1e-6)
        weight = max(np.sqrt((w[o] ** 2).sum()), 1e-3)
        if length / weight < floor:
            g[o] = g[o] * floor * weight / length
    return np.where(s < below, g + decay * w, g), s


@pytest.mark.parametrize("method", ["bi-real", "rbnn", "dorefa"])
@pytest.mark.parametrize(("floor", "decay"), [(0.04, 9e-4), (0.0, 0.5), (3.0, 0.0)])
def test_gradients_are_rewritten_by_the_formula(method: str, floor: float, decay: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        BinaryConv2d(4, 6, 3, method=method), nn.Flatten(), BinaryLinear(6, 5, method=method)
    ).double()
    layers = [model[0], model[2]]
    with torch.no_grad():
        layers[0].weight[1] = 1e-6  # below the smallest norm of a weight
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    rbnn.BinarySchedule(model, optimizer, 1).step(0)
    silent = SilentWeights(model, optimizer, floor=floor, decay=decay, memory=0.9, below=0.05)
    s = [np.zeros(layer.weight.shape) for layer in layers]
    before = [layer.method.signs(layer.weight).numpy() for layer in layers]
    flips = 0
    for step in range(12):
        wanted = []
        for i, layer in enumerate(layers):
            gradient = torch.randn(layer.weight.shape, dtype=torch.float64)
            gradient *= 10.0 ** torch.arange(-4, len(gradient) - 4).view(-1, *[1] * (gradient.dim() - 1))
            gradient[-1] = 0 if step % 2 else 1
            now = layer.method.signs(layer.weight).numpy()
            flipped = (now != before[i]).astype(float)
            flips += int(flipped.sum())
            rule = (floor, decay, 0.9, 0.05)
            new, s[i] = by_hand(gradient.numpy(), layer.weight.detach().numpy(), s[i], flipped, *rule)
            before[i] = now
            wanted.append(layer.weight.detach().numpy() - 0.3 * new)
            layer.weight.grad = gradient
        for other in model.parameters():
            if not any(other is layer.weight for layer in layers):
                other.grad = torch.zeros_like(other)
        optimizer.step()
        for layer, expected in zip(layers, wanted, strict=True):
            np.testing.assert_allclose(layer.weight.detach().numpy(), expected, rtol=1e-9, atol=1e-12)
    assert flips > 20
    for layer, expected in zip(silent.changes.values(), s, strict=False):
        np.testing.assert_allclose(layer.numpy(), expected, atol=1e-12)


def test_one_change_protects_for_as_long_as_the_memory_says() -> None:
    """0.001 · 0.999ⁿ falls below 1e-4 after 2,301 steps."""
    layer = BinaryLinear(1, 1, bias=False, method="bi-real").double()
    optimizer = torch.optim.SGD(layer.parameters(), 0.0)
    rbnn.BinarySchedule(layer, optimizer, 1).step(0)
    SilentWeights(layer, optimizer, floor=0.0, decay=1.0, memory=0.999, below=1e-4)
    nn.init.constant_(layer.weight, -1.0 if layer.weight.item() > 0 else 1.0)
    steps = 0
    while True:
        layer.weight.grad = torch.zeros(1, 1, dtype=torch.float64)
        optimizer.step()
        if float(layer.weight.grad) != 0:
            break
        steps += 1
    assert steps == 2302  # the step of the change itself, and 2,301 more


def test_a_run_with_both_resumes_bit_for_bit_and_differs_from_one_without(tmp_path: Path) -> None:
    whole, plain = assert_resumes_bit_for_bit(tmp_path, **OVSW), tmp_path / "plain"
    assert any(bool((s > 0).any()) for s in state_of(whole / "last.pt")["silent"]["changes"].values())
    train(small(plain))
    assert log_of(plain)[-1]["loss"] != log_of(whole)[-1]["loss"]


def test_neither_changes_nothing(tmp_path: Path, uninterrupted: Path) -> None:
    train(small(tmp_path, silent_memory=0.5, silent_below=0.5))
    assert log_of(tmp_path) == log_of(uninterrupted)


@pytest.mark.parametrize(
    "wrong", [{"gradient_floor": -1.0}, {"silent_decay": -1.0}, {"silent_memory": 1.0}, {"silent_below": float("nan")}]
)
def test_values_that_cannot_be(wrong: dict[str, float], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        small(tmp_path, **wrong)
