"""The arguments of an export besides the model: normalisation, classes, the example."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from user_networks import CHANNELS, HEIGHT, WIDTH, Around

import rbnn
from rbnn.errors import ExportError, InputError, PackError
from rbnn.packed.session import Session

IMAGES = torch.randn(2, CHANNELS, HEIGHT, WIDTH)


def test_none_means_not_given(tmp_path: Path) -> None:
    paths = tmp_path / "without.rbnn", tmp_path / "none.rbnn"
    model, example = Around(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4))), IMAGES
    rbnn.export(model, paths[0], example)
    rbnn.export(model, paths[1], example, mean=None, std=None, classes=None)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with pytest.raises(ExportError, match="mean and std go together: got mean without std"):
        rbnn.export(model, paths[1], example, mean=0.5, std=None)


def test_the_contract_must_fit(tmp_path: Path) -> None:
    model = Around(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)))
    with pytest.raises(ExportError, match="has 4 outputs, got 2 class names"):
        rbnn.export(model, tmp_path / "net.rbnn", IMAGES, classes=["a", "b"])
    with pytest.raises(PackError, match="mean of the input has 2 numbers for 3 channels"):
        rbnn.export(model, tmp_path / "net.rbnn", IMAGES, mean=[0.5, 0.5], std=[0.2])
    with pytest.raises(PackError, match="std of the input must be positive"):
        rbnn.export(model, tmp_path / "net.rbnn", IMAGES, mean=[0.5], std=[0.0])
    for given, said in (({"mean": [0.5]}, "got mean without std"), ({"std": [0.5]}, "got std without mean")):
        with pytest.raises(ExportError, match=f"mean and std go together: {said}"):
            rbnn.export(model, tmp_path / "net.rbnn", IMAGES, **given)
    assert not (tmp_path / "net.rbnn").exists()
    assert not list(tmp_path.iterdir())
    rbnn.export(model, tmp_path / "net.rbnn", IMAGES, [0.5] * 3, [0.25] * 3, list("abcd"))
    session = Session(tmp_path / "net.rbnn")
    assert session.classes == ("a", "b", "c", "d")
    assert session.graph.input.std == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"classes": 10}, "classes must be a list of names, got 10"),
        ({"classes": "abcd"}, "classes must be a list of names, got 'abcd'"),
        (
            {"mean": [[0.5]], "std": [[0.5]]},
            r"mean must be a number, or a list with one number per channel, got \[\[0.5",
        ),
        ({"mean": 0.5, "std": "wide"}, "std must be a number, or a list with one number per channel, got 'wide'"),
    ],
)
def test_arguments_of_other_types_are_named(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    model = Around(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)))
    with pytest.raises(ExportError, match=said):
        rbnn.export(model, tmp_path / "net.rbnn", IMAGES, **given)


def test_statistics_of_bytes_cause_a_warning(tmp_path: Path) -> None:
    model = Around(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4)))
    with pytest.warns(UserWarning, match=r"^mean = \(127\.0,\) is not that of images in \[0, 1\]") as caught:
        rbnn.export(model, tmp_path / "net.rbnn", IMAGES, mean=127.0, std=60.0)
    assert caught[0].filename == __file__


def test_a_shape_in_place_of_an_example_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"must be a torch tensor such as torch\.randn\(1, 3, 32, 32\), got int"):
        rbnn.export(Around(nn.ReLU()), tmp_path / "net.rbnn", (1, 3, 32, 32))  # type: ignore[arg-type]


def test_a_session_says_what_to_do_with_images_in_another_order(tmp_path: Path) -> None:
    rbnn.export(Around(nn.ReLU()), tmp_path / "net.rbnn", IMAGES)
    session, images = Session(tmp_path / "net.rbnn"), IMAGES.numpy()
    with pytest.raises(InputError, match=r": add a batch dimension, images\[None\]$"):
        session(images[0])
    with pytest.raises(InputError, match=r": move the channels, images\.transpose\(0, 3, 1, 2\)$"):
        session(images.transpose(0, 2, 3, 1))
