"""The importer gives the logits of the network that wrote the checkpoint, for every network of the release."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from released import THEIR_NAMES, released, save

import rbnn
from rbnn.cli import main
from rbnn.data import preprocess
from rbnn.errors import CheckpointError, ConfigError, UnknownName
from rbnn.importing.authors_release import RECIPES, import_checkpoint
from rbnn.models import MODELS, model_names
from rbnn.nn import binary_layers
from rbnn.packed.session import Session
from rbnn.training.checkpoint import load_network

SAMPLE = os.environ.get("RBNN_REFERENCE_CHECKPOINT", "")


def test_every_network_of_ours_is_one_of_theirs() -> None:
    assert set(RECIPES) == set(THEIR_NAMES) == set(model_names())


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("name", list(THEIR_NAMES))
def test_the_logits_are_theirs(name: str, prefix: str, tmp_path: Path) -> None:
    classes = 1000 if name in ("resnet18", "resnet34") else 10
    theirs = released(name, classes)
    save(theirs, name, tmp_path / "theirs.pth.tar", prefix)
    import_checkpoint(tmp_path / "theirs.pth.tar").save(tmp_path / "ours.pt")
    network = load_network(tmp_path / "ours.pt")
    assert network.config.model == name
    side = 64 if name in ("resnet18", "resnet34") else 32
    images = torch.randn(4, 3, side, side, dtype=torch.float64)
    # In double: in float32 a sign at a near-tie may differ and change everything after it.
    with torch.no_grad():
        expected, found = theirs.double()(images), network.model.eval().double()(images)
    assert float(expected.std()) > 0.1
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_what_is_carried_along(tmp_path: Path) -> None:
    save(released("resnet20-bireal", 10), "resnet20-bireal", tmp_path / "theirs.pth.tar")
    found = import_checkpoint(tmp_path / "theirs.pth.tar")
    assert (found.contract.mean, found.contract.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (found.contract.image_size, found.contract.channels) == (32, 3)
    assert found.contract.classes[:3] == ("airplane", "automobile", "bird")
    assert (found.config.data, found.config.epochs, found.config.options["rotate_until"]) == ("cifar10", 1000, 1.0)
    for _, layer in binary_layers(found.model):  # after three epochs: 0, 1 and 2 of 1000
        assert (layer.method.progress, int(layer.method.rotated_at)) == (0.002, 2)

    save(released("resnet20", 100), "resnet20", tmp_path / "hundred.pth.tar")
    found = import_checkpoint(tmp_path / "hundred.pth.tar")
    assert (found.config.data, len(found.contract.classes)) == ("cifar100", 100)

    save(released("resnet18", 5), "resnet18", tmp_path / "five.pth.tar")
    assert import_checkpoint(tmp_path / "five.pth.tar").contract.classes == ("0", "1", "2", "3", "4")
    named = import_checkpoint(tmp_path / "five.pth.tar", classes=tuple("abcde"))
    assert (named.contract.classes, named.contract.image_size) == (tuple("abcde"), MODELS["resnet18"].image_size)
    with pytest.raises(ConfigError, match="has 5 classes, got 4 names"):
        import_checkpoint(tmp_path / "five.pth.tar", classes=tuple("abcd"))


@pytest.mark.parametrize("name", ["resnet20-bireal", "resnet18-cifar", "vgg-small"])
def test_what_is_imported_can_be_packed(name: str, tmp_path: Path) -> None:
    """The export itself compares every layer with torch; here the whole network gives their network's outputs."""
    theirs = released(name, 10)
    save(theirs, name, tmp_path / "theirs.pth.tar")
    found = import_checkpoint(tmp_path / "theirs.pth.tar")
    images = torch.randn(8, 3, 32, 32)
    rbnn.export(found.model.eval(), tmp_path / "packed.rbnn", images[:2])
    packed = Session(tmp_path / "packed.rbnn", threads=1)(images.numpy())
    with torch.no_grad():
        expected = theirs(images).numpy()
    # Without training a sign at a near-tie may decide, so one image of eight may differ.
    assert (packed.argmax(1) == expected.argmax(1)).sum() >= 7


def test_a_bare_state_dict_needs_a_name(tmp_path: Path) -> None:
    theirs = released("resnet20", 10)
    torch.save(theirs.state_dict(), tmp_path / "bare.pth")
    with pytest.raises(
        ConfigError, match="does not name its network: add --model with one of resnet20, resnet20-bireal"
    ):
        import_checkpoint(tmp_path / "bare.pth")
    found = import_checkpoint(tmp_path / "bare.pth", model="resnet20")
    assert torch.equal(found.model.get_parameter("fc.weight"), theirs.linear.weight)
    with pytest.raises(UnknownName, match="did you mean 'resnet20'"):
        import_checkpoint(tmp_path / "bare.pth", model="resnet-20")


def test_the_format_of_torch_before_1_6(tmp_path: Path) -> None:
    """Not a zip file; the release is from 2020."""
    theirs = released("resnet20", 10)
    state = {"model": "resnet20_1w1a", "state_dict": theirs.state_dict()}
    torch.save(state, tmp_path / "old.pth.tar", _use_new_zipfile_serialization=False)
    found = import_checkpoint(tmp_path / "old.pth.tar")
    assert torch.equal(found.model.get_parameter("fc.weight"), theirs.linear.weight)


class Program:
    """The code that a hostile file would run."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("executed",)


def test_files_that_are_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    theirs = released("resnet20", 10)
    save(theirs, "resnet20", Path("whole.pth"))
    state = torch.load("whole.pth", weights_only=True)

    def changed(**more: Any) -> Path:
        torch.save(state | more, "changed.pth")
        return Path("changed.pth")

    weights = state["state_dict"]
    lacking = {key: value for key, value in weights.items() if key != "layer1.0.conv1.R1"}
    bent = weights | {"layer1.0.conv1.R1": torch.zeros(3, 3)}
    headless = {key: value for key, value in weights.items() if not key.startswith("linear")}
    for path, says in [
        (Path("nothing.pth"), "checkpoint nothing.pth does not exist"),
        (changed(state_dict=lacking), "layers.0.0.conv1.method.R1 is not in the checkpoint"),
    ]:
        with pytest.raises(CheckpointError, match=says):
            import_checkpoint(path)
    with pytest.raises(CheckpointError, match=r"method.R1 has shape \(3, 3\), expected \(12, 12\)"):
        import_checkpoint(changed(state_dict=bent))
    with pytest.raises(CheckpointError, match="the last linear layer is missing"):
        import_checkpoint(changed(state_dict=headless))
    with pytest.raises(CheckpointError, match="no layer has the key 'rotate'"):
        import_checkpoint(changed(state_dict={"conv1.weight": torch.zeros(1)}))
    with pytest.raises(CheckpointError, match="the key 'state_dict' is missing"):
        import_checkpoint(changed(state_dict=[1, 2]))
    with pytest.raises(UnknownName, match="did you mean 'resnet20_1w1a'"):
        import_checkpoint(changed(model="resnet_20_1w1a"))
    Path("half.pth").write_bytes(Path("whole.pth").read_bytes()[:5000])
    with pytest.raises(CheckpointError, match=r"half.pth is not a readable checkpoint: it is truncated"):
        import_checkpoint(Path("half.pth"))
    Path("program.pth").write_bytes(pickle.dumps(state | {"model": Program()}))
    with pytest.raises(CheckpointError, match="could be programs and are never loaded"):
        import_checkpoint(Path("program.pth"))
    assert not Path("executed").exists()


@pytest.mark.skipif(not SAMPLE, reason="RBNN_REFERENCE_CHECKPOINT names no directory with a sample of the release")
def test_the_sample(tmp_path: Path) -> None:
    """`model_best.pth.tar`, `images.npy` (bytes, NHWC) and `logits.npy`, their program's output for these images."""
    folder = Path(SAMPLE)
    import_checkpoint(folder / "model_best.pth.tar").save(tmp_path / "ours.pt")
    network = load_network(tmp_path / "ours.pt")
    images = preprocess.normalise(np.load(folder / "images.npy"), network.contract.mean, network.contract.std)
    with torch.no_grad():
        found = network.model.eval()(torch.from_numpy(images)).numpy()
    expected = np.load(folder / "logits.npy")
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)
    assert main(["export", str(tmp_path / "ours.pt"), "-o", str(tmp_path / "packed.rbnn")]) == 0
    packed = Session(tmp_path / "packed.rbnn", threads=1)(images)
    assert np.array_equal(packed.argmax(1), expected.argmax(1))
