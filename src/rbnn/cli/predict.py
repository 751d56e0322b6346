"""`rbnn predict`: classify images with a trained network."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from rbnn.cli._packed import cores
from rbnn.errors import ConfigError
from rbnn.text import visible


@dataclass(frozen=True)
class Predict:
    """Show the most likely classes of each image. Images are resized, cropped and normalised as in the network's
    validation. A packed file needs no torch.

    Example: rbnn predict net.rbnn cat.jpg dog.png --top 3
    """

    net: tyro.conf.Positional[Path]
    """Packed file (.rbnn), name of a pretrained network, run directory (its best epoch) or checkpoint."""
    images: tyro.conf.Positional[tuple[Path, ...]]
    """Image files: JPEG, PNG, WebP, BMP, GIF, TIFF or PPM."""
    top: int = 5
    """Number of classes to show."""
    json: bool = False
    """Print JSON: a list of {"image": …, "top": [{"class": …, "index": …, "probability": …}, …]}."""


def run(options: Predict) -> None:
    """Classify and print."""
    if not options.images:
        raise ConfigError("no picture given: rbnn predict NET IMAGE…")
    if options.top < 1:
        raise ConfigError(f"top is at least 1, got {options.top}")
    from rbnn.importing.opened import load

    with load(options.net, threads=cores()) as session:
        seen = session.predict(options.images)
    answers = [
        {
            "image": str(path),
            "top": [
                {"class": each.name, "index": each.index, "probability": round(each.probability, 6)}
                for each in prediction.top(options.top)
            ],
        }
        for path, prediction in zip(options.images, seen, strict=True)
    ]
    if options.json:
        print(json.dumps(answers, indent=2, allow_nan=False))
    else:
        _print(answers)


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
