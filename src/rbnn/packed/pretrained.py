"""Packed networks that come with rbnn, by name, each with a card that describes it and its accuracy."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rbnn.errors import UnknownName

FOLDER = Path(__file__).resolve().parents[1] / "pretrained"
"""``NAME.rbnn``; its card ``NAME.toml``; and ``NAME.norms``, its batch statistics, for further training."""


@dataclass(frozen=True)
class Card:
    """What a network was trained on, with which command, its accuracy and its limits."""

    summary: str
    """One line: network, method, data."""
    model: str
    """Network, as `rbnn models` names it."""
    method: str
    """Binarization method."""
    options: dict[str, Any]
    """Options of the method."""
    data: str
    """Data set that it was trained on and is evaluated on."""
    command: str
    """The command that repeats the training."""
    epochs: int
    seed: int
    checkpoint_top1: float
    """Accuracy of the trained checkpoint on the test set, in percent."""
    packed_top1: float
    """Accuracy of the packed file on the test set, in percent."""
    speed: str
    """Time per image, and the machine."""
    limits: str
    """What it is not good for."""
    activation: str = "hardtanh"
    """What follows each sum of branch and shortcut."""
    shortcut: str = "own"
    """The shortcut where the size changes; ``own`` is that of the published network."""
    width: float = 1.0
    """Its channels as a multiple of the published network's."""

    @property
    def parts(self) -> dict[str, Any]:
        """The arguments of ``create_model`` for the parts that can be chosen."""
        return {"activation": self.activation, "shortcut": self.shortcut, "width": self.width}


def names() -> list[str]:
    """The networks that come with rbnn."""
    return sorted(path.stem for path in FOLDER.glob("*.rbnn"))


def path(name: str) -> Path:
    """The packed file of the network ``name``."""
    if name not in names():
        raise UnknownName("pretrained network", name, names())
    return FOLDER / f"{name}.rbnn"


def norms(name: str) -> Path:
    """The file with the mean and variance of the inputs of each batch norm on the training images: safetensors with
    `mean` and `var`, all norms concatenated."""
    return path(name).with_suffix(".norms")


def card(name: str) -> Card:
    """The card of the network ``name``."""
    return Card(**tomllib.loads(path(name).with_suffix(".toml").read_text(encoding="utf-8")))
