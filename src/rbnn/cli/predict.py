"""`rbnn predict`: classify images with a trained network."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from rbnn.cli._packed import cores
from rbnn.cli._streams import say
from rbnn.errors import ConfigError, DataError, InputError
from rbnn.text import visible

if TYPE_CHECKING:
    from rbnn.packed.session import Session


@dataclass(frozen=True)
class Predict:
    """Show the most likely classes of each image. Images are resized, cropped and normalised as in the network's
    validation. A packed file needs no torch. A network that returns maps or several tensors writes them to a directory:
    all of them as NumPy arrays, and the most likely class of each pixel of a map as a PNG. If it was exported with free
    sizes, each image keeps its own size, or is resized to the nearest size that the network takes. If an image cannot
    be read, the command still shows the others and ends with exit code 2.

    Example: rbnn predict net.rbnn cat.jpg dog.png --top 3
    """

    net: tyro.conf.Positional[Path]
    """Packed file (.rbnn), name of a pretrained network, run directory (its best epoch) or checkpoint."""
    images: tyro.conf.Positional[tuple[Path, ...]]
    """Image files: JPEG, PNG, WebP, BMP, GIF, TIFF or PPM."""
    top: int = 5
    """Number of classes to show."""
    output: Path | None = None
    """Directory for the outputs of a network that is not a classifier."""
    json: bool = False
    """Print JSON: a list of {"image": …, "top": [{"class": …, "index": …, "probability": …}, …]}, or of {"image": …,
    "answers": {name: shape}, "files": […]}. An image that cannot be read is {"image": …, "error": …}."""


def run(options: Predict) -> None:
    """Classify and print."""
    if not options.images:
        raise ConfigError("no images given: run `rbnn predict NET IMAGE…`")
    if options.top < 1:
        raise ConfigError(f"--top must be at least 1, got {options.top}")
    from rbnn.importing.opened import load
    from rbnn.packed.prediction import classifies

    with load(options.net, threads=cores()) as session:
        found = _classified(options, session) if classifies(session.graph) else _written(options, session)
    failed = [each["error"] for each in found if "error" in each]
    if options.json:
        print(json.dumps(found, indent=2, allow_nan=False))
    else:
        _print([each for each in found if "error" not in each])
    for error in failed:
        say(f"rbnn: {visible(error)}")
    if failed:
        raise SystemExit(2)


def _classified(options: Predict, session: "Session") -> list[dict[str, Any]]:
    from rbnn.packed.prediction import Prediction, attempts

    if options.output is not None:
        raise ConfigError(f"{options.net} is a classifier and writes no files: leave out --output {options.output}")
    found: list[dict[str, Any]] = []
    for path, seen in zip(
        options.images, attempts(session.graph, session, options.images, str(options.net)), strict=True
    ):
        if isinstance(seen, Prediction):
            top = [
                {"class": each.name, "index": each.index, "probability": round(each.probability, 6)}
                for each in seen.top(options.top)
            ]
            found.append({"image": str(path), "top": top})
        else:
            found.append({"image": str(path), "error": str(seen)})
    return found


def _written(options: Predict, session: "Session") -> list[dict[str, Any]]:
    """Write the outputs of a network with maps or several tensors to files."""
    from rbnn.packed.graph import named, unused
    from rbnn.packed.maps import save
    from rbnn.packed.prediction import values_of

    if options.output is None:
        raise ConfigError(
            f"{options.net} returns maps or several tensors, not classes: add --output DIR to write them to files"
        )
    options.output.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    stems: list[str] = []
    for number, path in enumerate(options.images):
        try:
            answer = session(values_of(session.graph, path, str(options.net))[None])
        except DataError as error:
            found.append({"image": str(path), "error": str(error)})
            continue
        except InputError as error:  # such as a size that the network does not take
            found.append({"image": str(path), "error": f"{path}: {error}"})
            continue
        same = sum(other.stem == path.stem for other in options.images) > 1
        stems.append(unused(f"{path.stem}.{number}" if same else path.stem, stems))
        files = save(answer, options.output, stems[-1])
        shapes = {name: list(array.shape[1:]) for name, array in named(answer)}
        found.append({"image": str(path), "answers": shapes, "files": list(map(str, files))})
    return found


def _print(found: list[dict[str, Any]]) -> None:
    if found and "top" in found[0]:
        _print_classes(found)
        return
    for each in found:
        print(f"{visible(each['image'])}: {', '.join(map(visible, each['files']))}")


def _print_classes(answers: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("image", "class")
    table.add_column("probability", justify="right")
    for answer in answers:
        for rank, found in enumerate(answer["top"]):
            words = ("" if rank else answer["image"]), found["class"]
            table.add_row(*(escape(visible(word)) for word in words), f"{100 * found['probability']:.1f} %")
        if len(answer["top"]) > 1:
            table.add_section()
    Console(highlight=False).print(table)
