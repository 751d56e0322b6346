"""From images to class names, with the normalisation and the classes of a packed network."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rbnn import notebook
from rbnn.errors import ConfigError, DataError, InputError, PackError
from rbnn.packed.graph import Graph, only_array
from rbnn.packed.sizes import strides
from rbnn.text import as_shape

if TYPE_CHECKING:
    from PIL import Image

BY_CALLING = "call the session with arrays instead: session(images) returns the outputs"
IN_PYTHON = "compute its accuracy in Python, where rbnn.Session(FILE)(images) returns the outputs"
"""What to do with a network that does not classify images, in Python and for `rbnn eval`."""

AT_ONCE = 64
"""Number of images that are in memory as floats at the same time."""

Picture: TypeAlias = "str | Path | bytes | Image.Image | NDArray[Any]"
"""An image file or its bytes; a PIL image or uint8 array (H, W) or (H, W, C), of any size; or a normalised float32
array (C, H, W)."""


@dataclass(frozen=True)
class Ranked:
    """A class and its probability."""

    name: str
    index: int
    probability: float

    def __str__(self) -> str:
        return f"{self.name} {100 * self.probability:.1f} %"


@dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The prediction for one image."""

    classes: tuple[str, ...]
    """Names of the classes; ``class 0`` and so on if the file has none."""
    probabilities: NDArray[np.float64]
    """One probability per class.  They add up to 1, except those of a network that ends in a sigmoid."""

    def top(self, count: int = 5) -> list[Ranked]:
        """The most likely classes; ties are in the order of the classes."""
        order = np.argsort(-self.probabilities, kind="stable")[:count]
        return [Ranked(self.classes[i], int(i), float(self.probabilities[i])) for i in order]

    @property
    def name(self) -> str:
        """The most likely class."""
        return self.top(1)[0].name

    @property
    def index(self) -> int:
        """The number of the most likely class."""
        return self.top(1)[0].index

    @property
    def probability(self) -> float:
        """The probability of the most likely class."""
        return self.top(1)[0].probability

    def __repr__(self) -> str:
        shown = self.top(3)
        more = ", …" if len(self.classes) > len(shown) else ""
        return f"Prediction({', '.join(map(str, shown))}{more})"

    def _repr_html_(self) -> str:
        return notebook.table("Prediction", [(each.name, f"{100 * each.probability:.1f} %") for each in self.top()])


def predictions(
    graph: Graph, answer: Callable[[NDArray[np.float32]], Any], pictures: Sequence[Picture], called: str
) -> Iterator[Prediction]:
    """The classes of each image.  ``answer`` runs the network, ``called`` is its name in error messages."""
    for each in attempts(graph, answer, pictures, called):
        if isinstance(each, DataError):
            raise each
        yield each


def attempts(
    graph: Graph, answer: Callable[[NDArray[np.float32]], Any], pictures: Sequence[Picture], called: str
) -> Iterator[Prediction | DataError]:
    """The classes of each image, or the error of a file that could not be read as an image."""
    from rbnn.data import preprocess  # imports Pillow, which is slow

    graph.only_input("a prediction is made from one picture", BY_CALLING)
    _classifies(graph, called, BY_CALLING)
    classes = graph.input.classes or tuple(f"class {i}" for i in range(graph.buffers[graph.outputs[0]].shape[2]))
    height, width, channels = graph.buffers[graph.input.buffer].shape
    ready = _probabilities(graph)
    at_once = preprocess.at_once(AT_ONCE, max(height, width), channels)
    for first in range(0, len(pictures), at_once):
        read = [_values_or_error(graph, each, called) for each in pictures[first : first + at_once]]
        images = [each for each in read if not isinstance(each, DataError)]
        predicted = _classes(only_array(answer(np.stack(images))), classes, called, ready) if images else iter(())
        for each in read:
            yield each if isinstance(each, DataError) else next(predicted)


def _values_or_error(graph: Graph, source: Picture, called: str) -> NDArray[np.float32] | DataError:
    try:
        return values_of(graph, source, called)
    except DataError as error:
        return error


def _probabilities(graph: Graph) -> bool:
    """Whether the network itself ends in a softmax or sigmoid."""
    writers = {buffer: operation for operation in graph.operations for buffer in operation.outputs.values()}
    last = writers[graph.outputs[0]]
    while last.kind == "reshape" and last.inputs["x"] in writers:
        last = writers[last.inputs["x"]]
    activation = last.attributes.get("activation") or [""]
    return (last.kind == "softmax" and not last.attributes.get("log")) or activation[0] == "sigmoid"


def _classes(outputs: NDArray[np.float32], classes: tuple[str, ...], called: str, ready: bool) -> Iterator[Prediction]:
    """``ready`` says that the outputs are probabilities; otherwise they are logits."""
    values = outputs.reshape(len(outputs), -1).astype(np.float64)
    if not np.isfinite(values).all():
        raise InputError(f"the outputs of {called} are not finite: its values overflow for these images")
    if not ready:
        weights = np.exp(values - values.max(1, keepdims=True))
        values = weights / weights.sum(1, keepdims=True)
    for row in values:
        yield Prediction(classes, row)


def values_of(graph: Graph, source: Picture, called: str) -> NDArray[np.float32]:
    """An image as the network takes it: (C, H, W).  For a network with free sizes that does not classify, the image
    keeps its size or gets the nearest size that the network takes."""
    height, width, channels = graph.buffers[graph.only_input("a picture is one")].shape
    free = graph.free is not None and not classifies(graph)
    if isinstance(source, np.ndarray) and source.dtype != np.uint8:
        if free and source.dtype == np.float32 and source.ndim == 3:
            return source
        if source.dtype != np.float32 or source.size != height * width * channels or source.shape[0] != channels:
            raise _no_picture(source, (channels, height, width), called)
        ready: NDArray[np.float32] = source.reshape(channels, height, width)
        return ready
    if height == 1:
        raise InputError(f"{called} takes {one_input((channels, height, width))} in float32 at a time, not images")
    if not _is_picture(source):
        raise _no_picture(source, (channels, height, width), called)
    from rbnn.data import preprocess

    mean, std = normalisation(graph, called)
    if free:
        image = preprocess.whole_picture(source, channels)
        size = _nearest_size(graph, *image.shape[:2])
        image = image if image.shape[:2] == size else preprocess.resize(image, *size)
    else:
        image = preprocess.picture(source, _square_side(graph, called), channels, margin=classifies(graph))
    values: NDArray[np.float32] = preprocess.normalise(image[None], mean, std)[0]
    return values


def _is_picture(source: object) -> bool:
    """Whether Pillow can open it: a file, its bytes, a Pillow image, or bytes as grey, with alpha, RGB or RGBA."""
    if isinstance(source, np.ndarray):
        return source.size > 0 and (source.ndim == 2 or (source.ndim == 3 and source.shape[2] <= 4))
    from PIL import Image

    return isinstance(source, str | os.PathLike | bytes | Image.Image) or hasattr(source, "read")


def _no_picture(source: object, shape: tuple[int, int, int], called: str) -> InputError:
    got, several = type(source).__name__, ""
    if isinstance(source, np.ndarray):
        got = f"{source.dtype} of shape {source.shape}"
        several = ": pass several images as a list" if source.ndim == 4 else ""
    return InputError(
        f"{called} takes images as bytes, (H, W) or (H, W, C) of any size, or as normalised float32 of shape {shape}, "
        f"got {got}{several}"
    )


def _nearest_size(graph: Graph, height: int, width: int) -> tuple[int, int]:
    """The nearest size that the network takes: by its steps, otherwise by its strides."""
    assert graph.free is not None
    own = graph.buffers[graph.input.buffer].shape
    refused = ""
    for steps in (graph.free.steps, strides(graph.operations, graph.buffers, graph.input.buffer)):
        rows, columns = (
            _nearest_side(side, step, mine) for side, step, mine in zip((height, width), steps, own, strict=False)
        )
        try:
            graph.at(rows, columns)
        except PackError as reason:
            refused = refused or str(reason)
        else:
            return rows, columns
    raise InputError(refused)


def _nearest_side(side: int, step: int, own: int) -> int:
    if step == 0:
        return own
    least = own % step or step
    return max(own + round((side - own) / step) * step, least)


def one_input(shape: tuple[int, int, int]) -> str:
    """Describe (channels, height, width) as an image, a signal or a vector."""
    channels, height, width = shape
    if height == 1:
        return f"one vector of {channels} numbers" if width == 1 else f"one signal of {as_shape((channels, width))}"
    return f"one image of {as_shape(shape)}"


def picture_side(graph: Graph, called: object) -> int:
    """The side of the square images that a classifying network takes."""
    graph.only_input("pictures come one at a time", IN_PYTHON)
    side = _square_side(graph, called)
    _classifies(graph, called, IN_PYTHON)
    return side


def _square_side(graph: Graph, called: object) -> int:
    height, width, _ = graph.buffers[graph.input.buffer].shape
    if height != width:
        raise ConfigError(
            f"{called} takes images of {height}×{width}, but only square images can be prepared from files: "
            "prepare arrays yourself and use rbnn.Session"
        )
    return height


def classifies(graph: Graph) -> bool:
    """Whether the network returns one number per class, and not maps or several tensors."""
    return graph.has_one_output and graph.buffers[graph.outputs[0]].shape[:2] == (1, 1)


def _classifies(graph: Graph, called: object, instead: str) -> None:
    if not graph.has_one_output:
        count = len(graph.output_shapes)
        raise ConfigError(f"{called} has {count} outputs, so it does not classify images: {instead}")
    if graph.buffers[graph.outputs[0]].shape[:2] != (1, 1):
        raise ConfigError(f"{called} returns a map, not classes: {instead}")
    if graph.buffers[graph.outputs[0]].shape[2] == 1:
        raise ConfigError(f"{called} returns one number, not a score for each class: {instead}")


def normalisation(graph: Graph, called: object) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of each channel, as in training."""
    contract, channels = graph.input, graph.buffers[graph.input.buffer].shape[2]
    if not (contract.mean and contract.std):
        raise ConfigError(f"{called} does not record how images are normalised: export it again with mean and std")
    mean, std = (numbers * channels if len(numbers) == 1 else numbers for numbers in (contract.mean, contract.std))
    return mean, std
