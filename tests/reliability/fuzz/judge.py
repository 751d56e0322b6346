"""Compare a network on every instruction set and thread count with the oracle: each operation with the oracle's own
input, and the network as a whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn import _core
from rbnn.errors import InputError, PackError
from rbnn.packed import oracle
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation
from rbnn.packed.session import Session

KERNELS = [name for name, supported in _core.kernels() if supported]
THREADS = (1, 2, 3)
ROUNDING = 1e-6
"""Tolerance of a sum of products, relative to the largest value in the window times the sum of |weights|."""
SMALLEST = 2.0**-149
"""The distance of floats near 0, by which each product may be rounded, however small it is."""
AVERAGES = ("mean", "avg_pool", "adaptive_avg_pool")

FLOAT = 2.0**-22
"""Tolerance of results that were computed in double and rounded once, relative to the larger one."""
COMPUTED = ("reduce", "softmax", "standardize", "local_norm", "resize", "matmul")
SMOOTH = (
    "elu", "selu", "gelu", "gelu_tanh", "silu", "softplus", "tanh", "hardsigmoid", "mish", "exp", "power",
)  # fmt: skip

Array = NDArray[Any]


def judge(graph: Graph, images: list[NDArray[np.float32]]) -> None:
    """Raise AssertionError unless all agree: on values, on signs that are not near-ties, or on raising an error.
    ``images`` has those of each input."""
    try:
        wanted = oracle.run_all(graph, images)
    except InputError as reason:
        if "pass fewer images" in str(reason):  # the oracle keeps every buffer, and has no room for these
            return
        for kernels in KERNELS:
            try:
                Session(graph, kernels=kernels)(*images)
            except (InputError, PackError):  # during the call, or already during loading
                continue
            raise AssertionError(f"{kernels} answers where the oracle overflows") from None
        return
    given = {name: values.astype(np.float32) for name, values in wanted.items() if name not in graph.inputs}
    sites = [_site(graph, operation, wanted) for operation in graph.operations]
    overflow = set()  # kernels that overflow on bytes, which the oracle was not given
    for kernels in KERNELS:
        session = Session(graph, kernels=kernels)
        traced = images if graph.input.names else images[0]
        seen = session.trace(traced, given)
        for site in sites:
            _compare(site, wanted, seen, kernels)
        _compare_calls(session, images, session.trace(traced, {}))
        if session.takes_bytes:
            pixels = np.random.default_rng(len(graph.operations)).integers(0, 256, images[0].shape, np.uint8)
            stored = {graph.operations[0].outputs["bytes"]: pixels.transpose(0, 2, 3, 1)}
            from_bytes = session.trace(traced, stored)
            try:
                _compare_calls(session, [pixels], from_bytes)
            except InputError:
                overflow.add(kernels)
    assert overflow in (set(), set(KERNELS)), f"only {overflow} overflow on bytes"


def _compare_calls(session: Session, images: list[Array], traced: dict[str, Array]) -> None:
    """Calls with every count of threads return what a trace has seen, in the shapes that the network declares."""
    expected = session.graph.answered(lambda name: traced[name].transpose(0, 3, 1, 2))
    for session.threads in THREADS:  # passed with each call; the program is the same
        assert_same(expected, session(*images), f"{session.kernels}: {session.threads} threads and a trace")


def assert_same(one: Any, other: Any, who: str) -> None:
    """Both answers are nested alike, with the same arrays."""
    assert type(one) is type(other), f"{who} nest their answers in two ways"
    if isinstance(one, np.ndarray):
        assert np.array_equal(one, other), f"{who} differ in their answers"
        return
    assert not isinstance(one, dict) or list(one) == list(other), f"{who} name their answers in two ways"
    parts = [list(each.values()) if isinstance(each, dict) else each for each in (one, other)]
    assert len(parts[0]) == len(parts[1]), f"{who} have different numbers of answers"
    for both in zip(*parts, strict=True):
        assert_same(*both, who)


@dataclass(frozen=True)
class _Site:
    """What any kernel may write for one operation."""

    operation: Operation
    allowed: Any
    """By how much a value may differ."""
    tied: Any
    """Which signs may be either."""


def _site(graph: Graph, operation: Operation, wanted: dict[str, Array]) -> _Site:
    inputs = {role: wanted[name] for role, name in operation.inputs.items()}
    allowed = _allowed(operation, inputs)
    if operation.kind in COMPUTED or operation.attributes.get("activation", ["abs"])[0] in SMOOTH:
        written = operation.outputs.get("float")
        allowed = (
            allowed
            + FLOAT * (np.abs(wanted[written].astype(np.float64)) if written else 1e3)
            + _cancelled(operation, inputs)
        )
    tied: Any = False
    if "bits" in operation.outputs and np.max(allowed) > 0:
        tied = _distance(operation, inputs, wanted) <= allowed
    return _Site(operation, allowed, tied)


def _compare(site: _Site, wanted: dict[str, Array], seen: dict[str, Array], kernels: str) -> None:
    where = f"{kernels}: {site.operation.name}"
    for role, name in site.operation.outputs.items():
        right, got = wanted[name].astype(np.float64), seen[name].astype(np.float64)
        if role == "bits":
            assert ((right == got) | site.tied).all(), f"{where}: signs differ"
        else:
            off = np.abs(right - got)
            assert (off <= site.allowed).all(), f"{where}: off by {off.max():.3g}"


def _allowed(operation: Operation, inputs: dict[str, Array]) -> Any:
    """By how much a value may differ: not at all, except for sums of products, averages and exp."""
    kind, attributes, tensors = operation.kind, operation.attributes, operation.tensors
    slack: Any = 0.0
    if kind == "float_conv":
        groups, weight = attributes.get("groups", 1), np.abs(tensors["weight"].astype(np.float64))
        parts = []
        for x, filters in zip(np.split(inputs["x"], groups, 3), np.split(weight, groups, 0), strict=True):
            largest = np.abs(x).max(3, keepdims=True).astype(np.float64)
            under = np.max(oracle._windows(largest, attributes, 0.0), 0)
            rounded = ROUNDING * under * filters.sum((1, 2, 3))
            parts.append(np.where(rounded > 0, rounded + SMALLEST * filters[0].size, 0))
        slack = np.concatenate(parts, -1) * np.abs(tensors.get("scale", np.float32(1)))
        slack = slack * max(2.0, float(np.abs(tensors.get("slope", np.float32(1))).max()))
        slack = slack * (1 + _largest_step(operation))
        residual = np.abs(inputs["residual"]).max(initial=0.0) if "residual" in inputs else 0.0
        shift = np.abs(tensors.get("shift", np.float32(0))).max()
        slack = slack + np.where(slack > 0, 1e-6 * (residual + shift) + SMALLEST, 0.0)
    elif kind in AVERAGES or (kind == "pack" and attributes.get("level") == "mean"):
        slack = 2.0**-23 * max(np.abs(inputs["x"]).max(), 1e-30)
    if attributes.get("activation") == ["sigmoid"]:
        slack = slack + 2.0**-22
    return slack


def _cancelled(operation: Operation, inputs: dict[str, Array]) -> float:
    """The rounding error of doubles if large numbers cancel."""
    largest = [float(np.abs(each).max()) for each in inputs.values()]
    if operation.kind == "matmul":
        return 1e-13 * largest[0] * largest[1] * inputs["a"].shape[2]
    if operation.kind == "standardize":
        return float(1e-13 * largest[0] / np.sqrt(operation.attributes["eps"]))
    return 1e-13 * largest[0] * inputs["x"][0].size if operation.kind in COMPUTED else 1e-13


def _largest_step(operation: Operation) -> float:
    """hardswish of a large value multiplies it by up to itself / 6 before it divides."""
    return 1.0 if operation.attributes.get("activation") == ["hardswish"] else 0.0


def _distance(operation: Operation, inputs: dict[str, Array], wanted: dict[str, Array]) -> Array:
    """|value − level| of each sign, from the oracle's values."""
    if operation.kind == "pack":
        x = inputs["x"].astype(np.float64)
        level = x.mean((1, 2, 3), keepdims=True) if operation.attributes.get("level") == "mean" else 0.0
        return np.asarray(np.abs(x - level))
    if "float" in operation.outputs:
        values = wanted[operation.outputs["float"]]
    elif operation.kind == "float_conv":
        values = oracle.finish(
            oracle.float_conv(inputs["x"], operation.tensors, operation.attributes), inputs, operation.tensors,
            operation.attributes,
        )["float"]  # fmt: skip
    else:
        return np.asarray(np.inf)
    return np.asarray(np.abs(values.astype(np.float64) - operation.tensors.get("level", np.float32(0))))
