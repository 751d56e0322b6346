"""`rbnn.export_onnx`: a packed network as an ONNX file, checked and compared before it is written."""

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import ExportError
from rbnn.files import check_export_place, write_whole
from rbnn.packed.export_report import ExportReport
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session

if TYPE_CHECKING:
    from rbnn.translating.onnx_model import OnnxNetwork

PICTURES = 4
"""The number of images to compare on, if none are given."""


def export_onnx(net: "str | Path | Session", path: str | Path, *, qonnx: bool = False) -> ExportReport:
    """Write a trained network as an ONNX file and return a report of the comparison.

    ``net`` is the name of a pretrained network, a packed file (.rbnn), a run directory, a checkpoint or a `Session`.
    The input of the file is ``image``, normalised images (N, C, H, W) with any N, and its output is ``answer``.  It has
    standard operators of opset 18, and the signs of weights as one bit each.  Several outputs have the names that the
    network gives them, or ``answer.0``, ``answer.1``, … for a tuple.  With ``qonnx``, signs are QONNX's
    `BipolarQuant`, which FINN and hls4ml read.  What `Session` knows about images and classes is in the file's
    metadata.

    Before anything is written, onnx checks the model, and ONNX Runtime runs it for a comparison with the packed
    network, operation by operation.  A difference that rounding does not explain raises an ExportError that names the
    layer.
    """
    from rbnn.importing.opened import load

    if not isinstance(net, str | Path | Session):
        raise ExportError(
            f"export_onnx takes a packed file, the name of a network, a run or a Session, got {type(net).__name__}: "
            "pack a torch model with rbnn.export first"
        )
    need_packages()
    check_export_place(Path(path))
    graph = (net if isinstance(net, Session) else load(net)).graph
    return write(graph, path, noise(graph, PICTURES), qonnx=qonnx)


def need_packages() -> None:
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"writing ONNX files needs {' and '.join(missing)}: pip install 'rbnn[onnx]'", name=missing[0]
        )


def write(graph: Graph, path: str | Path, images: NDArray[np.float32], *, qonnx: bool = False) -> ExportReport:
    """Write the graph as an ONNX file, after comparing it on ``images`` (N, C, H, W)."""
    import onnx

    from rbnn.translating.onnx_check import compare, standard
    from rbnn.translating.onnx_model import to_onnx

    graph.only_input("ONNX files are written for one")
    network = to_onnx(graph, qonnx=qonnx)
    describe(network, graph)
    try:
        onnx.checker.check_model(network.model)
        onnx.checker.check_model(standard(network.model), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as reason:
        raise ExportError(f"onnx does not accept the model: {str(reason)[:300]}") from None
    comparison = compare(graph, network, images)
    data = network.model.SerializeToString()
    write_whole(Path(path), lambda file: file.write(data))
    return ExportReport.of(Path(path), graph, comparison, None, beside="the packed network")


def describe(network: "OnnxNetwork", graph: Graph) -> None:
    """Store what the packed network knows about images and outputs as metadata, in JSON."""
    from onnx import helper

    import rbnn
    from rbnn.data.preprocess import shorter_side
    from rbnn.packed.prediction import classifies

    network.model.producer_version = rbnn.__version__
    height, width, channels = graph.buffers[graph.input.buffer].shape
    given: dict[str, Any] = {"channels": channels, "height": height, "width": width}
    if graph.input.mean and graph.input.std:
        given |= {"mean": list(graph.input.mean), "std": list(graph.input.std)}
        if height == width and channels in (1, 3):
            given["colours"] = "RGB" if channels == 3 else "L"
            scaled = shorter_side(height, margin=classifies(graph))
            given |= {"resize_shorter_side": scaled, "centre_crop": height}
    known: dict[str, Any] = {"input": given, "classes": graph.input.classes}
    if not isinstance(network.answer, str):
        known["answer"] = network.answer
    helper.set_model_props(network.model, {f"rbnn.{key}": json.dumps(value) for key, value in known.items()})


def noise(graph: Graph, count: int) -> NDArray[np.float32]:
    """Random images of the network's input size."""
    from rbnn.data.preprocess import normalise

    height, width, channels = graph.buffers[graph.input.buffer].shape
    random = np.random.default_rng(0)
    mean, std = graph.input.mean, graph.input.std
    if not (mean and std):
        return random.normal(size=(count, channels, height, width)).astype(np.float32)
    return normalise(random.integers(0, 256, (count, height, width, channels), np.uint8), mean, std)
