"""From torch to a packed file: trace, lower, fuse, compare with torch, write."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.errors import ExportError
from rbnn.exporting.check import compare
from rbnn.exporting.draft import Draft
from rbnn.exporting.examples import Example, Examples
from rbnn.exporting.free_size import freed
from rbnn.exporting.fuse import fuse
from rbnn.exporting.int8 import Rounding
from rbnn.exporting.lower import lower
from rbnn.exporting.thresholds import use_thresholds
from rbnn.exporting.trace import Traced, trace, values_in
from rbnn.files import check_export_place
from rbnn.packed import file as packfile
from rbnn.packed.comparison import Comparison
from rbnn.packed.export_report import ExportReport
from rbnn.packed.graph import Graph, Input, answer_buffers
from rbnn.schedule import changed_behind_the_schedule
from rbnn.text import plural, quoted

__all__ = ["ExportReport", "export"]


def export(
    model: nn.Module,
    path: str | Path,
    example_input: Example,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    classes: Sequence[str] | None = None,
    *,
    stem: str = "float32",
    float_layers: str = "float32",
    free_size: bool = False,
) -> ExportReport:
    """Pack ``model`` into a file and return a report of the comparison with torch.

    Before the file is written, the packed network is compared with torch on ``example_input``, operation by operation.
    Sums of signs must be equal, and a sign may differ only if its value is within rounding of the threshold.  Any
    other difference, and any operation that the format does not support, raises an ExportError that names the layer;
    ``path`` is then not written.  The model is not changed.

    example_input      normalised images (N, C, H, W), preferably real ones; their height and width become the network's
                       input size.  Or signals (N, C, L), or vectors (N, C).  For a network with several arguments, a
                       tuple of such tensors, or a dictionary by name; the names go into the file
    mean, std          normalisation of images in [0, 1], stored in the file: one number per channel, or a single number
                       for all channels
    classes            names of the classes; for a network that returns a map, names of its channels
    stem               ``int8``: the first convolution computes on images of bytes; needs mean and std.  The example is
                       rounded to bytes
    float_layers       ``int8``: the other float layers get int8 weights, with one scale per filter.  Both are compared
                       with a torch network whose weights are rounded in the same way
    free_size          for a fully convolutional network: the file also takes images of other heights and widths, for
                       which torch runs the same operations.  They vary in single pixels, or in steps of the network's
                       stride.  The network is traced and compared at two more sizes
    """
    if not isinstance(model, nn.Module):
        raise ExportError(f"export takes the model, then the path of the file, got {type(model).__name__} as the model")
    if not isinstance(path, str | Path):
        raise ExportError(f"export takes the model, then the path of the file, got {type(path).__name__} as the path")
    check_export_place(Path(path))  # fails before the long comparison
    if changed := changed_behind_the_schedule(model):
        warnings.warn(
            f"the weight of {changed[0]!r} ({plural(len(changed), 'binary layer')}) was written after the last step of "
            "the optimiser, so its scale and rotation belong to the old weight: call restart_method() of the layer",
            stacklevel=2,
        )
    exported = packed(
        model, example_input, mean, std, classes, stem=stem, float_layers=float_layers, free_size=free_size
    )
    packfile.write(exported.graph, path)
    changed_by_int8 = exported.changed if "int8" in (stem, float_layers) else None
    return ExportReport.of(Path(path), exported.graph, exported.comparison, changed_by_int8)


@dataclass(frozen=True)
class Packed:
    """A packed network in memory."""

    graph: Graph
    comparison: Comparison
    """The comparison with torch, layer by layer."""
    changed: int
    """The number of example images whose largest output changed when the weights were rounded."""


def packed(
    model: nn.Module,
    example_input: Example,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    classes: Sequence[str] | None = None,
    *,
    stem: str = "float32",
    float_layers: str = "float32",
    free_size: bool = False,
) -> Packed:
    """Do everything that ``export`` does, except writing the file."""
    mean, std = _numbers("mean", mean), _numbers("std", std)
    if isinstance(classes, str) or not isinstance(classes, Iterable | None):
        raise ExportError(f"classes must be a list of names, got {quoted(classes)}")
    classes = [] if classes is None else list(classes)
    if bool(len(mean)) != bool(len(std)):
        here, missing = ("mean", "std") if len(mean) else ("std", "mean")
        raise ExportError(f"mean and std go together: got {here} without {missing}")
    examples = Examples.of(model, example_input)
    if any(abs(each) > 1 for each in mean) and examples.first.dim() == 4:
        warnings.warn(
            f"mean = {tuple(mean)} is not that of images in [0, 1]: sessions divide bytes by 255 before they normalise "
            "them, so divide mean and std by 255 too",
            stacklevel=3,
        )
    if examples.stored and (free_size or stem == "int8"):
        raise ExportError(f"{'free_size' if free_size else 'an int8 stem'} is for a network with one input")
    rounding = Rounding.of(stem, float_layers, mean, std, examples.first.shape[1])
    examples = examples.with_first(rounding.pictures(examples.first))
    draft, traced = pack(model, examples, rounding)
    answers = traced.answers
    buffers = answer_buffers(draft.answer)
    count = draft.buffers[buffers[0]].shape[2] if len(buffers) == 1 else 0  # for a map: per pixel
    if classes and len(classes) != count:
        names = plural(len(classes), "class name")
        if not count:
            raise ExportError(f"the network has {len(answers)} output tensors, got {names}: leave out classes")
        raise ExportError(f"the network has {plural(count, 'output')}, got {names}")
    contract = Input(
        draft.input, tuple(map(float, mean)), tuple(map(float, std)), tuple(map(str, classes)),
        {name: name for name in draft.names},
    )  # fmt: skip
    graph = draft.graph(contract)
    graph.check()
    comparison = compare(graph, draft.torch_values, examples.tensors, answers)
    if free_size:
        graph = freed(graph, draft.factors, examples.first, lambda others: _at(model, others, rounding, contract))
    before = values_in(traced.unprepared, Tensor)
    other = [_largest_answer(first) != _largest_answer(then) for first, then in zip(before, answers, strict=True)]
    changed = int(torch.stack(other).any(0).sum())
    return Packed(graph, comparison, changed)


def _numbers(name: str, given: Any) -> tuple[float, ...]:
    several = () if given is None else (given,) if isinstance(given, int | float) else given
    try:
        return tuple(map(float, several))
    except (TypeError, ValueError):
        wanted = "a number, or a list with one number per channel"
        raise ExportError(f"{name} must be {wanted}, got {quoted(given)}") from None


def _at(model: nn.Module, images: Tensor, rounding: Rounding, contract: Input) -> Graph:
    """The network for images of another size, compared with torch."""
    pictures = rounding.pictures(images)
    draft, traced = pack(model, Examples.of(model, pictures), rounding)
    graph = draft.graph(contract)
    graph.check()
    compare(graph, draft.torch_values, pictures, traced.answers)
    return graph


def pack(model: nn.Module, images: Tensor | Examples, rounding: Rounding) -> tuple[Draft, Traced]:
    """The network as it will run, not yet compared, and what torch computed for ``images``."""
    traced = trace(model, images, rounding.round_weights if rounding.rounds else None)
    if not all(map(_finite, traced.answers)) and all(map(_finite, model.parameters())):
        raise ExportError("the network's outputs for the example are not finite: its weights are too large")
    draft = lower(traced)  # names the layer whose own numbers are not finite
    fuse(draft)
    rounding.apply(draft)
    use_thresholds(draft)
    return draft, traced


def _largest_answer(value: Tensor) -> Tensor:
    """The index of the largest output for each image."""
    return value.reshape(len(value), -1).argmax(1)


def _finite(value: Tensor) -> bool:
    """Whether all numbers of a tensor are finite."""
    return bool(torch.isfinite(value).all())
