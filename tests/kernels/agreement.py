"""Random operations, and their comparison with the oracle for each instruction set."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from packed_networks import expected, image_for

from rbnn import _core
from rbnn.packed.graph import Graph
from rbnn.packed.operations import ACTIVATIONS
from rbnn.packed.session import Session

KERNELS = [name for name, supported in _core.kernels() if supported]
every_kernel = pytest.mark.parametrize("kernels", KERNELS)
often = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
EXACT, CLOSE = 0.0, 2e-5


def agree(graph: Graph, kernels: str, rng: np.random.Generator, tolerance: float) -> None:
    image = image_for(graph, rng)
    wanted = expected(graph, image)
    for threads in (1, 2):
        got = Session(graph, threads, kernels)(image)
        assert got.shape == wanted.shape
        if tolerance == EXACT:
            np.testing.assert_array_equal(got, wanted)
        else:
            np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * max(np.abs(wanted).max(), 1))


def side(kernel: int, stride: int, padding: int, dilation: int, size: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@st.composite
def windows(draw: st.DrawFn, largest_kernel: int = 11) -> dict[str, list[int]]:
    """Kernel, stride, padding, dilation and an image that is large enough, often smaller than its padding."""
    window: dict[str, list[int]] = {"kernel": [], "stride": [], "padding": [], "dilation": [], "size": []}
    for _ in range(2):
        kernel, dilation = draw(st.integers(1, largest_kernel)), draw(st.integers(1, 3))
        padding, reach = draw(st.integers(0, 9)), dilation * (kernel - 1) + 1
        window["size"].append(draw(st.integers(max(1, reach - 2 * padding), max(1, reach - 2 * padding) + 6)))
        window["kernel"].append(kernel)
        window["stride"].append(draw(st.integers(1, 3)))
        window["padding"].append(padding)
        window["dilation"].append(dilation)
    return window


def convolved(window: dict[str, list[int]], channels: int) -> tuple[int, int, int]:
    height, width = (
        side(*values)
        for values in zip(
            window["kernel"], window["stride"], window["padding"], window["dilation"], window["size"], strict=True
        )
    )
    return height, width, channels


NUMBERS = {"hardtanh": [-0.5, 2.0], "leaky_relu": [0.2], "elu": [0.7], "softplus": [2.0, 5.0], "power": [2.0]}
"""The parameters of activations."""
EXACT_ACTIVATIONS = ("hardtanh", "relu", "relu6", "leaky_relu", "prelu", "hardswish", "abs")
"""The others differ in the last place between libraries."""
activations = st.sampled_from(sorted(ACTIVATIONS)).flatmap(
    lambda name: st.just({
        "hardtanh": ["hardtanh", -1.0, 1.0],
        "leaky_relu": ["leaky_relu", 0.1],
    }.get(name, [name, *NUMBERS.get(name, [])]))
)  # fmt: skip
channel_counts = st.one_of(st.sampled_from([1, 8, 16, 24, 32, 63, 64, 65, 72, 128]), st.integers(1, 140))


def finish(draw: Any, rng: np.random.Generator, channels: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Random tensors and attributes for the end of a convolution."""
    tensors: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for role in ("scale", "shift", "level"):
        if draw(st.booleans()):
            tensors[role] = rng.normal(size=channels).astype(np.float32)
    if draw(st.booleans()):
        attributes["activation"] = draw(activations)
        if attributes["activation"] == ["prelu"]:
            tensors["slope"] = rng.normal(size=channels).astype(np.float32)
    return tensors, attributes


def exact_ends(draw: Any, tensors: Any, attributes: Any, read: Any, written: Any) -> tuple[Any, dict[str, Any]]:
    """The outputs of an exact convolution and the shapes of its inputs; removes incompatible tensors."""
    roles = draw(st.sampled_from([("float",), ("bits",), ("float", "bits")]))
    if "bits" not in roles:
        tensors.pop("level", None)
    if attributes.get("activation", ["relu"])[0] not in EXACT_ACTIVATIONS:
        del attributes["activation"]
    inputs = {"x": read}
    if draw(st.booleans()):
        inputs["residual"] = written
    return roles, inputs


@st.composite
def grouped(draw: st.DrawFn) -> tuple[int, int, int]:
    """Groups, and the channels that each reads and writes."""
    groups = draw(st.sampled_from([1, 1, 2, 3, 7]))
    counts = channel_counts if groups == 1 else st.one_of(st.sampled_from([1, 8, 32, 64]), st.integers(1, 70))
    return groups, draw(counts), draw(counts)
