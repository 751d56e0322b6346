"""The operations of a packed network and their rules.

docs/format.md describes each kind; the table ``KINDS`` is the same list for the machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rbnn.packed.attributes import (
    ACTIVATIONS,
    Attribute,
    check_activation,
    check_eps,
    check_groups,
    check_level,
    check_number,
    check_order,
    check_places,
    check_scale,
    check_sides,
    is_number,
    is_whole,
    one_of,
    whole_numbers,
)
from rbnn.packed.limits import (
    LARGEST_BUFFER,
    LARGEST_CHANNELS,
    LARGEST_NETWORK,
    LARGEST_PADDING,
    LARGEST_SIDE,
    LARGEST_STEP,
    MOST_SIDES,
)
from rbnn.packed.shapes import (
    adaptive_shape,
    broadcast_shape,
    bytes_for,
    concat_shape,
    constant_shape,
    conv_shape,
    matmul_shape,
    pad_shape,
    permute_shape,
    pool_shape,
    reduced_shape,
    reshape_shape,
    resize_shape,
    same_shape,
    select_shape,
    slice_shape,
    standardize_shape,
)
from rbnn.packed.site import Buffer, Operation, Shape, Site
from rbnn.text import quoted

__all__ = [
    "ACTIVATIONS", "KINDS", "LARGEST_BUFFER", "LARGEST_CHANNELS", "LARGEST_NETWORK", "LARGEST_SIDE", "MOST_SIDES",
    "Buffer", "Kind", "Operation", "Shape", "Site", "bytes_for", "check", "is_number", "is_whole",
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """The roles of an operation: buffers with their types, tensors with their dtypes (``?``: optional), attributes."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    tensors: dict[str, str]
    attributes: dict[str, Attribute]
    shape: Callable[[Site], Shape]


_PAIR = whole_numbers(2, 1, LARGEST_STEP)
_STEPS = {
    "kernel": Attribute(_PAIR),
    "stride": Attribute(_PAIR, optional=True),
    "padding": Attribute(whole_numbers(2, 0, LARGEST_PADDING), optional=True),
}
_DILATION = {"dilation": Attribute(_PAIR, optional=True)}
_CEIL = {"ceil": Attribute(one_of(False, True), optional=True)}
_ACTIVATION = {"activation": Attribute(check_activation, optional=True)}
_GROUPS = {"groups": Attribute(check_groups, optional=True)}
_TRIPLE = Attribute(whole_numbers(3, 0, LARGEST_CHANNELS))
_SIZE = {"size": Attribute(whole_numbers(2, 1, LARGEST_SIDE))}
_YES_OR_NO = one_of(False, True)
_AXIS = {"axis": Attribute(one_of("c", "h", "w"), optional=True)}
_OVER = {"over": Attribute(one_of("h", "w", "c", "hw", "hc", "wc", "hwc"))}
_PAIR_OF_PICTURES = {"a": "float", "b": "float"}
_X, _FLOAT = {"x": "float"}, {"float": "float"}
_CONV_INPUTS, _CONV_OUTPUTS = {"residual": "float?"}, {"float": "float?", "bits": "bits?"}
_FINISH = {"scale": "float32?", "shift": "float32?", "slope": "float32?", "level": "float32?"}

KINDS: dict[str, Kind] = {
    "float_conv": Kind(
        _X | _CONV_INPUTS, _CONV_OUTPUTS, {"weight": "float32|int8"} | _FINISH,
        _STEPS | _DILATION | _ACTIVATION | _GROUPS, conv_shape,
    ),
    "int8_conv": Kind(
        {"x": "bytes"} | _CONV_INPUTS, _CONV_OUTPUTS, {"weight": "int8", "zero": "float32?"} | _FINISH,
        _STEPS | _DILATION | _ACTIVATION, conv_shape,
    ),
    "binary_conv": Kind(
        {"x": "bits"} | _CONV_INPUTS, _CONV_OUTPUTS, {"weight": "uint8", "threshold": "int32?"} | _FINISH,
        _STEPS | _DILATION | _ACTIVATION | _GROUPS | {"pad": Attribute(one_of(0, -1), optional=True)}, conv_shape,
    ),
    "pack": Kind(
        _X, {"bits": "bits"}, {"scale": "float32?", "shift": "float32?", "level": "float32?"},
        {"level": Attribute(check_level, optional=True)}, same_shape,
    ),
    "quantize": Kind(_X, {"bytes": "bytes"}, {"scale": "float32", "shift": "float32"}, {}, same_shape),
    "affine": Kind(_X, _FLOAT, {"scale": "float32", "shift": "float32"}, {}, same_shape),
    "activation": Kind(
        _X, _FLOAT, {"slope": "float32?"}, {"activation": Attribute(check_activation)}, same_shape
    ),
    "max_pool": Kind(_X, _FLOAT, {}, _STEPS | _DILATION | _CEIL, pool_shape),
    "avg_pool": Kind(
        _X, _FLOAT, {}, _STEPS | _CEIL | {"count_padding": Attribute(one_of(False, True), optional=True)},
        pool_shape,
    ),
    "max_pool_bits": Kind({"x": "bits"}, {"bits": "bits"}, {"invert": "uint8?"}, _STEPS | _CEIL, pool_shape),
    "adaptive_max_pool": Kind(_X, _FLOAT, {}, _SIZE, adaptive_shape),
    "adaptive_avg_pool": Kind(_X, _FLOAT, {}, _SIZE, adaptive_shape),
    "mean": Kind(_X, _FLOAT, {}, _OVER, reduced_shape),
    "reduce": Kind(_X, _FLOAT, {}, _OVER | {"how": Attribute(one_of("sum", "max", "min"))}, reduced_shape),
    "softmax": Kind(_X, _FLOAT, {}, _OVER | {"log": Attribute(_YES_OR_NO, optional=True)}, same_shape),
    "standardize": Kind(
        _X, _FLOAT, {}, _OVER | _GROUPS | {"eps": Attribute(check_eps)},
        standardize_shape,
    ),
    "local_norm": Kind(
        _X, _FLOAT, {},
        {
            "window": Attribute(check_groups), "alpha": Attribute(check_number),
            "beta": Attribute(check_number), "k": Attribute(check_number),
        },
        same_shape,
    ),
    "add": Kind(_PAIR_OF_PICTURES, _FLOAT, {}, {}, broadcast_shape),
    "multiply": Kind(_PAIR_OF_PICTURES, _FLOAT, {}, {}, broadcast_shape),
    "divide": Kind(_PAIR_OF_PICTURES, _FLOAT, {}, {}, broadcast_shape),
    "maximum": Kind(_PAIR_OF_PICTURES, _FLOAT, {}, {}, broadcast_shape),
    "minimum": Kind(_PAIR_OF_PICTURES, _FLOAT, {}, {}, broadcast_shape),
    "matmul": Kind(_PAIR_OF_PICTURES, _FLOAT, {}, {}, matmul_shape),
    "concat": Kind({}, _FLOAT, {}, _AXIS, concat_shape),
    "permute": Kind(
        _X, _FLOAT, {}, {"sides": Attribute(check_sides), "order": Attribute(check_order)}, permute_shape
    ),
    "resize": Kind(
        _X, _FLOAT, {},
        _SIZE | {
            "mode": Attribute(one_of("nearest", "nearest_exact", "bilinear", "bicubic")),
            "align": Attribute(_YES_OR_NO, optional=True), "scale": Attribute(check_scale, optional=True),
        },
        resize_shape,
    ),
    "reshape": Kind(_X, _FLOAT, {}, {"order": Attribute(one_of("chw", "hwc"))}, reshape_shape),
    "slice": Kind(
        _X, _FLOAT, {},
        {"start": _TRIPLE, "stop": _TRIPLE, "step": Attribute(whole_numbers(3, 1, LARGEST_CHANNELS))},
        slice_shape,
    ),
    "select": Kind(_X, _FLOAT, {}, _AXIS | {"places": Attribute(check_places)}, select_shape),
    "pad": Kind(
        _X, _FLOAT, {},
        {
            "before": _TRIPLE, "after": _TRIPLE, "value": Attribute(check_number, optional=True),
            "mode": Attribute(one_of("constant", "reflect", "replicate", "circular"), optional=True),
        },
        pad_shape,
    ),
    "constant": Kind({}, _FLOAT, {"value": "float32"}, {}, constant_shape),
}  # fmt: skip


def check(site: Site, written: set[str]) -> None:
    """Raise PackError unless the operation is valid at its place.  ``written`` contains the buffers written so far."""
    operation = site.operation
    if operation.kind not in KINDS:
        raise site.fail(f"unknown kind, expected one of {', '.join(KINDS)}")
    kind = KINDS[operation.kind]
    inputs = kind.inputs
    if operation.kind == "concat":
        inputs = {f"x{i}": "float" for i in range(max(len(operation.inputs), 1))}
    _roles(site, "input", operation.inputs, inputs)
    _roles(site, "output", operation.outputs, kind.outputs)
    _roles(site, "tensor", operation.tensors, kind.tensors)
    _roles(site, "attribute", operation.attributes, kind.attributes)
    if not operation.outputs:
        raise site.fail("writes nothing")
    for role, name in operation.inputs.items():
        if name not in written:
            raise site.fail(f"input {role} reads {quoted(name)}, which nothing has written")
        _type(site, role, name, inputs[role])
    for role, name in operation.outputs.items():
        if name in written or name not in site.buffers:
            raise site.fail(f"output {role} is {quoted(name)}: not a buffer, or written twice")
        _type(site, role, name, kind.outputs[role])
    if len(set(operation.outputs.values())) != len(operation.outputs):
        raise site.fail("writes one buffer twice")
    for role, tensor in operation.tensors.items():
        expected = kind.tensors[role].rstrip("?")
        if str(tensor.dtype) not in expected.split("|"):
            raise site.fail(f"tensor {role} is {tensor.dtype}, expected {expected}")
    for role, value in operation.attributes.items():
        kind.attributes[role].check(site, role, value)
    shape = kind.shape(site)
    for role in operation.outputs:
        if (declared := site.shape(role, "outputs")) != shape:
            raise site.fail(f"output {role} is declared {declared}, but comes out as {shape}")


def _roles(site: Site, what: str, given: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for role in given:
        if role not in known:
            raise site.fail(f"has no {what} {quoted(role)}")
    for role, rule in known.items():
        optional = rule.optional if isinstance(rule, Attribute) else rule.endswith("?")
        if not optional and role not in given:
            raise site.fail(f"{what} {quoted(role)} is missing")


def _type(site: Site, role: str, name: str, rule: str) -> None:
    if site.buffers[name].type != rule.rstrip("?"):
        raise site.fail(f"{role} must be a {rule.rstrip('?')} buffer")
