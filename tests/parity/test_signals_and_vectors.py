"""Signals and vectors × every method: torch against the packed network, the engine against the oracle."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import VARIANTS, random_norms
from torch import Tensor, nn

import rbnn
from rbnn.methods import method_names
from rbnn.nn import show_example
from rbnn.packed import file, oracle
from rbnn.packed.session import Session

CHANNELS, LENGTH = 6, 101
METHODS = [name for name in method_names() if name != "float"]


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 5, padding=2, bias=False)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.hardtanh(self.norm(self.conv(x)) + x)


def signal_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(CHANNELS, 24, 7, 2, 3), nn.BatchNorm1d(24), nn.Hardtanh(), Block(24), nn.MaxPool1d(3, 2, 1),
        nn.Conv1d(24, 24, 3, groups=2, dilation=2), nn.BatchNorm1d(24), nn.Hardtanh(), Block(24),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(24, 5),
    )  # fmt: skip


def vector_network() -> nn.Module:
    hidden = [nn.Linear(40, 48, bias=False), nn.BatchNorm1d(48), nn.Hardtanh()]
    return nn.Sequential(
        nn.Linear(13, 40), nn.BatchNorm1d(40), nn.Hardtanh(), *hidden, nn.Linear(48, 32), nn.BatchNorm1d(32),
        nn.Hardtanh(), nn.Linear(32, 5),
    )  # fmt: skip


def parity(path: Path, model: nn.Module, x: Tensor, method: str, **options: Any) -> None:
    """Export, which compares every operation; then compare the file's outputs with torch's and the oracle's."""
    rbnn.binarize_(model, method, **options)
    show_example(model, x)
    random_norms(model).eval()
    report = rbnn.export(model, path, x)
    assert report.binary_layers >= 2
    with torch.no_grad():
        wanted = model(x)
    session = Session(path)
    got = session(x.numpy())
    close = (wanted - torch.from_numpy(got)).abs().amax(1) <= 1e-3 * wanted.abs().amax(1).clamp_min(1)
    assert int((~close).sum()) <= report.images_with_near_ties
    pictures = x.numpy().reshape(len(x), x.shape[1], 1, -1)
    np.testing.assert_array_equal(session(pictures), got)
    expected = oracle.run(file.read(path), pictures)
    same = np.abs(expected - got).max(1) <= 1e-3 * np.abs(expected).max(1).clip(1)
    assert int((~same).sum()) <= report.images_with_near_ties


@pytest.mark.parametrize("method", METHODS)
def test_signals(tmp_path: Path, method: str) -> None:
    parity(tmp_path / "net.rbnn", signal_network(), torch.randn(4, CHANNELS, LENGTH), method)


@pytest.mark.parametrize("variant", VARIANTS)
def test_options_that_inference_depends_on(tmp_path: Path, variant: str) -> None:
    x = torch.randn(4, CHANNELS, LENGTH)
    parity(tmp_path / "net.rbnn", signal_network(), x, variant.partition(" ")[0], **VARIANTS[variant])


@pytest.mark.parametrize("method", METHODS)
def test_vectors(tmp_path: Path, method: str) -> None:
    parity(tmp_path / "net.rbnn", vector_network(), torch.randn(4, 13), method)
