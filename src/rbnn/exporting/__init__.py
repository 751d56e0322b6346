"""From torch to a packed file: trace, lower, fuse, check against torch, write."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from rbnn import packfile
from rbnn.errors import ExportError
from rbnn.exporting.check import compare
from rbnn.exporting.draft import Draft
from rbnn.exporting.fuse import fuse
from rbnn.exporting.lower import lower
from rbnn.exporting.report import ExportReport
from rbnn.exporting.thresholds import use_thresholds
from rbnn.exporting.trace import trace
from rbnn.graph import Input

__all__ = ["ExportReport", "export"]


def export(
    model: nn.Module,
    path: str | Path,
    example_input: Tensor,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    classes: Sequence[str] = (),
) -> ExportReport:
    """Writes ``model`` as a packed network and says what came of it.

    The packed network is compared with torch on ``example_input``, operation by operation, before anything is written:
    sums of signs must be the same, a sign may differ only where its value nearly is the threshold.  Any other
    difference, and any operation that the format lacks, is an ExportError that names the layer; then ``path`` is left
    as it was.  The model is not touched.

    example_input      normalised pictures (N, C, H, W), best real ones; their height and width become the network's
    mean, std          how pictures in [0, 1] are normalised, per channel, for those who use the file
    classes            names of the classes
    """
    images = _images(example_input)
    draft, answers = pack(model, images)
    if classes and len(classes) != answers[0].numel():
        raise ExportError(f"the network gives {answers[0].numel()} answers, but {len(classes)} class names came")
    contract = Input(draft.input, tuple(map(float, mean)), tuple(map(float, std)), tuple(map(str, classes)))
    graph = draft.graph(contract)
    graph.check()
    comparison = compare(graph, draft.meanings, images, answers)
    packfile.write(graph, path)
    return ExportReport.of(Path(path), graph, comparison)


def pack(model: nn.Module, images: Tensor) -> tuple[Draft, Tensor]:
    """The network as it will run, not compared with anything yet, and torch's answers to ``images``."""
    traced = trace(model, images)
    draft = lower(traced, images)
    fuse(draft)
    use_thresholds(draft)
    return draft, traced.values[traced.nodes[-1]]


def _images(example: Tensor) -> Tensor:
    """At least two different pictures: with one alone, a network that mixes pictures would not be noticed."""
    if not isinstance(example, Tensor) or example.dim() != 4 or 0 in example.shape:
        shape = tuple(example.shape) if isinstance(example, Tensor) else type(example).__name__
        raise ExportError(f"example_input must be pictures (N, C, H, W), got {shape}")
    if not bool(torch.isfinite(example).all()):
        raise ExportError("example_input holds NaN or infinite values")
    images = example.detach().to("cpu", torch.float32)
    return images.contiguous() if len(images) > 1 else torch.cat([images, images.flip(3) * 0.75])
