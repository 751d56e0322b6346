"""A packed network in memory: buffers and the sequence of operations on them."""

import itertools
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import ConfigError, PackError
from rbnn.packed.operations import (
    LARGEST_BUFFER,
    LARGEST_CHANNELS,
    LARGEST_NETWORK,
    LARGEST_SIDE,
    Buffer,
    Operation,
    Shape,
    Site,
    check,
    is_number,
)
from rbnn.packed.sizes import Free, check_follows, check_free, derived, evaluated, in_steps, in_words, strides, wrong
from rbnn.text import LONGEST_QUOTE, plural, quoted, shorten

LARGEST_MEAN = 1e6
SMALLEST_STD = 1e-30
"""(1 + 10⁶) / 10⁻³⁰ < 3.4 · 10³⁸, so every normalised image is finite in float32."""


MOST_ANSWERS, DEEPEST_ANSWER = 256, 8
MOST_INPUTS = 64

Answer: TypeAlias = "str | list[Answer] | dict[str, Answer]"
"""A buffer, or several buffers in lists and dictionaries, nested as the network returned its tensors."""


@dataclass(frozen=True)
class Input:
    """The input of the network: a buffer, and the normalisation of images."""

    buffer: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    classes: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    """For a network with several inputs: its arguments, in order, and the buffer of each; the first is ``buffer``."""


@dataclass(frozen=True)
class Graph:
    """A network.  ``check`` raises PackError unless every rule of the format holds."""

    input: Input
    output: Answer
    buffers: dict[str, Buffer]
    operations: list[Operation]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The shapes, in torch's order, of outputs that do not have their ``default_shape``, by buffer."""
    free: Free | None = None
    """How sizes may vary, if the network also takes images of other sizes."""

    @property
    def inputs(self) -> list[str]:
        """The input buffers of the network, in the order of its arguments."""
        return list(self.input.names.values()) or [self.input.buffer]

    @property
    def input_shapes(self) -> dict[str, tuple[int, int, int]]:
        """Channels, height and width of each input, by name; a single input is called ``images``."""
        buffers = self.input.names or {"images": self.input.buffer}
        shapes = {name: self.buffers[buffer].shape for name, buffer in buffers.items()}
        return {name: (channels, height, width) for name, (height, width, channels) in shapes.items()}

    def only_input(self, who: str, instead: str = "use rbnn.Session") -> str:
        """The only input of the network.  Raises ConfigError if there are several, which ``who`` does not take;
        ``instead`` says what to do."""
        if self.input.names:
            names = shorten(", ".join(self.input.names), LONGEST_QUOTE)
            raise ConfigError(f"the network takes {len(self.inputs)} inputs ({names}), and {who}: {instead}")
        return self.input.buffer

    @property
    def outputs(self) -> list[str]:
        """The output buffers of the network, each once."""
        return list(dict.fromkeys(answer_buffers(self.output)))

    def only_output(self, who: str, instead: str = "use rbnn.Session") -> str:
        """The only output of the network.  Raises ConfigError if there are several, which ``who`` does not take;
        ``instead`` says what to do."""
        if not self.has_one_output:
            count = len(answer_buffers(self.output))
            raise ConfigError(f"the network has {count} outputs, but {who}: {instead}")
        return self.outputs[0]

    @property
    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each output for one image, as a call returns it, by name (``named``)."""
        shapes = {name: self.buffers[name].shape for name in self.outputs}
        empty = self.answered(lambda name: np.broadcast_to(np.float32(0), (1, shapes[name][2], *shapes[name][:2])))
        return {name: array.shape[1:] for name, array in named(empty)}

    @property
    def has_one_output(self) -> bool:
        """Whether the output is one tensor, alone or in a list or table."""
        return len(answer_buffers(self.output)) == 1

    def answered(self, planes: Callable[[str], NDArray[Any]]) -> Any:
        """The output from its buffers, each (N, C, H, W): vectors are (N, C), lists are tuples."""
        return _arranged(self.output, planes, self.shapes)

    def at(self, height: int, width: int) -> "Graph":
        """The same network for images of this size.  Raises PackError if it does not take them."""
        own = self.buffers[self.input.buffer]
        if (height, width) == own.shape[:2]:
            return self
        steps = self.free.steps if self.free else (0, 0)
        refused = f"the network does not take pictures of {height}×{width}"
        if not in_steps(steps, (height, width), own.shape):
            raise PackError(f"{refused}: it takes {in_words(steps, *own.shape[:2])}")
        try:
            return self._derived(height, width)
        except PackError as reason:
            coarsest = strides(self.operations, self.buffers, self.input.buffer)
            if not in_steps(coarsest, (height, width), own.shape):
                refused += f", its strides fit {in_words(coarsest, *own.shape[:2])}"
            raise PackError(f"{refused}: {reason}") from None

    def _derived(self, height: int, width: int) -> "Graph":
        own = self.buffers[self.input.buffer]
        found = {self.input.buffer: Buffer(own.type, (height, width, own.shape[2]))}
        operations = []
        for operation in self.operations:
            moved, shape = derived(operation, found, self.buffers)
            operations.append(moved)
            found |= {name: replace(self.buffers[name], shape=shape) for name in moved.outputs.values()}
        buffers = {name: found.get(name, buffer) for name, buffer in self.buffers.items()}
        made = replace(self, buffers=buffers, operations=operations, shapes=self._shapes_of_answers(buffers))
        made.check()
        return made

    def _shapes_of_answers(self, buffers: dict[str, Buffer]) -> dict[str, tuple[int, ...]]:
        """The shapes for these buffers.  A map stays a map, even with a single pixel."""
        pixel = {
            name: (buffers[name].shape[2], 1, 1)
            for name in self.outputs
            if buffers[name].shape[:2] == (1, 1) != self.buffers[name].shape[:2]
        }
        follows = self.free.shapes if self.free else {}
        return pixel | self.shapes | {name: tuple(evaluated(given, buffers)) for name, given in follows.items()}

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        """Each array once, by its name in a file: the name of the first operation that has it, and its role there."""
        found: dict[str, NDArray[Any]] = {}
        seen: set[int] = set()
        numbers: dict[str, int] = {}  # else a file with one name for all operations would take hours
        for operation in self.operations:
            for role, array in operation.tensors.items():
                if id(array) in seen:
                    continue
                seen.add(id(array))
                name = wanted = f"{operation.name}.{role}"
                while name in found:
                    numbers[wanted] = numbers.get(wanted, 1) + 1
                    name = f"{wanted}.{numbers[wanted]}"
                found[name] = array
        return found

    def check(self) -> None:
        self._check_inputs()
        _check_normalisation(self.input, self.buffers[self.input.buffer].shape[2])
        for name in (*self.buffers, *(each.name for each in self.operations), *self.input.classes, *self.input.names):
            check_name(name)
        for name, buffer in self.buffers.items():
            _check_buffer(name, buffer)
        values = sum(prod(buffer.shape) for buffer in self.buffers.values())
        if values > LARGEST_NETWORK:
            raise PackError(
                f"all buffers together have {values:,} values, and at most {LARGEST_NETWORK:,} are allowed: use "
                "smaller images"
            )
        arrays = {id(array): array for each in self.operations for array in each.tensors.values()}
        odd = {at for at, array in arrays.items() if array.dtype == np.float32 and not np.isfinite(array).all()}
        if odd:
            name = next(name for name, array in self.tensors.items() if id(array) in odd)
            raise PackError(f"tensor {quoted(name)} has values that are not finite")
        written = set(self.inputs)
        for operation in self.operations:
            site = Site(operation, self.buffers)
            check(site, written)
            check_follows(site, written)
            written.update(operation.outputs.values())
        _check_answer(self.output, 0)
        if (answers := len(answer_buffers(self.output))) > MOST_ANSWERS:
            raise PackError(f"the network has {answers} outputs, but at most {MOST_ANSWERS} are possible")
        for name in self.outputs:
            if name not in written - set(self.inputs) or self.buffers[name].type != "float":
                raise PackError(f"the output {quoted(name)} is not a float buffer that some operation writes")
        for name, shape in self.shapes.items():
            if name not in self.outputs or prod(shape) != prod(self.buffers[name].shape):
                raise PackError(f"the output {quoted(name)} cannot have the shape {quoted(shape)}")
        self._check_free(written)
        if self.input.classes:
            answers = self.buffers[self.outputs[0]].shape[2]
            if not self.has_one_output or len(self.input.classes) != answers:
                raise PackError(f"it has {len(self.input.classes)} class names for {plural(answers, 'output')}")

    def _check_inputs(self) -> None:
        for name in self.inputs:
            if name not in self.buffers or self.buffers[name].type != "float":
                raise PackError(f"the input {quoted(name)} is not a float buffer of the graph")
        several = self.input.names
        if several and not (2 <= len(set(self.inputs)) == len(several) <= MOST_INPUTS):
            raise PackError(f"several inputs must be 2 to {MOST_INPUTS} buffers, each once")
        if several and self.inputs[0] != self.input.buffer:
            raise PackError(f"the first of several inputs is {quoted(self.inputs[0])}, expected the input's buffer")
        if several and self.free:
            raise PackError("only a network with one input can have free sizes")

    def _check_free(self, written: set[str]) -> None:
        if self.free is None:
            if any(operation.follows for operation in self.operations):
                raise PackError("numbers depend on the image size, which is not free")
            return
        check_free(self.free)
        for name, given in self.free.shapes.items():
            why = wrong(given, self.shapes.get(name, ()), written, self.buffers)
            if why:
                raise PackError(f"the shape of the output {quoted(name)} {why}")


def default_shape(buffer: Shape, *, signals: bool = False) -> tuple[int, ...]:
    """The shape of an output in torch's order, without the batch, unless ``Graph.shapes`` has another.  ``signals``: it
    is the only output, and the caller passed signals (N, C, L)."""
    height, width, channels = buffer
    if height == width == 1:
        return (channels,)
    return (channels, width) if signals and height == 1 else (channels, height, width)


def answer_buffers(answer: Answer) -> list[str]:
    """All buffers of an output, in order."""
    if isinstance(answer, str):
        return [answer]
    return [name for each in (answer if isinstance(answer, list) else answer.values()) for name in answer_buffers(each)]


ALONE = "answer"
"""The name of an output that is not in a list or table."""


def named(answer: Any, name: str = "") -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Every array of an output by its path, such as ``out`` or ``maps.0``; ``ALONE`` if it has none."""
    if isinstance(answer, np.ndarray):
        yield name or ALONE, answer
        return
    parts = answer.items() if isinstance(answer, dict) else enumerate(answer)
    for key, part in parts:
        yield from named(part, f"{name}.{key}" if name else str(key))


def only_array(answer: Any) -> NDArray[np.float32]:
    """The array of an output that has only one, alone or in a list or table."""
    ((_, array),) = named(answer)
    return array


# Not a nested function: it would refer to itself, and what it has seen would stay in memory until the next garbage
# collection.
def _arranged(answer: Answer, planes: Callable[[str], NDArray[Any]], shapes: dict[str, tuple[int, ...]]) -> Any:
    if isinstance(answer, list):
        return tuple(_arranged(each, planes, shapes) for each in answer)
    if isinstance(answer, dict):
        return {name: _arranged(each, planes, shapes) for name, each in answer.items()}
    values = planes(answer)
    channels, height, width = values.shape[1:]
    return values.reshape(len(values), *shapes.get(answer, default_shape((height, width, channels))))


def _check_answer(answer: Answer, depth: int) -> None:
    parts = answer if isinstance(answer, list) else list(answer.values()) if isinstance(answer, dict) else None
    if parts is None:
        if not isinstance(answer, str):
            raise PackError("the output must be a buffer, or several buffers in lists and tables")
        return
    if not 0 < len(parts) <= MOST_ANSWERS or depth == DEEPEST_ANSWER:
        raise PackError(
            f"the output must have 1 to {MOST_ANSWERS} buffers, nested at most {DEEPEST_ANSWER} levels deep"
        )
    for name in answer if isinstance(answer, dict) else ():
        check_name(name)
    for part in parts:
        _check_answer(part, depth + 1)


def unused(name: str, names: Container[str]) -> str:
    """``name``, with a number appended if it is taken, because a module may be called twice."""
    numbered = (f"{name}.{count}" for count in itertools.count(2))
    return name if name not in names else next(each for each in numbered if each not in names)


def _check_normalisation(given: Input, channels: int) -> None:
    for word, numbers in (("mean", given.mean), ("std", given.std)):
        if numbers and len(numbers) not in (1, channels):
            raise PackError(
                f"{word} of the input has {len(numbers)} numbers for {plural(channels, 'channel')}: give one number "
                "per channel, or a single number"
            )
    if not all(is_number(mean) and abs(mean) <= LARGEST_MEAN for mean in given.mean):
        raise PackError(f"mean of the input must be finite and within ±{LARGEST_MEAN:g}")
    if not all(is_number(std) and std >= SMALLEST_STD for std in given.std):
        raise PackError(f"std of the input must be positive, finite in float32 and at least {SMALLEST_STD:g}")


def check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise PackError(f"the name {quoted(name)} cannot be written as UTF-8: choose another") from None


def _check_buffer(name: str, buffer: Buffer) -> None:
    height, width, channels = buffer.shape
    if not (0 < height <= LARGEST_SIDE and 0 < width <= LARGEST_SIDE and 0 < channels <= LARGEST_CHANNELS):
        raise PackError(f"buffer {quoted(name)} has the impossible shape {quoted(buffer.shape)}")
    if height * width * channels > LARGEST_BUFFER:
        raise PackError(f"buffer {quoted(name)} of shape {quoted(buffer.shape)} is larger than {LARGEST_BUFFER} values")
