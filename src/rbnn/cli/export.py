"""`rbnn export`: pack a trained network into a file of bits, and compare it with torch layer by layer."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from rbnn.cli._packed import refuse_packed
from rbnn.files import check_place

if TYPE_CHECKING:
    from torch import Tensor

    from rbnn.training.checkpoint import Network


@dataclass(frozen=True)
class Export:
    """Pack a trained network: signs become bits, scales and batch norms are folded.

    Before the file is written, the packed network is compared with torch on test images, operation by operation. A
    difference that rounding does not explain is an error that names the layer, and nothing is written.

    Example: rbnn export runs/first -o first.rbnn
    """

    net: tyro.conf.Positional[Path]
    """Run directory (its best epoch) or checkpoint."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """The file to write."""
    data_dir: Path = Path("data")
    """Directory of the data sets. The comparison uses test images from it, or random images if there are none."""
    images: int = 4
    """Number of images to compare on."""
    stem: Literal["float32", "int8"] = "float32"
    """int8: the first convolution takes images as bytes, with int8 weights."""
    float_layers: Literal["float32", "int8"] = "float32"
    """int8: the other float layers get int8 weights, with one scale per filter."""
    json: bool = False
    """Print JSON with the keys path, bytes, pictures (test or random), images, binary_layers, float_layers, signs,
    near_ties (signs that differ), images_with_near_ties, largest_difference, answer_difference,
    changed_by_int8 (pictures) and layers (name, kind, difference, signs, near_ties)."""


def run(options: Export) -> None:
    """Export and say what came of it."""
    import rbnn
    from rbnn.errors import ConfigError
    from rbnn.training.checkpoint import load_network

    if not 1 <= options.images <= 100:
        raise ConfigError(f"--images takes 1 to 100, got {options.images}")
    refuse_packed(options.net, "export takes a run directory or checkpoint")
    check_place(options.output)  # before anything is said about pictures
    network = load_network(options.net)
    pictures, images = _pictures(options, network)
    contract = network.contract
    report = rbnn.export(
        network.model, options.output, images, contract.mean, contract.std, contract.classes,
        stem=options.stem, float_layers=options.float_layers,
    )  # fmt: skip
    if options.json:
        print(json.dumps(asdict(report) | {"path": str(report.path), "pictures": pictures}))
    else:
        print(report)


def _pictures(options: Export, network: "Network") -> "tuple[str, Tensor]":
    """Test pictures of the network's own data set; random ones where its files are not at hand."""
    import numpy as np
    import torch

    from rbnn import data
    from rbnn.data.preprocess import normalise
    from rbnn.errors import DataError
    from rbnn.training.batches import Batches

    contract, count = network.contract, options.images
    try:
        tests = data.load(network.config.data, options.data_dir, "test")
    except DataError:
        print(
            f"no test pictures of {network.config.data} under {options.data_dir}: comparing on random ones",
            file=sys.stderr,
        )
        shape = count, contract.image_size, contract.image_size, contract.channels
        noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        return "random", torch.from_numpy(normalise(noise, contract.mean, contract.std))
    batches = Batches(tests, count, train=False, seed=0, image_size=contract.image_size, limit=count)
    images, _ = next(iter(batches.epoch(0)))
    return "test", images
