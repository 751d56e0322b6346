"""The comparison of two forms of a network: the allowed differences, and the result for each operation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.errors import ExportError
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation
from rbnn.text import quoted

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


def largest(values: NDArray[Any]) -> NDArray[Any]:
    """max|x| of each image, in a shape that broadcasts with the values."""
    return np.asarray(np.maximum(np.abs(values).max((1, 2, 3), keepdims=True), 1e-30), np.float64)


@dataclass(frozen=True)
class Sides:
    """The names of the two forms in error messages."""

    tested: str
    reference: str

    def float_difference(
        self, graph: Graph, operation: Operation, wanted: NDArray[Any], got: NDArray[Any], least: Any = 0.0
    ) -> float:
        """Relative to the largest value of each image, or to ``least``."""
        allowed = FLOAT_DIFFERENCE + average_rounds(graph, operation)
        apart = np.abs(wanted.astype(np.float64) - got) / np.maximum(largest(wanted), least)
        worst = float(apart.max(initial=0.0))
        if not worst <= allowed:
            raise ExportError(
                f"layer {quoted(operation.name)}: {self.tested} output differs from {self.reference} by {worst:.2g} of "
                f"its largest value, more than {allowed:.2g}"
            )
        return worst

    def near_ties(
        self,
        operation: Operation,
        differ: NDArray[Any],
        values: NDArray[Any],
        apart: NDArray[Any],
        least: float = 0.0,
    ) -> int:
        """The number of signs that differ.  ``values`` are those before the signs, and ``apart`` are their distances
        from the level, in double, where the difference of two floats is never rounded to 0.  The distances are relative
        to the largest value of each image, or to ``least``."""
        if differ.any():
            worst = float((np.abs(apart) / np.maximum(largest(values), least))[differ].max())
            if worst > NEAR_TIE:
                raise ExportError(
                    f"layer {quoted(operation.name)}: {int(differ.sum())} of {differ.size} signs differ "
                    f"from {self.reference}, one at a distance of {worst:.2g} of the largest value from its "
                    f"threshold, more than {NEAR_TIE:g}"
                )
        return int(differ.sum())

    def answer_difference(
        self, differences: NDArray[Any], same: NDArray[Any], rounds: float = 0.0
    ) -> tuple[int, float]:
        """The number of images in which a sign differs, and the largest difference of the outputs of the others."""
        worst = float(differences[same].max(initial=0.0))
        if not worst <= ANSWER_DIFFERENCE + rounds:
            raise ExportError(
                f"{self.tested} outputs differ from {self.reference} by {worst:.2g} although no sign differs: expected "
                f"at most {ANSWER_DIFFERENCE + rounds:.2g}"
            )
        return int((~same).sum()), worst
