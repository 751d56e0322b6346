"""The comparison of two forms of a network: the allowed differences, and the result for each operation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation

NEAR_TIE = 4e-6
"""A sign may differ if |x − threshold| is at most this times max|x| of the image."""

FLOAT_DIFFERENCE = 5e-5
"""Largest difference of a float value, relative to max|x| of the image: sums are in another order, and affines are
folded."""

ANSWER_DIFFERENCE = 1e-3
"""Largest difference of an output for an image in which no sign differs, relative to its largest value or 1."""

AVERAGES = ("mean", "avg_pool", "adaptive_avg_pool")
FLOAT_STEP = 2.0**-24
"""Rounding error per addition of programs that average in float32; the engine averages in double."""


@dataclass(frozen=True)
class Compared:
    """One operation compared with its counterpart."""

    name: str
    kind: str
    difference: float
    """Largest difference of its float values, relative to the largest value of the image."""
    signs: int
    near_ties: int
    """Number of signs that differ, each with a value within rounding of the threshold."""


@dataclass(frozen=True)
class Comparison:
    """All operations that have a counterpart, and the network as a whole."""

    operations: list[Compared]
    images: int
    images_with_near_ties: int
    """Number of images in which a sign differs when the network runs as a whole."""
    answer_difference: float
    """Largest difference of the outputs, over the other images."""


def average_rounds(graph: Graph, operation: Operation) -> float:
    """How far an average in float32 may be from the exact one, relative to the largest value."""
    if operation.kind not in AVERAGES:
        return 0.0
    before, after = graph.buffers[operation.inputs["x"]].shape, graph.buffers[operation.outputs["float"]].shape
    taps = np.prod(operation.attributes.get("kernel") or [np.prod(before) // np.prod(after)])
    return float(taps) * FLOAT_STEP


def leaves(answer: Any) -> list[NDArray[Any]]:
    """The arrays of an output, in order."""
    if isinstance(answer, np.ndarray):
        return [answer]
    return [each for part in (answer.values() if isinstance(answer, dict) else answer) for each in leaves(part)]


def answer_differences(wanted: NDArray[Any], got: NDArray[Any]) -> NDArray[Any]:
    """The difference of the output for each image, relative to its largest value or 1."""
    wanted, got = (each.reshape(len(each), -1).astype(np.float64) for each in (wanted, got))
    return np.asarray(np.abs(wanted - got).max(1) / np.maximum(np.abs(wanted).max(1), 1))
