"""Packed networks that come with rbnn, by name, each with a card that says what it is and how good."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from rbnn.errors import UnknownName
from rbnn.packed.session import Session

FOLDER = Path(__file__).resolve().parents[1] / "pretrained"
"""``NAME.rbnn`` and ``NAME.toml``, its card."""


@dataclass(frozen=True)
class Card:
    """What a network was trained on, by which command, how good it is and where it ends."""

    summary: str
    """One line: network, method, data."""
    data: str
    """Data set that it was trained on and is evaluated on."""
    command: str
    """What repeats the training."""
    epochs: int
    seed: int
    checkpoint_top1: float
    """Accuracy of the trained checkpoint on the test set, in percent."""
    packed_top1: float
    """Accuracy of the packed file on the test set, in percent."""
    speed: str
    """Time for a picture, and on what machine."""
    limits: str
    """What it is not good for."""


def names() -> list[str]:
    """The networks that come with rbnn."""
    return sorted(path.stem for path in FOLDER.glob("*.rbnn"))


def path(name: str) -> Path:
    """The packed file of the network called ``name``."""
    if name not in names():
        raise UnknownName("pretrained network", name, names())
    return FOLDER / f"{name}.rbnn"


def card(name: str) -> Card:
    """The card of the network called ``name``."""
    return Card(**tomllib.loads(path(name).with_suffix(".toml").read_text(encoding="utf-8")))


def load(name: str, threads: int = 1) -> Session:
    """``rbnn.load("resnet20-bireal-cifar10")``: a pretrained network, ready to answer."""
    return Session(path(name), threads)
