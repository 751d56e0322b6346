"""A packed network, loaded and ready to run."""

import operator
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rbnn import _core, notebook
from rbnn.errors import ConfigError, InputError, UnknownName
from rbnn.packed import file as packfile
from rbnn.packed.find import called
from rbnn.packed.graph import ALONE, Graph
from rbnn.packed.operations import Operation
from rbnn.packed.plans import Plan, Plans
from rbnn.packed.prediction import Picture, Prediction, predictions
from rbnn.packed.sizes import in_words
from rbnn.text import as_shape, as_size, listed, plural, quoted, visible

LARGEST_ANSWER = 4 << 30
"""Limit of the bytes of all outputs of a call."""


class Session:
    """A packed network, loaded and ready to run: ``Session("net.rbnn", threads=2)(images)``.

    A call takes float32 images (N, C, H, W), normalised as in training, and returns logits (N, classes), or a map
    (N, C, H, W) if the network ends in one; a tuple or a dictionary of them if the network returns several tensors.
    Images of bytes (uint8) are normalised with the mean and std of the file.  A network for signals or vectors takes
    (N, C, L) or (N, C).  A network that was exported with ``free_size`` also takes images of other heights and widths;
    each size is planned when it first occurs, and the last few plans are kept.  A network with several inputs takes one
    array for each, in the order of ``inputs``, by name, or in a dictionary.  ``predict`` takes image files or arrays of
    any size and returns class names.

    Sessions are thread-safe, and a call releases the GIL.  A session can be pickled, with its network; the process that
    unpickles it chooses its own kernels.  A session also works on both sides of a fork.  ``with Session(…) as net:`` or
    ``close()`` frees its memory at once.

    ``kernels`` names an instruction set; the default is the best one that the machine supports.  ``most_work`` limits
    the multiply-adds per image of a network (``rbnn.packed.budget``).  Ctrl-C interrupts a call.
    """

    def __init__(
        self,
        network: str | Path | Graph,
        threads: int = 1,
        kernels: str | None = None,
        most_work: float | None = None,
    ) -> None:
        try:
            self.threads = operator.index(threads)
        except TypeError:
            raise ConfigError(f"threads must be a whole number, got {threads!r}") from None
        if not 1 <= self.threads <= 1024:
            raise ConfigError(f"threads must be 1 to 1024, got {threads!r}")
        if isinstance(network, Graph):
            network.check()
            self.graph, self._called = network, "the network"
        elif isinstance(network, str | os.PathLike):
            self.graph, self._called = packfile.read(network), called(network)
        else:
            raise ConfigError(f"expected a packed file or a graph, got a {type(network).__name__}")
        self._asked_for = kernels, most_work
        self._made: Plans | None = Plans(self.graph, *self._asked_for)
        height, width, channels = self.graph.buffers[self.graph.input.buffer].shape
        self.input_shape = channels, height, width
        """Shape of each image: channels, height, width.  For a network with free sizes, the size that it was exported
        with."""

    @property
    def inputs(self) -> dict[str, tuple[int, int, int]]:
        """Name of each input, and its channels, height and width.  A single input is called ``images``."""
        return self.graph.input_shapes

    @property
    def _plans(self) -> Plans:
        if self._made is None:
            raise InputError(f"the session of {self._called} is closed")
        return self._made

    def close(self) -> None:
        """Free the memory of the network.  A closed session cannot be called."""
        self._made = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": self._made is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._made = Plans(self.graph, *self._asked_for) if state["_made"] else None

    def _facts(self) -> dict[str, str]:
        """What it is, for people."""
        kinds = [operation.kind for operation in self.graph.operations]
        outputs = [_output(name, shape) for name, shape in self.graph.output_shapes.items()]
        floats = kinds.count("float_conv") + kinds.count("int8_conv")
        free = self.graph.free
        others = f" or {in_words(free.steps, *self.input_shape[1:])}" if free else ""
        return {
            "input": ", ".join(map(as_shape, self.inputs.values())) + others,
            "outputs": listed(outputs),
            "layers": f"{kinds.count('binary_conv')} binary and {floats} float layers",
            "state": "closed" if self._made is None else f"{self.kernels} kernels, {plural(self.threads, 'thread')}",
        }

    def __repr__(self) -> str:
        facts = self._facts()
        ends = "," if self.graph.has_one_output else ";"
        network = f"{facts['input']} → {facts['outputs']}{ends} {facts['layers']}"
        return f"Session({self._called}: {network}, {facts['state']})"

    def _repr_html_(self) -> str:
        rows = self._facts() | ({"classes": listed(self.classes)} if self.classes else {})
        return notebook.table(f"Session of {self._called}", rows.items())

    @property
    def kernels(self) -> str:
        """Name of the instruction set that runs the network."""
        return str(self._plans.own.program.kernels)

    @property
    def takes_bytes(self) -> bool:
        """Whether the first layer computes on bytes.  Otherwise images of bytes are converted to floats first."""
        return bool(self._plans.own.program.takes_bytes)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; empty if the file has none."""
        return self.graph.input.classes

    def __call__(self, *images: Any, **named: Any) -> Any:
        plan = self._plans.own
        arrays: list[Any] = list(images)
        try:
            if len(images) == 1 and not named and plan.plain:  # most calls: nothing else needs to be checked
                answer = plan.program.run_one(images[0], self.threads, LARGEST_ANSWER)
                if answer is not None:
                    return answer
            arrays = self._arrays(images, named)
            array = arrays[0]
            plan = self._plan(array)
            _check_answer(len(array) if array.ndim else 0, plan)
            planes: list[NDArray[np.float32]]
            if array.dtype == np.uint8 and self.takes_bytes:
                planes = plan.program.run_bytes([self._shaped(array, plan)], self.threads)
            else:
                planes = plan.program.run(self._checked(arrays, plan), self.threads)
        except _core.Invalid as reason:
            raise InputError(str(reason)) from None
        except MemoryError:
            raise InputError(
                f"{len(arrays[0])} images at once need more memory than is available: pass fewer images"
            ) from None
        answer = plan.answer(planes)
        signal = array.ndim == 3 and isinstance(answer, np.ndarray) and answer.ndim == 4 and answer.shape[2] == 1
        return answer[:, :, 0] if signal and not self.graph.shapes else answer

    @overload
    def predict(self, pictures: Picture) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, pictures: Sequence[Picture]) -> list[Prediction]: ...
    def predict(self, pictures: "Picture | Sequence[Picture]") -> Prediction | list[Prediction]:
        """Classify an image, or each image of a list: classes with their probabilities.

        An image is a file (its path or its bytes), a PIL image, or an array of bytes (H, W) or (H, W, C), of any size.
        It is resized, cropped and normalised as in the network's validation.  A float32 array (C, H, W) is used as it
        is, and so is the signal or vector that a network takes.
        """
        if isinstance(pictures, list | tuple):
            return list(predictions(self.graph, self, pictures, self._called))
        (one,) = predictions(self.graph, self, [cast("Picture", pictures)], self._called)
        return one

    def profile(self, image: Any, repeats: int = 20) -> list[tuple[Operation, float]]:
        """Time each operation on one image, in seconds: the minimum over ``repeats`` runs.  A network with several
        inputs takes a list or a dictionary of arrays."""
        if not isinstance(repeats, int) or not -1 << 31 <= repeats < 1 << 31:
            raise InputError(f"repeats must be a whole number, got {quoted(repeats)}")
        arrays = self._listed(image)
        plan = self._plan(arrays[0])
        checked = self._checked(arrays, plan)
        if len(checked[0]) != 1:
            raise InputError(f"a profile takes one image, got {len(checked[0])}")
        try:
            seconds = plan.program.profile(checked, repeats, self.threads)
        except _core.Invalid as reason:
            raise InputError(str(reason)) from None
        return list(zip(plan.graph.operations, seconds, strict=True))

    def trace(self, images: Any, given: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        """Return what the operations write, by buffer, as (N, height, width, channels), with signs as ±1.  A buffer in
        ``given`` gets these values before an operation reads it, which shows each operation on chosen inputs.  A
        network with several inputs takes a list or a dictionary of arrays."""
        if not isinstance(given, dict):
            raise InputError(f"expected the given values by buffer in a dictionary, got a {type(given).__name__}")
        numbers = {name: index for index, name in enumerate(self.graph.buffers)}
        arrays = self._listed(images)
        plan = self._plan(arrays[0])
        pictures = self._checked(arrays, plan)
        values = {name: _given(plan.graph, name, each, len(pictures[0])) for name, each in given.items()}
        found = []
        for index in range(len(pictures[0])):
            chosen = {numbers[name]: np.ascontiguousarray(array[index]) for name, array in values.items()}
            found.append(plan.program.trace([each[index : index + 1] for each in pictures], chosen))
        written = [name for operation in self.graph.operations for name in operation.outputs.values()]
        return {name: np.stack([each[numbers[name]] for each in found]) for name in written} if found else {}

    def _listed(self, images: Any) -> list[NDArray[Any]]:
        """The arrays of each input."""
        if not self.graph.input.names or isinstance(images, dict):
            return self._arrays((images,), {})
        if not isinstance(images, list | tuple):
            raise InputError(f"expected a list or a dictionary of arrays, got a {type(images).__name__}")
        return self._arrays(tuple(images), {})

    def _arrays(self, images: tuple[Any, ...], named: dict[str, Any]) -> list[NDArray[Any]]:
        """Arguments of a call in the order of the inputs."""
        if len(images) == 1 and not named and not self.graph.input.names:
            return [_array(images[0])]
        names = list(self.inputs)
        if self.graph.input.names and len(images) == 1 and isinstance(images[0], dict) and not named:
            named, images = images[0], ()
        expected = ", ".join(names)
        if len(images) > len(names):
            raise InputError(f"expected {plural(len(names), 'input')} ({expected}), got {len(images)}")
        given = dict(zip(names, images, strict=False))
        for name in named:
            if name not in names:
                raise UnknownName("input", str(name), names)
            if name in given:
                raise InputError(f"got the input {name!r} twice, by position and by name")
        given |= named
        if missing := [name for name in names if name not in given]:
            raise InputError(f"expected {plural(len(names), 'input')} ({expected}): {', '.join(missing)} missing")
        arrays = [_array(given[name]) for name in names]
        if len({len(each) if each.ndim else 0 for each in arrays}) != 1:
            shapes = ", ".join(f"{name} {each.shape}" for name, each in zip(names, arrays, strict=True))
            raise InputError(f"expected batches of the same size for all inputs, got {shapes}")
        return arrays

    def _plan(self, array: NDArray[Any]) -> Plan:
        """The plan for images of this array's size, if the network takes other sizes than its own; ``_shaped`` then
        checks it."""
        channels, height, _ = self.input_shape
        plans = self._plans
        if self.graph.free is None or array.ndim not in (3, 4) or array.shape[1] != channels:
            return plans.own
        if array.ndim == 3:
            return plans.of(1, array.shape[2]) if height == 1 else plans.own
        return plans.of(*array.shape[2:])

    def _checked(self, arrays: list[NDArray[Any]], plan: Plan) -> list[NDArray[np.float32]]:
        checked = []
        for number, array in enumerate(arrays):
            if array.dtype == np.uint8:
                array = self._normalised(self._shaped(array, plan, number))
            if array.dtype != np.float32:
                raise InputError(f"expected float32 or uint8 images, got {array.dtype}: use images.astype('float32')")
            checked.append(self._shaped(array, plan, number))
        return checked

    def _normalised(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        from rbnn.data.preprocess import normalise  # imports Pillow, which is slow

        mean, std = self.graph.input.mean, self.graph.input.std
        if not mean or not std:
            raise InputError("the file does not record how to normalise images: expected float32 images, got uint8")
        if len(mean) not in (1, images.shape[1]):
            raise InputError(
                f"the file records how to normalise {len(mean)} channels: expected float32 for an input with "
                f"{images.shape[1]} channels, got uint8"
            )
        return normalise(images.transpose(0, 2, 3, 1), mean, std)

    def _shaped(self, array: NDArray[Any], plan: Plan, number: int = 0) -> NDArray[Any]:
        """Images (N, C, H, W).  A signal (N, C, L) is an image of height 1, and a vector (N, C) an image of one
        pixel."""
        height, width, channels = plan.inputs[number]
        if array.shape[1:] == (channels, height, width):
            return np.ascontiguousarray(array)
        taken: list[tuple[int, ...]] = [(channels, height, width)]
        taken += [(channels, width)] if height == 1 else []
        taken += [(channels,)] if height == width == 1 else []
        if array.shape[1:] not in taken:
            expected = " or ".join(f"(N, {', '.join(map(str, each))})" for each in reversed(taken))
            sizes = f", or others: {in_words(self.graph.free.steps, height, width)}" if self.graph.free else ""
            what = f"input {list(self.inputs)[number]!r}" if self.graph.input.names else "images"
            raise InputError(f"expected {what} of shape {expected}{sizes}, got {array.shape}{_remedy(array, taken[0])}")
        return np.ascontiguousarray(array).reshape(len(array), channels, height, width)


def _output(name: str, shape: tuple[int, ...]) -> str:
    """An output for people.  Outputs in tuples have only numbers as names, which their order shows."""
    written = as_shape(shape or (1,))
    return written if name == ALONE or name.replace(".", "").isdigit() else f"{visible(name)} {written}"


def _remedy(array: NDArray[Any], wanted: tuple[int, ...]) -> str:
    """What to do about images without a batch dimension, or with the channels last."""
    channels, height, width = wanted
    if array.shape == wanted:
        return ": add a batch dimension, images[None]"
    if array.shape[1:] == (height, width, channels):
        return ": move the channels, images.transpose(0, 3, 1, 2)"
    return ""


def _array(values: ArrayLike) -> NDArray[Any]:
    first = values[0] if isinstance(values, list | tuple) and values else values
    if isinstance(first, str | bytes | os.PathLike):
        raise InputError(f"expected an array of numbers, got {quoted(os.fspath(first))}: pass image files to predict")
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as reason:  # lists of different lengths
        raise InputError(f"expected an array of numbers: {str(reason)[:200]}") from None


def _given(graph: Graph, name: str, values: ArrayLike, count: int) -> NDArray[np.float32]:
    """Values for a buffer, for ``count`` images."""
    if name not in graph.buffers:
        raise UnknownName("buffer", str(name), graph.buffers)
    array, expected = _array(values), (count, *graph.buffers[name].shape)
    if array.dtype.kind not in "biuf" or array.shape != expected:
        raise InputError(
            f"buffer {quoted(name)} takes numbers of shape {expected}, got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.float32)


def _check_answer(count: int, plan: Plan) -> None:
    """A small network can have large outputs, so their total size is checked before anything is allocated."""
    size = count * plan.answer_bytes
    if size > LARGEST_ANSWER:
        raise InputError(
            f"the outputs for {count} images take {as_size(size)}, but at most {as_size(LARGEST_ANSWER)} are "
            "returned at once: pass fewer images"
        )
