"""Every network × every method: torch against the packed network, operation by operation and as a whole."""

from pathlib import Path
from typing import Any

import pytest
import torch
from networks import VARIANTS, network, pictures

import rbnn
from rbnn.exporting import ExportReport
from rbnn.methods import method_names
from rbnn.models import ACTIVATIONS, SHORTCUTS, model_names
from rbnn.packed.session import Session


def parity(path: Path, name: str, method: str, size: int, count: int, **options: Any) -> ExportReport:
    """Export, which compares every operation, and compare the outputs of the file."""
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


SIZES = {"resnet20": 32, "resnet20-bireal": 32, "resnet18-cifar": 16, "vgg-small": 16, "resnet18": 64, "resnet34": 64}
"""Image sizes: wide or deep networks get smaller images than usual; the operations are the same."""


def test_every_network_has_its_size() -> None:
    assert set(SIZES) == set(model_names())


@pytest.mark.parametrize("method", method_names())
@pytest.mark.parametrize("name", SIZES)
def test_every_network_and_method(tmp_path: Path, name: str, method: str) -> None:
    parity(tmp_path / "net.rbnn", name, method, SIZES[name], 2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_options_that_inference_depends_on(tmp_path: Path, variant: str) -> None:
    parity(tmp_path / "net.rbnn", "resnet20-bireal", variant.partition(" ")[0], 32, 2, **VARIANTS[variant])


@pytest.mark.parametrize("method", ["rbnn", "bi-real"])
@pytest.mark.parametrize("shortcut", SHORTCUTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_and_shortcut(tmp_path: Path, activation: str, shortcut: str, method: str) -> None:
    options = {"activation": activation, "shortcut": shortcut}
    parity(tmp_path / "net.rbnn", "resnet20-bireal", method, 32, 3, **options)


@pytest.mark.parametrize("name", ["resnet20", "resnet18-cifar", "resnet18"])
@pytest.mark.parametrize(("activation", "shortcut"), [("prelu", "pool-pad"), ("rprelu", "pool-conv"), ("none", "conv")])
def test_other_networks_with_other_activations(tmp_path: Path, name: str, activation: str, shortcut: str) -> None:
    for method in ("ir-net", "float"):
        options = {"activation": activation, "shortcut": shortcut}
        parity(tmp_path / f"{method}.rbnn", name, method, SIZES[name], 2, **options)


@pytest.mark.parametrize("width", [0.25, 0.6, 1.5])
@pytest.mark.parametrize("name", [name for name, size in SIZES.items() if size <= 32])
def test_other_widths(tmp_path: Path, name: str, width: float) -> None:
    for method in ("rbnn", "float"):
        parity(tmp_path / f"{method}.rbnn", name, method, SIZES[name], 2, width=width)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_vgg_with_other_activations(tmp_path: Path, activation: str) -> None:
    for method in ("rbnn", "bi-real", "float"):
        parity(tmp_path / f"{method}.rbnn", "vgg-small", method, 16, 2, activation=activation)


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_shortcuts_of_pictures_with_odd_sides(tmp_path: Path, shortcut: str) -> None:
    parity(tmp_path / "net.rbnn", "resnet20-bireal", "bi-real", 17, 3, activation="rprelu", shortcut=shortcut)


@pytest.mark.parametrize("method", ["rbnn", "bi-real"])
def test_few_small_pictures_meet_a_near_tie(tmp_path: Path, method: str) -> None:
    report = parity(tmp_path / "net.rbnn", "resnet20-bireal", method, 32, 100)
    assert report.images_with_near_ties <= 2


@pytest.mark.parametrize("method", ["rbnn", "bi-real"])
def test_few_large_pictures_meet_a_near_tie(tmp_path: Path, method: str) -> None:
    report = parity(tmp_path / "net.rbnn", "resnet18", method, 224, 5)
    assert report.images_with_near_ties <= 1
