"""The result of a training run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rbnn import notebook
from rbnn.text import plural
from rbnn.training.layer_measures import mean_measures


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a training run."""

    out: Path
    best_top1: float
    last: dict[str, Any]
    """The log entry of the last epoch; empty if no epoch was finished."""
    classes: int = 0
    """Number of classes, 0 if unknown."""

    def facts(self) -> dict[str, str]:
        """A summary for people, by name: accuracy, and the means of the binary layers."""
        if not self.last:
            return {"epochs": "none finished"}
        judged = "held-out images" if self.last["evaluated_on"] == "validation" else "test images"
        found = {
            "epochs": str(self.last["epoch"] + 1),
            "accuracy": f"{self.last['top1']:.2f} % of the {judged} after the last epoch, best {self.best_top1:.2f} %",
            "in training": f"{self.last['train_top1']:.2f} %, loss {self.last['loss']:.3f}",
        }
        if layers := self.last["layers"]:
            means = mean_measures(layers)
            words = {"angle": "angle {:.1f}°", "error": "relative error {:.3f}", "flips": "{:.0%} of the signs flipped"}
            said = [text.format(means[key]) for key, text in words.items() if means.get(key) is not None]
            found[plural(len(layers), "binary layer")] = ", ".join(said) + " on average"
        return found

    def __repr__(self) -> str:
        return "\n".join([f"run in {self.out}", *(f"  {name}: {value}" for name, value in self.facts().items())])

    def _repr_html_(self) -> str:
        return notebook.table(f"run in {self.out}", self.facts().items())
