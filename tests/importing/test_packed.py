"""A packed network converted back to torch has the same outputs and signs, and packs to the same file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

import rbnn
from rbnn.importing.packed import Mismatch, restore_
from rbnn.methods import method_names
from rbnn.nn import binary_layers
from rbnn.packed import file as packfile
from rbnn.packed import oracle

SIZE = 8


def trained_like(name: str, method: str, **options: object) -> nn.Module:
    """A network whose batch norms have non-initial values; some factors are negative."""
    torch.manual_seed(1)
    model = rbnn.create_model(name, method, num_classes=5, image_size=SIZE, **options).eval()
    for norm in model.modules():
        if isinstance(norm, _BatchNorm):
            nn.init.normal_(norm.running_mean, 0, 0.3)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.weight, 0.3, 0.5)
            nn.init.normal_(norm.bias, 0, 0.3)
        if isinstance(norm, nn.PReLU):
            nn.init.normal_(norm.weight, 0.1, 0.3)
    return model


def packed(model: nn.Module, path: Path, **how: str) -> Path:
    rbnn.export(model, path, torch.randn(4, 3, SIZE, SIZE), (0.5,), (0.25,), **how)
    return path


METHODS = [(method, {}) for method in method_names() if method not in ("float", "xnor++")]
METHODS += [("xnor++", {"case": 1}), ("rbnn", {"rotation": "layer"}), ("rbnn", {"rotation": "none", "alpha": "none"})]
METHODS += [("xnor-net", {"k_map": True}), ("rbnn", {"standardise": False})]
CASES = [(model, method, options) for model in ("resnet20", "resnet20-bireal") for method, options in METHODS]
CASES += [("resnet20-bireal", "rbnn", {"activation": "prelu", "shortcut": "pool-pad"})]
CASES += [("resnet20-bireal", "rbnn", {"width": 0.5})]
CASES += [("vgg-small", "rbnn", {"activation": "prelu"}), ("resnet20", "bnn", {"activation": "prelu"})]
CASES += [("vgg-small", method, {}) for method in ("rbnn", "bnn", "xnor-net", "dorefa", "ir-net")]


@pytest.mark.parametrize("method", ["bnn", "xnor-net", "bi-real", "rbnn"])
@pytest.mark.parametrize("name", ["resnet20", "resnet20-bireal", "vgg-small"])
def test_slopes_that_no_sign_depends_on(name: str, method: str, tmp_path: Path) -> None:
    """The export leaves out a PReLU without negative slopes before a sign, so the file has fewer slopes."""
    before = trained_like(name, method, activation="prelu", width=0.25)
    for activation in (module for module in before.modules() if isinstance(module, nn.PReLU)):
        nn.init.uniform_(activation.weight, 0.05, 0.6)
    graph = packfile.read(packed(before, tmp_path / "net.rbnn"))
    after = rbnn.create_model(name, method, num_classes=5, image_size=SIZE, activation="prelu", width=0.25).eval()
    restore_(after, graph)
    images = torch.randn(16, 3, SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(after(images), before(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "method", "options"), CASES)
def test_it_answers_as_before(name: str, method: str, options: dict[str, object], tmp_path: Path) -> None:
    before = trained_like(name, method, **options)
    graph = packfile.read(packed(before, tmp_path / "net.rbnn"))
    after = rbnn.create_model(name, method, num_classes=5, image_size=SIZE, **options).eval()
    restore_(after, graph)
    images = torch.randn(16, 3, SIZE, SIZE)
    with torch.no_grad():
        torch.testing.assert_close(after(images), before(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rotate_until", [0.0, 1.0])
def test_the_signs_are_those_of_the_file_and_stay_when_training_begins(rotate_until: float, tmp_path: Path) -> None:
    graph = packfile.read(packed(trained_like("resnet20-bireal", "rbnn"), tmp_path / "net.rbnn"))
    model = rbnn.create_model("resnet20-bireal", num_classes=5, image_size=SIZE, rotate_until=rotate_until)
    restore_(model, graph)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    rbnn.BinarySchedule(model, optimizer, epochs=2).step(0)  # the first epoch of a new network rotates
    operations = {operation.name: operation for operation in graph.operations}
    for name, layer in binary_layers(model):
        stored = operations[name].tensors["weight"]
        signs = oracle.unpack(stored, layer.weight.shape[1]).transpose(0, 3, 1, 2)
        assert np.array_equal(layer.method.signs(layer.weight).numpy(), signs), name


def test_every_latent_weight_can_learn(tmp_path: Path) -> None:
    graph = packfile.read(packed(trained_like("resnet20-bireal", "rbnn"), tmp_path / "net.rbnn"))
    model = rbnn.create_model("resnet20-bireal", num_classes=5, image_size=SIZE).train()
    restore_(model, graph)
    rbnn.BinarySchedule(model, torch.optim.SGD(model.parameters(), 0.01), epochs=2).step(0)
    model(torch.randn(8, 3, SIZE, SIZE)).square().sum().backward()
    for name, layer in binary_layers(model):
        assert bool((layer.weight.grad.abs().amax((1, 2, 3)) > 0).all()), name


@pytest.mark.parametrize(
    ("name", "method", "said"),
    [
        ("resnet20", "rbnn", "operation 'layers.0.0.conv1' is different"),  # the same layers, connected differently
        ("resnet20-bireal", "ir-net", "is different"),  # does not centre
        ("vgg-small", "rbnn", "no float_conv 'features.0'"),
        ("resnet18-cifar", "rbnn", "has different filters"),
    ],
)
def test_another_network_or_method_is_refused(name: str, method: str, said: str, tmp_path: Path) -> None:
    graph = packfile.read(packed(trained_like("resnet20-bireal", "rbnn"), tmp_path / "net.rbnn"))
    with pytest.raises(Mismatch, match=said):
        restore_(rbnn.create_model(name, method, num_classes=5, image_size=SIZE), graph)


def test_what_cannot_be_undone_is_refused(tmp_path: Path) -> None:
    rounded = packfile.read(packed(trained_like("resnet20", "bnn"), tmp_path / "a.rbnn", float_layers="int8"))
    with pytest.raises(Mismatch, match="is int8, and rounding cannot be undone"):
        restore_(rbnn.create_model("resnet20", "bnn", num_classes=5, image_size=SIZE), rounded)
    mapped = packfile.read(packed(trained_like("resnet20", "xnor++"), tmp_path / "b.rbnn"))
    with pytest.raises(Mismatch, match="a factor for each position"):
        restore_(rbnn.create_model("resnet20", "xnor++", num_classes=5, image_size=SIZE), mapped)


def test_signs_that_a_method_cannot_give_are_refused(tmp_path: Path) -> None:
    """RBNN centres the weights of a filter, so they cannot all be positive.  Without centring they can."""
    model = trained_like("resnet20-bireal", "rbnn", rotation="none", alpha="none")
    graph = packfile.read(packed(model, tmp_path / "net.rbnn"))
    weight = graph.tensors["layers.0.0.conv1.weight"]
    weight[3] = 0xFF
    with pytest.raises(Mismatch, match=r"RBNN cannot produce the signs of layer 'layers\.0\.0\.conv1'"):
        restore_(model, graph)
