"""The operations of a packed network and the rules that each obeys.

docs/format.md describes each kind; the table ``KINDS`` at the end is the same list for the machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import PackError
from rbnn.text import quoted, shorten

Shape: TypeAlias = tuple[int, int, int]
"""Height, width, channels of one picture."""

LARGEST_SIDE = 1 << 14
LARGEST_CHANNELS = 1 << 20
LARGEST_BUFFER = 1 << 27
LARGEST_NETWORK = 1 << 28
"""Values of all buffers: they are declared and not stored, so that a small file could else ask for all memory."""
LARGEST_STEP = 255
LARGEST_PADDING = 1024
LARGEST_INT8_TAPS = 1 << 16
"""255 · 128 · 2¹⁶ < 2³¹: the sum of an int8 convolution is exact."""

ACTIVATIONS = {
    "hardtanh": 2, "relu": 0, "relu6": 0, "leaky_relu": 1, "prelu": 0, "sigmoid": 0, "hardswish": 0, "abs": 0,
}  # fmt: skip
"""Name → how many numbers it takes."""


def bytes_for(bits: int) -> int:
    return (bits + 7) // 8


@dataclass(frozen=True)
class Buffer:
    """A picture that lives while the network runs: float32 values, signs as bits, or bytes from 0 to 255."""

    type: Literal["float", "bits", "bytes"]
    shape: Shape


@dataclass(eq=False)
class Operation:
    """One step of a network.  ``inputs`` and ``outputs`` name buffers, ``tensors`` are arrays, each by its role.

    The only form that an operation has in Python.  In a draft of an export, arrays are still in double, signs ±1, and
    rules rewrite it; in a ``Graph`` they are what the file holds.  Operations that share an array hold the same object.
    """

    kind: str
    name: str
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, NDArray[Any]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """One operation in its graph, while it is checked."""

    operation: Operation
    buffers: Mapping[str, Buffer]

    def fail(self, what: str) -> PackError:
        return PackError(f"operation {quoted(self.operation.name)} ({shorten(self.operation.kind, 200)}): {what}")

    def check(self, written: set[str]) -> None:
        operation = self.operation
        if operation.kind not in KINDS:
            raise self.fail(f"unknown kind, known are {', '.join(KINDS)}")
        kind = KINDS[operation.kind]
        inputs = kind.inputs
        if operation.kind == "concat":
            inputs = {f"x{i}": "float" for i in range(max(len(operation.inputs), 1))}
        self._roles("input", operation.inputs, inputs)
        self._roles("output", operation.outputs, kind.outputs)
        self._roles("tensor", operation.tensors, kind.tensors)
        self._roles("attribute", operation.attributes, kind.attributes)
        if not operation.outputs:
            raise self.fail("writes nothing")
        for role, name in operation.inputs.items():
            if name not in written:
                raise self.fail(f"input {role} reads {quoted(name)}, which nothing has written")
            self._type(role, name, inputs[role])
        for role, name in operation.outputs.items():
            if name in written or name not in self.buffers:
                raise self.fail(f"output {role} is {quoted(name)}: not a buffer, or written twice")
            self._type(role, name, kind.outputs[role])
        if len(set(operation.outputs.values())) != len(operation.outputs):
            raise self.fail("writes one buffer twice")
        for role, tensor in operation.tensors.items():
            expected = kind.tensors[role].rstrip("?")
            if str(tensor.dtype) not in expected.split("|"):
                raise self.fail(f"tensor {role} is {tensor.dtype}, expected {expected}")
        for role, value in operation.attributes.items():
            kind.attributes[role].check(self, role, value)
        shape = kind.shape(self)
        for role in operation.outputs:
            if (declared := self.shape(role, "outputs")) != shape:
                raise self.fail(f"output {role} is declared {declared}, but comes out as {shape}")

    def _roles(self, what: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        for role in given:
            if role not in known:
                raise self.fail(f"has no {what} {quoted(role)}")
        for role, rule in known.items():
            optional = rule.optional if isinstance(rule, _Attribute) else rule.endswith("?")
            if not optional and role not in given:
                raise self.fail(f"{what} {quoted(role)} is missing")

    def _type(self, role: str, name: str, rule: str) -> None:
        if self.buffers[name].type != rule.rstrip("?"):
            raise self.fail(f"{role} must be a {rule.rstrip('?')} buffer")

    def shape(self, role: str, side: str = "inputs") -> Shape:
        return self.buffers[getattr(self.operation, side)[role]].shape

    def tensor_shape(self, role: str, *expected: int) -> None:
        """The tensor, if there is one, has this shape."""
        if role in self.operation.tensors:
            shape = self.operation.tensors[role].shape
            if shape != expected:
                raise self.fail(f"tensor {role} has the shape {shape}, expected {expected}")

    def tail_bits(self, role: str, channels: int) -> None:
        tensor = self.operation.tensors[role]
        if channels % 8 and (tensor[..., -1] >> (channels % 8)).any():
            raise self.fail(f"tensor {role} has bits set beyond its {channels} channels")

    def get(self, attribute: str, default: Any) -> Any:
        return self.operation.attributes.get(attribute, default)

    def window(self, shape: Shape, *, pool: bool = False) -> tuple[int, int]:
        """Height and width after a kernel has passed over ``shape``."""
        sides, kernel, padding = [], self.operation.attributes["kernel"], self.get("padding", (0, 0))
        stride, dilation = self.get("stride", kernel if pool else (1, 1)), self.get("dilation", (1, 1))
        for side, k, s, p, d in zip(shape[:2], kernel, stride, padding, dilation, strict=True):
            reach = d * (k - 1) + 1
            if pool and 2 * p > k:
                raise self.fail("padding of a pool is at most half its kernel")
            if side + 2 * p < reach:
                raise self.fail(f"a kernel that reaches over {reach} does not fit into {side} + 2·{p}")
            rest = side + 2 * p - reach
            count = rest // s + 1
            # torch: the last window of a ceiled pool must start inside the picture or its left padding.
            if self.get("ceil", False) and rest % s and count * s < side + p:
                count += 1
            if pool and not _all_see_something(side, k, s, p, d, count):
                raise self.fail("a window sees nothing of the picture")
            sides.append(count)
        if (shape[0] + 2 * padding[0]) * (shape[1] + 2 * padding[1]) * shape[2] > LARGEST_BUFFER:
            raise self.fail(f"padded input is larger than {LARGEST_BUFFER} values")
        return sides[0], sides[1]


def _all_see_something(side: int, kernel: int, stride: int, padding: int, dilation: int, count: int) -> bool:
    """Whether each of ``count`` positions of a kernel has a tap inside the picture."""

    def sees(start: int) -> bool:
        first = max(-(-(padding - start) // dilation), 0)  # taps before this one lie in the padding
        return first < kernel and start + first * dilation < padding + side

    # Only positions that begin in the padding can step over the picture, and those that begin behind it are the last.
    in_padding = min(count, -(-padding // stride))
    return all(sees(i * stride) for i in range(in_padding)) and sees((count - 1) * stride)


@dataclass(frozen=True)
class _Attribute:
    check: Callable[[Site, str, Any], None]
    optional: bool = False


def is_whole(value: Any, low: int, high: int) -> bool:
    """Whether a whole number from ``low`` to ``high``."""
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_number(value: Any) -> bool:
    """Whether a number that float32 holds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 3e38


def _whole_numbers(count: int, low: int, high: int) -> Callable[[Site, str, Any], None]:
    def check(site: Site, role: str, value: Any) -> None:
        listed = isinstance(value, list | tuple) and len(value) == count
        if not listed or not all(is_whole(v, low, high) for v in value):
            raise site.fail(f"{role} must be {count} whole numbers from {low} to {high}, got {quoted(value)}")

    return check


def _one_of(*values: Any) -> Callable[[Site, str, Any], None]:
    def check(site: Site, role: str, value: Any) -> None:
        if not any(type(value) is type(v) and value == v for v in values):
            raise site.fail(f"{role} must be one of {', '.join(map(repr, values))}, got {quoted(value)}")

    return check


def _check_activation(site: Site, role: str, value: Any) -> None:
    named = isinstance(value, list | tuple) and value and isinstance(value[0], str)
    numbers = ACTIVATIONS.get(value[0]) if named else None
    if numbers is None or len(value) != 1 + numbers or not all(map(is_number, value[1:])):
        raise site.fail(f"{role} must be a known activation with its numbers, got {quoted(value)}")
    if value[0] == "hardtanh" and value[1] > value[2]:
        raise site.fail(f"{role}: low {value[1]} is above high {value[2]}")
    if (value[0] == "prelu") != ("slope" in site.operation.tensors):
        raise site.fail("prelu, and nothing else, has a tensor slope")


def _check_level(site: Site, role: str, value: Any) -> None:
    if value != "mean" and not is_number(value):
        raise site.fail(f"{role} must be a number or 'mean', got {quoted(value)}")
    others = {"scale", "shift", "level"} & set(site.operation.tensors)
    if others and (value == "mean" or "level" in others):
        raise site.fail(f"{role} {quoted(value)} cannot go with a tensor {others.pop()}")


def _check_number(site: Site, role: str, value: Any) -> None:
    if not is_number(value):
        raise site.fail(f"{role} must be a finite number, got {quoted(value)}")


def _check_groups(site: Site, role: str, value: Any) -> None:
    if not is_whole(value, 1, LARGEST_CHANNELS):
        raise site.fail(f"{role} must be a positive whole number, got {quoted(value)}")


def _conv_shape(site: Site) -> Shape:
    shape, attributes = site.shape("x"), site.operation.attributes
    binary, groups = site.operation.kind == "binary_conv", site.get("groups", 1)
    weight = site.operation.tensors["weight"]
    if weight.ndim != 4 or not 0 < weight.shape[0] <= LARGEST_CHANNELS:
        raise site.fail(f"tensor weight has the shape {weight.shape}, expected four sides")
    channels = weight.shape[0]
    if shape[2] % groups or channels % groups:
        raise site.fail(f"{groups} groups do not divide {shape[2]} and {channels} channels")
    site.tensor_shape(
        "weight", channels, *attributes["kernel"], bytes_for(shape[2]) if binary else shape[2] // groups
    )  # fmt: skip
    if binary:
        site.tail_bits("weight", shape[2])
    if site.operation.kind == "int8_conv":
        site.tensor_shape("zero", shape[2])
        if weight[0].size > LARGEST_INT8_TAPS:
            raise site.fail(f"{weight[0].size} taps, at most {LARGEST_INT8_TAPS} can be added up in whole numbers")
    for role in ("scale", "shift", "slope", "level", "threshold"):
        site.tensor_shape(role, channels)
    if "slope" in site.operation.tensors and "activation" not in attributes:
        raise site.fail("prelu, and nothing else, has a tensor slope")
    if "level" in site.operation.tensors and "bits" not in site.operation.outputs:
        raise site.fail("a level without bits to write")
    if "threshold" in site.operation.tensors and (
        set(site.operation.tensors) != {"weight", "threshold"}
        or set(site.operation.outputs) != {"bits"}
        or "residual" in site.operation.inputs
        or "activation" in attributes
    ):
        raise site.fail("a threshold replaces the whole finish and writes bits alone")
    result = (*site.window(shape), channels)
    if "residual" in site.operation.inputs and site.shape("residual") != result:
        raise site.fail(f"residual has the shape {site.shape('residual')}, expected {result}")
    return result


def _same_shape(site: Site) -> Shape:
    shape = site.shape("x")
    for role in ("scale", "shift", "slope", "level"):
        site.tensor_shape(role, shape[2])
    return shape


def _pool_shape(site: Site) -> Shape:
    shape = site.shape("x")
    if "invert" in site.operation.tensors:
        site.tensor_shape("invert", bytes_for(shape[2]))
        site.tail_bits("invert", shape[2])
    return (*site.window(shape, pool=True), shape[2])


def _adaptive_shape(site: Site) -> Shape:
    height, width = site.operation.attributes["size"]
    return height, width, site.shape("x")[2]


def _mean_shape(site: Site) -> Shape:
    height, width, channels = site.shape("x")
    return (1, 1, channels) if site.operation.attributes["over"] == "hw" else (height, width, 1)


def _broadcast_shape(site: Site) -> Shape:
    a, b = site.shape("a"), site.shape("b")
    if any(x != y and 1 not in (x, y) for x, y in zip(a, b, strict=True)):
        raise site.fail(f"shapes {a} and {b} do not fit together")
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])


def _concat_shape(site: Site) -> Shape:
    shapes = [site.shape(role) for role in site.operation.inputs]
    if len({shape[:2] for shape in shapes}) != 1:
        raise site.fail(f"pictures of different sizes: {quoted(shapes)}")
    return *shapes[0][:2], sum(shape[2] for shape in shapes)


def _reshape_shape(site: Site) -> Shape:
    before, after = site.shape("x"), site.shape("float", "outputs")
    if np.prod(before) != np.prod(after):
        raise site.fail(f"{before} cannot become {after}")
    return after


def _slice_shape(site: Site) -> Shape:
    attributes = site.operation.attributes
    sides = []
    for side, start, stop, step in zip(
        site.shape("x"), attributes["start"], attributes["stop"], attributes["step"], strict=True
    ):
        if not start < stop <= side:
            raise site.fail(f"slice {start}:{stop} is empty or leaves 0:{side}")
        sides.append((stop - start + step - 1) // step)
    return sides[0], sides[1], sides[2]


def _pad_shape(site: Site) -> Shape:
    before, after = site.operation.attributes["before"], site.operation.attributes["after"]
    height, width, channels = site.shape("x")
    return before[0] + height + after[0], before[1] + width + after[1], before[2] + channels + after[2]


def _constant_shape(site: Site) -> Shape:
    shape = site.shape("float", "outputs")
    site.tensor_shape("value", *shape)
    return shape


@dataclass(frozen=True)
class Kind:
    """Roles of an operation: buffers → their type, tensors → their dtypes (``?``: optional), attributes."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    tensors: dict[str, str]
    attributes: dict[str, _Attribute]
    shape: Callable[[Site], Shape]


_PAIR = _whole_numbers(2, 1, LARGEST_STEP)
_STEPS = {
    "kernel": _Attribute(_PAIR),
    "stride": _Attribute(_PAIR, optional=True),
    "padding": _Attribute(_whole_numbers(2, 0, LARGEST_PADDING), optional=True),
}
_DILATION = {"dilation": _Attribute(_PAIR, optional=True)}
_CEIL = {"ceil": _Attribute(_one_of(False, True), optional=True)}
_ACTIVATION = {"activation": _Attribute(_check_activation, optional=True)}
_TRIPLE = _Attribute(_whole_numbers(3, 0, LARGEST_CHANNELS))
_SIZE = {"size": _Attribute(_whole_numbers(2, 1, LARGEST_SIDE))}
_X, _FLOAT = {"x": "float"}, {"float": "float"}
_CONV_INPUTS, _CONV_OUTPUTS = {"residual": "float?"}, {"float": "float?", "bits": "bits?"}
_FINISH = {"scale": "float32?", "shift": "float32?", "slope": "float32?", "level": "float32?"}

KINDS: dict[str, Kind] = {
    "float_conv": Kind(
        _X | _CONV_INPUTS, _CONV_OUTPUTS, {"weight": "float32|int8"} | _FINISH,
        _STEPS | _DILATION | _ACTIVATION | {"groups": _Attribute(_check_groups, optional=True)}, _conv_shape,
    ),
    "int8_conv": Kind(
        {"x": "bytes"} | _CONV_INPUTS, _CONV_OUTPUTS, {"weight": "int8", "zero": "float32?"} | _FINISH,
        _STEPS | _DILATION | _ACTIVATION, _conv_shape,
    ),
    "binary_conv": Kind(
        {"x": "bits"} | _CONV_INPUTS, _CONV_OUTPUTS, {"weight": "uint8", "threshold": "int32?"} | _FINISH,
        _STEPS | _DILATION | _ACTIVATION | {"pad": _Attribute(_one_of(0, -1), optional=True)}, _conv_shape,
    ),
    "pack": Kind(
        _X, {"bits": "bits"}, {"scale": "float32?", "shift": "float32?", "level": "float32?"},
        {"level": _Attribute(_check_level, optional=True)}, _same_shape,
    ),
    "quantize": Kind(_X, {"bytes": "bytes"}, {"scale": "float32", "shift": "float32"}, {}, _same_shape),
    "affine": Kind(_X, _FLOAT, {"scale": "float32", "shift": "float32"}, {}, _same_shape),
    "activation": Kind(
        _X, _FLOAT, {"slope": "float32?"}, {"activation": _Attribute(_check_activation)}, _same_shape
    ),
    "max_pool": Kind(_X, _FLOAT, {}, _STEPS | _DILATION | _CEIL, _pool_shape),
    "avg_pool": Kind(
        _X, _FLOAT, {}, _STEPS | _CEIL | {"count_padding": _Attribute(_one_of(False, True), optional=True)},
        _pool_shape,
    ),
    "max_pool_bits": Kind({"x": "bits"}, {"bits": "bits"}, {"invert": "uint8?"}, _STEPS | _CEIL, _pool_shape),
    "adaptive_max_pool": Kind(_X, _FLOAT, {}, _SIZE, _adaptive_shape),
    "adaptive_avg_pool": Kind(_X, _FLOAT, {}, _SIZE, _adaptive_shape),
    "mean": Kind(_X, _FLOAT, {}, {"over": _Attribute(_one_of("hw", "c"))}, _mean_shape),
    "add": Kind({"a": "float", "b": "float"}, _FLOAT, {}, {}, _broadcast_shape),
    "multiply": Kind({"a": "float", "b": "float"}, _FLOAT, {}, {}, _broadcast_shape),
    "concat": Kind({}, _FLOAT, {}, {}, _concat_shape),
    "reshape": Kind(_X, _FLOAT, {}, {"order": _Attribute(_one_of("chw", "hwc"))}, _reshape_shape),
    "slice": Kind(
        _X, _FLOAT, {},
        {"start": _TRIPLE, "stop": _TRIPLE, "step": _Attribute(_whole_numbers(3, 1, LARGEST_CHANNELS))},
        _slice_shape,
    ),
    "pad": Kind(
        _X, _FLOAT, {},
        {"before": _TRIPLE, "after": _TRIPLE, "value": _Attribute(_check_number, optional=True)}, _pad_shape,
    ),
    "constant": Kind({}, _FLOAT, {"value": "float32"}, {}, _constant_shape),
}  # fmt: skip
