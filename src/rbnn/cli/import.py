"""`rbnn import`: convert a checkpoint that the paper's authors published."""
# ruff: noqa: N999  (a file is named after its command)

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rbnn.files import check_place


@dataclass(frozen=True)
class Import:
    """Convert a checkpoint of the paper's authors into an rbnn checkpoint, for eval, info, report, export and predict.
    Nothing in the file is executed.

    Example: rbnn import model_best.pth.tar -o published.pt
    """

    checkpoint: tyro.conf.Positional[Path]
    """The published file: ResNet-18, ResNet-20 or VGG-small for CIFAR, ResNet-18 or ResNet-34 for ImageNet."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """The checkpoint to write."""
    model: str = ""
    """Name of the network (`rbnn models`), if the file does not contain it."""
    data_dir: Path | None = None
    """Image folder with train/<class>/ and val/<class>/, whose folders name the classes of an ImageNet network."""
    json: bool = False
    """Print JSON: {"model": …, "classes": …, "path": …}."""


def run(options: Import) -> None:
    """Import and print what it is."""
    from rbnn import data
    from rbnn.importing.authors_release import import_checkpoint

    check_place(options.output)
    classes: tuple[str, ...] = ()
    if options.data_dir is not None:
        classes = data.load("image-folder", options.data_dir, "test").classes
    found = import_checkpoint(options.checkpoint, options.model, classes)
    found.save(options.output)
    count = len(found.contract.classes)
    if options.json:
        print(json.dumps({"model": found.config.model, "classes": count, "path": str(options.output)}))
        return
    print(f"{options.checkpoint} is a {found.config.model} for {count} classes; it was converted to {options.output}")
    if found.contract.classes[:2] == ("0", "1"):
        print("Its classes are named by numbers; --data-dir takes their names from an image folder.")
