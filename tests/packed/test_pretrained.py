"""The pretrained networks: each has a card, loads, and has the accuracy that the card states."""

from pathlib import Path

import numpy as np
import pytest

import rbnn
from rbnn import data
from rbnn.data import cifar10, preprocess
from rbnn.errors import CheckpointError
from rbnn.packed import pretrained

LARGEST = 2_000_000
DOCUMENT = Path(__file__).parents[2] / "docs" / "pretrained.md"


@pytest.mark.parametrize("name", pretrained.names())
def test_each_has_a_card_and_is_small(name: str) -> None:
    card = pretrained.card(name)
    assert card.data in data.names()
    assert name.endswith(card.data)
    assert card.command.startswith("rbnn train ")
    assert abs(card.checkpoint_top1 - card.packed_top1) <= 0.1
    assert pretrained.path(name).stat().st_size < LARGEST


@pytest.mark.parametrize("name", pretrained.names())
def test_the_document_says_what_the_card_says(name: str) -> None:
    card = pretrained.card(name)
    section = DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for said in (
        f"`{card.command}`",
        f"{card.epochs} epochs, seed {card.seed};",
        f"{card.packed_top1:.2f} % top-1",
        f"{pretrained.path(name).stat().st_size:,} bytes",
    ):
        assert said in section, said


def test_colour_pictures_get_the_ten_classes() -> None:
    network = rbnn.load("resnet20-bireal-cifar10")
    answers = network(np.zeros((2, 3, 32, 32), np.float32))
    assert answers.shape == (2, 10)
    assert np.isfinite(answers).all()
    assert network.graph.input.classes == cifar10.CIFAR10.classes


def test_no_card_without_a_network() -> None:
    assert {path.stem for path in pretrained.FOLDER.glob("*.toml")} == set(pretrained.names())


def test_digits_are_read_as_well_as_the_card_says() -> None:
    network = rbnn.load("resnet20-bireal-digits", threads=2)
    tests = data.load("digits", pretrained.FOLDER, "test")
    images = preprocess.normalise(tests.images, network.graph.input.mean, network.graph.input.std)
    right = network(images).argmax(1) == np.asarray(tests.labels)
    assert 100 * right.mean() == pytest.approx(pretrained.card("resnet20-bireal-digits").packed_top1, abs=0.006)


def test_an_unknown_name_says_which_are_known() -> None:
    with pytest.raises(CheckpointError, match=r"did you mean resnet20-bireal-cifar10\? `rbnn models --pretrained`"):
        rbnn.load("resnet20-bireal-cifar1")
