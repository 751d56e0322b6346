"""The report of an export."""

from dataclasses import dataclass
from pathlib import Path

from rbnn import notebook
from rbnn.packed.comparison import Compared, Comparison
from rbnn.packed.graph import Graph
from rbnn.text import plural


@dataclass(frozen=True, repr=False)
class ExportReport:
    """The result of an export: the written network, compared with its source."""

    path: Path
    bytes: int
    """Size of the file."""
    binary_layers: int
    float_layers: int
    layers: list[Compared]
    """Every operation that has a counterpart in the source, in the order of execution."""
    images: int
    """Number of images that were compared."""
    signs: int
    """Number of signs that were compared, with each operation given its counterpart's input."""
    near_ties: int
    """Number of signs that differ, each with a value within rounding of the threshold."""
    images_with_near_ties: int
    """Number of images in which a sign differs when the written network runs as a whole."""
    largest_difference: float
    """Largest difference of a float value in any layer, relative to the largest value of its image."""
    answer_difference: float
    """Largest difference of the outputs for images in which no sign differs."""
    changed_by_int8: int | None
    """Number of images whose class changed because float layers are int8; None without int8 layers."""
    beside: str = "torch"
    """What the network was made from and compared with."""

    @classmethod
    def of(
        cls, path: Path, graph: Graph, comparison: Comparison, changed_by_int8: int | None, beside: str = "torch"
    ) -> "ExportReport":
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
            beside,
        )

    def _facts(self) -> dict[str, str]:
        """The results for people, by name."""
        signs = f"all {self.signs:,} signs are the same; " if self.signs else ""
        if self.near_ties:
            differ = "1 sign differs" if self.near_ties == 1 else f"{self.near_ties:,} signs differ"
            signs = f"{differ} of {self.signs:,}, always where the value is within rounding of the threshold; "
        other, answers = self.images_with_near_ties, f"outputs differ by at most {self.answer_difference:.1g}"
        whole = f"no sign differs in {plural(self.images, 'image')}; {answers}" if self.signs else answers
        if other:
            rest = f"; in the other {self.images - other} {answers}" if other < self.images else ""
            whole = f"signs differ in {other} of {plural(self.images, 'image')}{rest}"
        found = {
            str(self.path): f"{self.bytes:,} bytes, {self.binary_layers} binary and "
            f"{plural(self.float_layers, 'float layer')}",
            f"each layer compared with {self.beside}": f"{signs}floats differ by at most "
            f"{self.largest_difference:.1g} of the largest value",
            "whole network": whole,
        }
        if not self.binary_layers:
            found["warning"] = "nothing was binarized, so all layers are float; call rbnn.binarize_ before training"
        if self.changed_by_int8 is not None:
            found["int8"] = f"changes the class of {self.changed_by_int8} of {plural(self.images, 'image')}"
        return found

    def __repr__(self) -> str:
        """A summary for people; ``layers`` has the single layers."""
        return "\n".join(f"{name}: {value}" for name, value in self._facts().items())

    def _repr_html_(self) -> str:
        return notebook.table("packed network", self._facts().items())
