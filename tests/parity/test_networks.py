"""Every network × every method: torch against the packed network, operation by operation and as a whole."""

from pathlib import Path
from typing import Any

import pytest
import torch
from networks import network, pictures

import rbnn
from rbnn.exporting import ExportReport
from rbnn.methods import method_names
from rbnn.runtime import Session

VARIANTS: dict[str, dict[str, Any]] = {
    "xnor-net with K": {"k_map": True},
    "xnor++ case 1": {"case": 1},
    "xnor++ case 2": {"case": 2},
    "xnor++ case 3": {"case": 3},
    "dorefa 1/2": {"activation_bits": 2},
    "abc-net 3x2": {"weight_bases": 3, "activation_bases": 2},
    "rbnn not standardised": {"standardise": False},
    "rbnn ede": {"estimator": "ede"},
}
"""Options that change what inference needs, on one network each."""


def parity(path: Path, name: str, method: str, size: int, count: int, **options: Any) -> ExportReport:
    """Exports, which compares every operation, and compares the answers of the file."""
    model, images = network(name, method, size, **options), pictures(count, size)
    report = rbnn.export(model, path, images)
    binary = sum(isinstance(module, rbnn.BinaryConv2d) for module in model.modules())
    assert report.binary_layers >= binary
    assert report.signs >= binary  # every binary layer's input was compared
    with torch.no_grad():
        wanted = model(images)
    got = torch.from_numpy(Session(path)(images.numpy()))
    agree = (wanted - got).abs().amax(1) <= 1e-3 * wanted.abs().amax(1).clamp_min(1)
    same = wanted.argmax(1) == got.argmax(1)
    assert int((~(agree & same)).sum()) <= report.images_with_near_ties
    return report


@pytest.mark.parametrize("method", method_names())
@pytest.mark.parametrize("name", ["resnet20", "resnet20-bireal", "resnet18-cifar", "vgg-small"])
def test_small_pictures(tmp_path: Path, name: str, method: str) -> None:
    report = parity(tmp_path / "net.rbnn", name, method, 32, 2)
    assert report.largest_difference < 5e-5


@pytest.mark.parametrize("variant", VARIANTS)
def test_options_that_inference_depends_on(tmp_path: Path, variant: str) -> None:
    parity(tmp_path / "net.rbnn", "resnet20-bireal", variant.partition(" ")[0], 32, 2, **VARIANTS[variant])
