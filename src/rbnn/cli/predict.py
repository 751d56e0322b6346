"""`rbnn predict`: what a network sees in pictures."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from rbnn.cli._packed import cores, normalisation, picture_side
from rbnn.data import preprocess
from rbnn.errors import ConfigError
from rbnn.packed.find import find_net, is_packed
from rbnn.text import visible

AT_ONCE = 64
"""Pictures that are in memory as floats at the same time, where they are not large."""


@dataclass(frozen=True)
class Predict:
    """The likeliest classes of each picture.  Pictures are resized, cut and normalised as in the network's validation.
    A packed file needs no torch.

    Example: rbnn predict net.rbnn cat.jpg dog.png --top 3
    """

    net: tyro.conf.Positional[Path]
    """Packed file (.rbnn), pretrained network by name, run directory (its best epoch) or checkpoint."""
    images: tyro.conf.Positional[tuple[Path, ...]]
    """Picture files: JPEG, PNG, WebP, BMP, GIF, TIFF or PPM."""
    top: int = 5
    """How many classes to name."""
    json: bool = False
    """Print JSON: a list of {"image": …, "top": [{"class": …, "index": …, "probability": …}, …]}."""


@dataclass(frozen=True)
class Classifier:
    """A network with all that lies between a picture file and the name of a class."""

    side: int
    channels: int
    mean: Sequence[float]
    std: Sequence[float]
    classes: Sequence[str]
    """Empty where the file names none."""
    logits: Callable[[NDArray[np.float32]], NDArray[np.float32]]

    def probabilities(self, paths: Sequence[Path]) -> NDArray[np.float64]:
        """(pictures, classes)"""
        parts = []
        count = preprocess.at_once(AT_ONCE, self.side, self.channels)
        for first in range(0, len(paths), count):
            pictures = [preprocess.picture(path, self.side, self.channels) for path in paths[first : first + count]]
            logits = self.logits(preprocess.normalise(np.stack(pictures), self.mean, self.std)).astype(np.float64)
            weights = np.exp(logits - logits.max(1, keepdims=True))
            parts.append(weights / weights.sum(1, keepdims=True))
        return np.concatenate(parts)


def run(options: Predict) -> None:
    """Classify and print."""
    if not options.images:
        raise ConfigError("no picture given: rbnn predict NET IMAGE…")
    if options.top < 1:
        raise ConfigError(f"top is at least 1, got {options.top}")
    net = find_net(options.net)
    classifier = _packed(net) if is_packed(net) else _trained(net)
    answers = []
    for path, row in zip(options.images, classifier.probabilities(options.images), strict=True):
        order = np.argsort(-row, kind="stable")[: options.top]
        names = [classifier.classes[i] if classifier.classes else f"class {i}" for i in order]
        answers.append(
            {
                "image": str(path),
                "top": [
                    {"class": name, "index": int(i), "probability": round(float(row[i]), 6)}
                    for name, i in zip(names, order, strict=True)
                ],
            }
        )
    if options.json:
        print(json.dumps(answers, indent=2))
    else:
        _print(answers)


def _packed(path: Path) -> Classifier:
    from rbnn.packed.session import Session

    session = Session(path, threads=cores())
    graph = session.graph
    mean, std = normalisation(path, graph)
    return Classifier(picture_side(path, graph), session.input_shape[0], mean, std, session.classes, session)


def _trained(path: Path) -> Classifier:
    import torch

    from rbnn.training.checkpoint import load_network

    network = load_network(path)
    contract, model = network.contract, network.model.eval()

    def logits(images: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return np.asarray(model(torch.from_numpy(images)).numpy())

    return Classifier(
        contract.image_size, contract.channels, contract.mean, contract.std, contract.classes, logits
    )  # fmt: skip


def _print(answers: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("picture", "class")
    table.add_column("probability", justify="right")
    for answer in answers:
        for rank, found in enumerate(answer["top"]):
            words = ("" if rank else answer["image"]), found["class"]
            table.add_row(*(escape(visible(word)) for word in words), f"{100 * found['probability']:.1f} %")
        table.add_section()
    Console(highlight=False).print(table)
