"""Trained networks for further training, from a name, run, checkpoint or packed file; the head may be replaced."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rbnn
from rbnn import data
from rbnn.data.preprocess import normalise
from rbnn.errors import CheckpointError, ConfigError
from rbnn.nn import binary_layers
from rbnn.packed import pretrained
from rbnn.training.checkpoint import load_network
from rbnn.training.config import from_table
from rbnn.training.loop import train

DIGITS = "resnet20-bireal-digits"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of IR-Net, its checkpoints and its packed file."""
    out = tmp_path_factory.mktemp("runs") / "ir-net"
    how: dict[str, Any] = {"method": "ir-net", "epochs": 2, "limit": 256, "batch_size": 64, "threads": 1}
    train(from_table(how | {"out": str(out)}))
    network = load_network(out)
    contract = network.contract
    rbnn.export(network.model, out / "net.rbnn", torch.randn(2, 1, 8, 8), contract.mean, contract.std, contract.classes)
    return out


def pictures() -> torch.Tensor:
    tests = data.load("digits", None, "test")
    return torch.from_numpy(normalise(tests.images, tests.mean, tests.std))


def answers(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(pictures())


@pytest.mark.parametrize("name", pretrained.names())
def test_a_shipped_network_can_be_trained_further(name: str) -> None:
    """The signs are the same, and the scores are those of the packed network, in training mode approximately."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = rbnn.create_model(name, pretrained=True)
    assert model.training
    if name != DIGITS:
        return
    labels = torch.from_numpy(np.asarray(data.load("digits", None, "test").labels))
    assert 100 * float((answers(model).argmax(1) == labels).double().mean()) == pytest.approx(
        pretrained.card(name).packed_top1, abs=0.006
    )
    assert torch.equal(answers(model).argmax(1), torch.from_numpy(rbnn.load(name)(pictures().numpy()).argmax(1)))
    learnt = data.load("digits", None, "train")
    with torch.no_grad():
        seen = model.train()(torch.from_numpy(normalise(learnt.images, learnt.mean, learnt.std))).argmax(1)
    assert float((seen == torch.from_numpy(np.asarray(learnt.labels))).double().mean()) > 0.95


def test_another_number_of_classes_replaces_the_head_alone() -> None:
    whole, three = rbnn.create_model(DIGITS, pretrained=True), rbnn.create_model(DIGITS, pretrained=True, num_classes=3)
    assert three.fc.weight.shape == (3, 64)
    own = three.state_dict()
    for name, value in whole.state_dict().items():
        if not name.startswith("fc.") and not name.endswith("_extra_state"):
            assert torch.equal(own[name], value), name


@pytest.mark.parametrize("part", ["", "best.pt", "last.pt"])
def test_a_run_and_a_checkpoint(part: str, run: Path) -> None:
    model = rbnn.create_model(run / part, pretrained=True)
    assert torch.equal(answers(model), answers(load_network(run / part).model))


def test_a_packed_file_of_your_own(run: Path) -> None:
    with pytest.raises(CheckpointError, match=r"does not record its method: add method=…"):
        rbnn.create_model(run / "net.rbnn", pretrained=True)
    with pytest.warns(UserWarning, match="does not contain the batch statistics of its training"):
        model = rbnn.create_model(run / "net.rbnn", "ir-net", pretrained=True)
    torch.testing.assert_close(answers(model), answers(load_network(run).model), rtol=1e-3, atol=1e-3)
    with pytest.raises(CheckpointError, match=r"cannot be trained further, .* \(resnet20.* by rbnn: "):
        rbnn.create_model(run / "net.rbnn", "rbnn", pretrained=True)


def test_another_method_keeps_weights_and_norms(run: Path) -> None:
    model = rbnn.create_model(run, "bnn", pretrained=True)
    before = load_network(run).model.state_dict()
    assert torch.equal(model.state_dict()["layers.0.0.conv1.weight"], before["layers.0.0.conv1.weight"])
    assert torch.equal(model.state_dict()["bn2.running_mean"], before["bn2.running_mean"])
    assert {type(layer.method).__name__ for _, layer in binary_layers(model)} == {"BNN"}


@pytest.mark.parametrize(("part", "value"), [("activation", "prelu"), ("shortcut", "pool-pad"), ("width", 0.5)])
def test_other_parts_are_refused(run: Path, part: str, value: Any) -> None:
    """Weights may fit, but they were trained for other parts."""
    with pytest.raises(ConfigError, match=f"was trained with {part}=.*: leave out other values, or pretrained=True"):
        rbnn.create_model(run, pretrained=True, **{part: value})
    other: dict[str, Any] = {part: value, "method": "ir-net", "epochs": 1, "limit": 64, "threads": 1}
    flag = f"--{part} " + {"activation": "hardtanh", "shortcut": "own", "width": "1.0"}[part]
    with pytest.raises(CheckpointError, match=f"resnet20-bireal with other parts than this run's: use {flag}$"):
        train(from_table(other | {"start_from": str(run), "out": str(run / part)}))


def test_a_packed_file_of_another_width_is_refused_by_what_may_differ(tmp_path: Path) -> None:
    narrow = rbnn.create_model("resnet20", "ir-net", num_classes=10, in_channels=1, image_size=8, width=0.25).eval()
    rbnn.export(narrow, tmp_path / "net.rbnn", torch.randn(2, 1, 8, 8), 0.5, 0.25)
    with pytest.raises(
        CheckpointError, match=r"another method, activation, shortcut or width \(resnet20 by ir-net: layer"
    ):
        rbnn.create_model(tmp_path / "net.rbnn", "ir-net", pretrained=True)
    with pytest.warns(UserWarning, match="does not contain the batch statistics"):
        again = rbnn.create_model(tmp_path / "net.rbnn", "ir-net", width=0.25, pretrained=True)
    torch.testing.assert_close(answers(again), answers(narrow), rtol=1e-3, atol=1e-3)


def test_a_new_network_is_as_ever() -> None:
    torch.manual_seed(0)
    one = rbnn.create_model("resnet20", "bnn", num_classes=3)
    torch.manual_seed(0)
    other = rbnn.models.create_model("resnet20", "bnn", num_classes=3)
    assert torch.equal(one.fc.weight, other.fc.weight)
    assert rbnn.create_model("resnet20", "bnn").fc.out_features == 10


def test_what_cannot_be(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{DIGITS} is a trained network: add pretrained=True$"):
        rbnn.create_model(DIGITS)
    for untrained in (lambda: rbnn.load("resnet20"), lambda: rbnn.create_model("resnet20", pretrained=True)):
        with pytest.raises(CheckpointError, match=r"^resnet20 is an untrained model, which rbnn\.create_model builds"):
            untrained()
    with pytest.raises(
        CheckpointError, match="no checkpoint, run directory, packed file or pretrained network is named nowhere"
    ):
        rbnn.create_model("nowhere", pretrained=True)
    with pytest.raises(CheckpointError, match=r"cannot start from .*: it has no conv1\.weight of shape \(16, 3,"):
        rbnn.create_model(run, pretrained=True, in_channels=3)
    rbnn.export(load_network(run).model, tmp_path / "a.rbnn", torch.randn(2, 1, 8, 8))
    with pytest.raises(CheckpointError, match="does not record how images are normalised"):
        rbnn.create_model(tmp_path / "a.rbnn", "ir-net", pretrained=True)
    own = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 4))
    rbnn.binarize_(own, relu="keep")
    rbnn.export(own.eval(), tmp_path / "b.rbnn", torch.randn(2, 1, 8, 8), (0.5,), (0.5,))
    with pytest.raises(CheckpointError, match=r"not a network that rbnn knows by name"):
        rbnn.create_model(tmp_path / "b.rbnn", pretrained=True)
