"""What an export says about itself."""

from dataclasses import dataclass
from pathlib import Path

from rbnn import notebook
from rbnn.packed.comparison import Compared, Comparison
from rbnn.packed.graph import Graph
from rbnn.text import plural


@dataclass(frozen=True, repr=False)
class ExportReport:
    """A network, written and compared with what it was made from."""

    path: Path
    bytes: int
    """Size of the file."""
    binary_layers: int
    float_layers: int
    layers: list[Compared]
    """Every operation that has a counterpart there, in the order in which they run."""
    images: int
    """Pictures that were compared."""
    signs: int
    """Signs that were compared, each operation fed the values that it was made from."""
    near_ties: int
    """Of these, signs that differ; each where its value nearly is the threshold."""
    images_with_near_ties: int
    """Pictures in which a sign differs when the written network runs by itself."""
    largest_difference: float
    """Of a float value of any layer, relative to the largest value of its picture."""
    answer_difference: float
    """Of the answers to pictures in which no sign differs."""
    changed_by_int8: int | None
    """Pictures whose largest answer is another since float layers are int8; None where none is."""
    beside: str = "torch"
    """What it was made from and compared with."""

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
        """What came of it, for people."""
        signs = f"all {self.signs:,} signs are the same"
        if self.near_ties:
            differ = "1 sign differs" if self.near_ties == 1 else f"{self.near_ties:,} signs differ"
            signs = f"{differ} of {self.signs:,}, always where the value nearly is the threshold"
        other, answers = self.images_with_near_ties, f"answers differ by at most {self.answer_difference:.1g}"
        whole = f"no sign differs in {plural(self.images, 'image')}; {answers}"
        if other:
            rest = f"; in the {self.images - other} others {answers}" if other < self.images else ""
            whole = f"signs differ in {other} of {plural(self.images, 'image')}{rest}"
        found = {
            str(self.path): f"{self.bytes:,} bytes, {self.binary_layers} binary, {self.float_layers} float "
            "convolutions",
            f"layer by layer beside {self.beside}": f"{signs}; floats differ by at most {self.largest_difference:.1g} "
            "of the largest value",
            "by itself": whole,
        }
        if self.changed_by_int8 is not None:
            found["int8"] = f"changes the class of {self.changed_by_int8} of {plural(self.images, 'image')}"
        return found

    def __repr__(self) -> str:
        """For people: the layers, one after the other, are in ``layers``."""
        return "\n".join(f"{name}: {value}" for name, value in self._facts().items())

    def _repr_html_(self) -> str:
        return notebook.table("packed network", self._facts().items())
