"""How a run is watched while it trains."""

import time
import warnings
from html import escape
from typing import Any

from rbnn import notebook
from rbnn.training.config import TrainConfig

PAUSE = 0.2
"""Seconds between two updates of a cell: more would only load the browser."""


class Progress:
    """Whoever wants to watch a run overrides these."""

    def begin(self, config: TrainConfig, steps: int, epoch: int, step: int) -> None:
        """Training starts, or goes on, at ``step`` of ``epoch``; an epoch has ``steps``."""

    def step(self, images: int, loss: float, top1: float) -> None:
        """A step is done: so many images, mean loss and accuracy of the epoch so far."""

    def epoch(self, entry: dict[str, Any]) -> None:
        """An epoch is done and logged."""

    def notice(self, sentence: str) -> None:
        """Something that the user should know, though the run goes on."""
        warnings.warn(sentence, stacklevel=2)


class NotebookProgress(Progress):
    """A bar and the newest numbers in one cell's output, which keeps the last state when the notebook is saved."""

    def begin(self, config: TrainConfig, steps: int, epoch: int, step: int) -> None:
        from IPython.display import display

        self.name = f"{config.model} {config.method} on {config.data}"
        self.epochs, self.steps = config.epochs, steps
        self.done, self.running, self.logged = epoch * steps + step, "", ""
        self.drawn = 0.0
        self.cell: Any = display(self, display_id=True)  # type: ignore[no-untyped-call]

    def step(self, images: int, loss: float, top1: float) -> None:
        self.done += 1
        self.running = f"loss {loss:.3f}, train {top1:.1f} %"
        if time.monotonic() - self.drawn > PAUSE:
            self._draw()

    def epoch(self, entry: dict[str, Any]) -> None:
        judged = "held-out" if entry["evaluated_on"] == "validation" else "test"
        self.logged = f"epoch {entry['epoch'] + 1} of {self.epochs}: {judged} accuracy {entry['top1']:.2f} %"
        self._draw()

    def _draw(self) -> None:
        self.drawn = time.monotonic()
        self.cell.update(self)

    def __repr__(self) -> str:
        return f"{self.name}: step {self.done} of {self.epochs * self.steps}, {self.running}; {self.logged}"

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self.done}" max="{self.epochs * self.steps}"></progress>'
        return f"{escape(self.name)} {bar} {escape(self.running)}<br>{escape(self.logged)}"


def progress_here() -> Progress:
    """A bar in a notebook; elsewhere a run is silent."""
    return NotebookProgress() if notebook.inside() else Progress()
