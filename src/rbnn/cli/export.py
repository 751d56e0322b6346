"""`rbnn export`: pack a trained network into a file of bits, or write it as ONNX, after comparing it layer by layer."""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from rbnn.cli._packed import refuse_packed
from rbnn.cli._test_set import load_test_set
from rbnn.errors import ConfigError
from rbnn.files import check_place
from rbnn.packed.find import find_net, is_packed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from rbnn.packed.export_report import ExportReport
    from rbnn.packed.graph import Graph
    from rbnn.training.checkpoint import Network


@dataclass(frozen=True)
class Export:
    """Pack a trained network: signs become bits, scales and batch norms are folded. Or write it as ONNX.

    Before the file is written, the packed network is compared with torch on test images, operation by operation. A
    difference that rounding does not explain is an error that names the layer, and nothing is written. ONNX files are
    run by ONNX Runtime and compared with the packed network in the same way.

    Example: rbnn export runs/first -o first.rbnn --onnx first.onnx
    """

    net: tyro.conf.Positional[Path]
    """Run directory (its best epoch) or checkpoint; without -o also a packed file or a pretrained network's name."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The packed file to write."""
    onnx: Path | None = None
    """The ONNX file to write: standard operators, weights as bits."""
    qonnx: Path | None = None
    """The QONNX file to write: signs by BipolarQuant, for FINN and hls4ml."""
    data_dir: Path | None = None
    """Directory of the data sets. The default is the directory that the run was trained with, otherwise ./data. The
    comparison uses test images from it, or random images if there are none."""
    images: int = 4
    """Number of images to compare on."""
    stem: Literal["float32", "int8"] = "float32"
    """int8: the first convolution takes images as bytes, with int8 weights."""
    float_layers: Literal["float32", "int8"] = "float32"
    """int8: the other float layers get int8 weights, with one scale per filter."""
    free_size: bool = False
    """The packed file takes images of other heights and widths too, if the network is fully convolutional."""
    json: bool = False
    """Print JSON with the keys path, bytes, pictures (test or random), images, binary_layers, float_layers, signs,
    near_ties (signs that differ), images_with_near_ties, largest_difference, answer_difference,
    changed_by_int8 (images), beside (what it was compared with) and layers (name, kind, difference, signs,
    near_ties). The keys onnx and qonnx hold the same for those files."""


def run(options: Export) -> None:
    """Export and print the report."""
    if not 1 <= options.images <= 100:
        raise ConfigError(f"--images must be 1 to 100, got {options.images}")
    _check_places(options)
    path = find_net(options.net)
    if options.output is None and is_packed(path):
        pictures, reports = "random", _from_packed(options, path)
    else:
        pictures, reports = _from_checkpoint(options)
    if options.json:
        said = {name: asdict(report) | {"path": str(report.path)} for name, report in reports.items()}
        print(json.dumps(said.pop("packed", {}) | {"pictures": pictures} | said))
    else:
        print("\n".join(map(str, reports.values())))


def _check_places(options: Export) -> None:
    """Runs before anything is printed about images."""
    places = [each for each in (options.output, options.onnx, options.qonnx) if each is not None]
    if not places:
        raise ConfigError("no output file given: add -o FILE, --onnx FILE or --qonnx FILE")
    if len({os.path.realpath(each) for each in places}) < len(places):
        raise ConfigError("-o, --onnx and --qonnx name the same file: give each its own name")
    if options.free_size and options.output is None:
        raise ConfigError("--free-size applies to the packed file: add -o FILE")
    if options.output is not None:
        refuse_packed(options.net, "-o takes a run directory or checkpoint; --onnx and --qonnx also take a packed file")
    if len(places) > (options.output is not None):
        from rbnn.translating.onnx_file import need_packages

        need_packages()
    for each in places:
        check_place(each)


def _from_packed(options: Export, path: Path) -> "dict[str, ExportReport]":
    from rbnn.packed import file as packfile
    from rbnn.translating.onnx_file import noise

    if "int8" in (options.stem, options.float_layers):
        raise ConfigError(
            f"{options.net} is already packed: --stem and --float-layers apply only to a run directory or checkpoint"
        )
    graph = packfile.read(path)
    return _write_onnx(options, graph, noise(graph, options.images))


def _from_checkpoint(options: Export) -> "tuple[str, dict[str, ExportReport]]":
    """Which images were used for the comparison, and the report of each file."""
    import rbnn
    from rbnn.exporting import packed
    from rbnn.packed import file as packfile
    from rbnn.training.checkpoint import load_network

    network = load_network(options.net)
    pictures, images = _pictures(options, network)
    contract = network.contract
    given = images, contract.mean, contract.std, contract.classes
    stem, float_layers = options.stem, options.float_layers
    if options.output is None:
        graph = packed(network.model, *given, stem=stem, float_layers=float_layers).graph
        return pictures, _write_onnx(options, graph, images.numpy())
    report = rbnn.export(
        network.model, options.output, *given, stem=stem, float_layers=float_layers, free_size=options.free_size
    )
    return pictures, {"packed": report} | _write_onnx(options, packfile.read(options.output), images.numpy())


def _write_onnx(options: Export, graph: "Graph", images: "NDArray[np.float32]") -> "dict[str, ExportReport]":
    from rbnn.translating import onnx_file

    places = {"onnx": options.onnx, "qonnx": options.qonnx}
    return {
        form: onnx_file.write(graph, path, images, qonnx=form == "qonnx")
        for form, path in places.items()
        if path is not None
    }


def _pictures(options: Export, network: "Network") -> "tuple[str, Tensor]":
    """Test images from the network's own data set, or random images if its files are not available."""
    import numpy as np
    import torch

    from rbnn.data.preprocess import normalise
    from rbnn.errors import DataError
    from rbnn.training.batches import Batches

    contract, count = network.contract, options.images
    try:
        tests = load_test_set(network.config.data, options.data_dir, network.config)
    except DataError as error:
        print(f"comparing on random images: {error}", file=sys.stderr)
        shape = count, contract.image_size, contract.image_size, contract.channels
        noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        return "random", torch.from_numpy(normalise(noise, contract.mean, contract.std))
    batches = Batches(tests, count, train=False, seed=0, image_size=contract.image_size, limit=count)
    images, _ = next(iter(batches.epoch(0)))
    return "test", images
