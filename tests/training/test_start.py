"""A run that starts from a trained network; with the same method it continues from the same state."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from runs import log_of, small, state_of
from torch import Tensor, nn

from rbnn import data
from rbnn.errors import CheckpointError
from rbnn.methods import method_names
from rbnn.models import MODELS
from rbnn.models._registry import Bricks, Entry
from rbnn.nn import binary_layers
from rbnn.training.checkpoint import load_network
from rbnn.training.config import TrainConfig, from_table
from rbnn.training.loop import Progress, train
from rbnn.training.start import as_the_network_takes_them, take_over

OPTIONS: dict[str, list[dict[str, object]]] = {
    "rbnn": [{}, {"rotation": "layer", "alpha": "layer"}, {"rotation": "none", "alpha": "none"}, {"rotate_until": 1.0}],
    "xnor++": [{}, {"case": 1}, {"case": 2}, {"case": 3}],
    "abc-net": [{}, {"weight_bases": 3, "activation_bases": 3}],
    "dorefa": [{}, {"activation_bits": 2, "gradient_bits": 8}],
    "bnn+": [{}, {"scale": "layer"}],
}


class Tiny(nn.Module):
    """A float and a binary convolution, a linear layer."""

    def __init__(self, bricks: Bricks) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(bricks.in_channels, 16, 3, 1, 1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = bricks.conv(16, 32, 3, 2), nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * (bricks.image_size // 2) ** 2, bricks.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.hardtanh(self.bn1(self.conv1(x)))
        return self.fc(nn.functional.hardtanh(self.bn2(self.conv2(x))).flatten(1))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "tiny", Entry(Tiny, 8))


def signs_of(run: Path) -> dict[str, Tensor]:
    return {name: layer.method.signs(layer.weight) for name, layer in binary_layers(load_network(run).model)}


@pytest.mark.parametrize(
    ("method", "options"),
    [(method, options) for method in method_names() for options in OPTIONS.get(method, [{}])],
)
def test_a_network_of_the_same_method_goes_on_as_it_was(
    method: str, options: dict[str, object], tmp_path: Path
) -> None:
    """With learning rate 0 the run ends as it started: every parameter, every sign and the accuracy."""
    first, second = tmp_path / "first", tmp_path / "second"
    how = {"model": "tiny", "method": method, "options": options, "limit": 0}
    before = train(small(first, epochs=3, **how))
    after = train(small(second, epochs=1, lr=0, start_from=str(first / "last.pt"), **how))
    assert before.last["top1"] > 70
    assert abs(after.last["top1"] - before.last["top1"]) < 3  # batch norm's running statistics are updated
    old, new = state_of(first / "last.pt")["model"], state_of(second / "last.pt")["model"]
    moving = ("running_mean", "running_var", "num_batches_tracked", "_extra_state", "moment", "rotated_at")
    for name in new:
        if not name.endswith(moving):
            torch.testing.assert_close(new[name], old[name], rtol=0, atol=1e-5)  # xnor-net centres the weights again
    for name, figures in after.last["layers"].items():
        assert figures["flips"] == figures["epoch_flips"] == 0, name
        assert torch.equal(signs_of(first / "last.pt")[name], signs_of(second / "last.pt")[name])


def test_the_rotation_goes_on_turning_after_the_first_epoch(tmp_path: Path) -> None:
    """With ``rotate_until`` the new run counts its own epochs and rotates, although the first run was longer."""
    how = {"model": "tiny", "options": {"rotate_until": 1.0}}
    train(small(tmp_path / "first", epochs=4, **how))
    train(small(tmp_path / "second", epochs=2, lr=0, start_from=str(tmp_path / "first" / "last.pt"), **how))
    old, new = (state_of(tmp_path / run / "last.pt")["model"] for run in ("first", "second"))
    assert int(old["conv2.method.rotated_at"]) == 3
    assert int(new["conv2.method.rotated_at"]) == 1
    assert not torch.equal(old["conv2.method.R1"], new["conv2.method.R1"])
    assert log_of(tmp_path / "second")[0]["layers"]["conv2"]["epoch_flips"] == 0


def test_another_method_starts_anew_from_the_weights(tmp_path: Path) -> None:
    train(small(tmp_path / "first", model="tiny", method="bnn"))
    run = train(small(tmp_path / "second", model="tiny", lr=0, start_from=str(tmp_path / "first" / "last.pt")))
    weight = state_of(tmp_path / "first" / "last.pt")["model"]["conv2.weight"]
    new = state_of(run.out / "last.pt")["model"]
    assert torch.equal(new["conv2.weight"], weight)
    torch.testing.assert_close(new["conv2.method.scale"], weight.abs().mean((1, 2, 3)))
    assert run.last["layers"]["conv2"]["flips"] > 0.3


def test_options_that_do_not_fit_are_said(tmp_path: Path) -> None:
    train(small(tmp_path / "first", model="tiny", epochs=1))
    how = {"model": "tiny", "epochs": 1, "options": {"rotation": "layer"}, "start_from": str(tmp_path / "first")}
    with pytest.warns(
        UserWarning, match=r"the options of 1 layer \(first conv2\) differ from those in .*restart from the weights"
    ):
        train(small(tmp_path / "second", **how))


def test_a_head_of_another_size_starts_anew_and_is_said(tmp_path: Path) -> None:
    train(small(tmp_path / "first", model="tiny", epochs=1))
    weights = state_of(tmp_path / "first" / "last.pt")["model"]
    before = load_network(tmp_path / "first" / "last.pt").model
    three = Tiny(Bricks("rbnn", {}, 3, 1, 8))
    new_head = three.fc.weight.detach().clone()
    taken = take_over(three, before, "first")
    assert taken.head == (
        "first has 10 classes and this network has 3: its last layer 'fc' starts from scratch, all others are kept"
    )
    assert taken.continued == {"conv2"}
    assert torch.equal(three.fc.weight, new_head)
    assert torch.equal(three.conv2.weight, weights["conv2.weight"])
    assert torch.equal(three.bn1.running_mean, weights["bn1.running_mean"])
    with pytest.raises(CheckpointError, match=r"it has no fc\.weight of shape"):  # different features
        take_over(Tiny(Bricks("rbnn", {}, 3, 1, 16)), before, "first")


# Image files for a network with small inputs


class Noting(Progress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def notice(self, sentence: str) -> None:
        self.said.append(sentence)


@pytest.fixture(scope="module")
def picture_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of 48×40."""
    root = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for split, count in (("train", 4), ("val", 2)):
        for name in ("a", "b"):
            (root / split / name).mkdir(parents=True)
            for n in range(count):
                picture = random.integers(0, 256, (48, 40, 3), dtype=np.uint8)
                Image.fromarray(picture).save(root / split / name / f"{n}.png")
    return root


def of_files(out: Path, pictures: Path, **more: Any) -> TrainConfig:
    table = {"model": "resnet20", "data": "image-folder", "data_dir": str(pictures), "workers": 0, "limit": 0}
    return small(out, **table | {"batch_size": 4, "epochs": 1} | more)


def test_a_network_of_small_pictures_takes_files_in_its_own_size(tmp_path: Path, picture_files: Path) -> None:
    watch = Noting()
    train(of_files(tmp_path, picture_files), watch)
    assert watch.said == [
        "images are resized to 32×32, the size that resnet20 is meant for; --image-size chooses another size"
    ]
    assert load_network(tmp_path).contract.image_size == 32
    train(of_files(tmp_path, picture_files, epochs=2, resume=True), again := Noting())
    assert again.said == []


@pytest.mark.parametrize(("more", "side"), [({"image_size": 40}, 40), ({"image_size": 16}, 16)])
def test_the_size_that_the_user_says_is_taken_without_a_word(
    tmp_path: Path, picture_files: Path, more: dict[str, Any], side: int
) -> None:
    train(of_files(tmp_path, picture_files, **more), watch := Noting())
    assert watch.said == []
    assert load_network(tmp_path).contract.image_size == side


def test_a_network_of_large_pictures_takes_them_as_ever(picture_files: Path) -> None:
    dataset = data.load("image-folder", picture_files, "train")
    assert as_the_network_takes_them(dataset, from_table({"model": "resnet18", "data": "image-folder"})) == (
        dataset,
        "",
    )
    digits = data.load("digits", None, "train")
    assert as_the_network_takes_them(digits, from_table({"model": "resnet18"})) == (digits, "")


def test_a_run_over_files_from_before_goes_on_in_its_size(tmp_path: Path, picture_files: Path) -> None:
    """Such a run read image files at 224×224, whatever the network's input size was."""
    train(of_files(tmp_path, picture_files, image_size=40))
    for name in ("last.pt", "best.pt"):  # as if 40 had been that size
        state = torch.load(tmp_path / name, weights_only=True)
        state["config"]["image_size"] = 0
        torch.save(state, tmp_path / name)
    train(of_files(tmp_path, picture_files, epochs=2, resume=True))
    assert load_network(tmp_path / "last.pt").contract.image_size == 40


def test_augmentation_is_switched_off_and_stays_so(tmp_path: Path) -> None:
    train(small(tmp_path / "plain", augment="none", epochs=1))
    train(small(tmp_path / "usual", epochs=1))
    losses = [log_of(tmp_path / name)[0]["loss"] for name in ("plain", "usual")]
    assert losses[0] != losses[1]
    with pytest.raises(CheckpointError, match="was trained with augment = 'none', not augment = 'standard'"):
        train(small(tmp_path / "plain", resume=True))
    train(small(tmp_path / "plain", augment="none", resume=True))
