"""What an export says about itself."""

from dataclasses import dataclass
from pathlib import Path

from rbnn.exporting.check import Compared, Comparison
from rbnn.packed.graph import Graph


@dataclass(frozen=True)
class ExportReport:
    """A packed network, written and compared with torch."""

    path: Path
    bytes: int
    """Size of the file."""
    binary_layers: int
    float_layers: int
    layers: list[Compared]
    """Every operation that torch has a counterpart of, in the order in which they run."""
    images: int
    """Pictures that were compared."""
    signs: int
    """Signs that were compared, each operation fed torch's own values."""
    near_ties: int
    """Of these, signs that differ; each where its value nearly is the threshold."""
    images_with_near_ties: int
    """Pictures in which a sign differs when the packed network runs by itself."""
    largest_difference: float
    """Of a float value of any layer, relative to the largest value of its picture."""
    answer_difference: float
    """Of the answers to pictures in which no sign differs."""
    changed_by_int8: int | None
    """Pictures whose largest answer is another since float layers are int8; None where none is."""

    @classmethod
    def of(cls, path: Path, graph: Graph, comparison: Comparison, changed_by_int8: int | None) -> "ExportReport":
        layers = comparison.operations
        kinds = [operation.kind for operation in graph.operations]
        return cls(
            path,
            path.stat().st_size,
            kinds.count("binary_conv"),
            kinds.count("float_conv") + kinds.count("int8_conv"),
            layers,
            comparison.images,
            sum(layer.signs for layer in layers),
            sum(layer.near_ties for layer in layers),
            comparison.images_with_near_ties,
            max((layer.difference for layer in layers), default=0.0),
            comparison.answer_difference,
            changed_by_int8,
        )

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.bytes:,} bytes, {self.binary_layers} binary, {self.float_layers} float convolutions\n"
            f"layer by layer beside torch: {self.near_ties} of {self.signs:,} signs differ, each at a near-tie; "
            f"floats by at most {self.largest_difference:.1g} of the largest value\n"
            f"by itself: signs differ in {self.images_with_near_ties} of {self.images} images; answers to the others "
            f"by at most {self.answer_difference:.1g}"
            + ("" if self.changed_by_int8 is None else f"\nint8 changes the class of {self.changed_by_int8} of them")
        )
