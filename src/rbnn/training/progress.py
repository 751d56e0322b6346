"""Progress of a run while it trains."""

import time
import warnings
from html import escape
from typing import Any

from rbnn import notebook
from rbnn.training.config import TrainConfig

PAUSE = 0.2
"""Seconds between two updates of a cell, to spare the browser."""


class Progress:
    """Override these methods to watch a run."""

    def begin(self, config: TrainConfig, steps: int, epoch: int, step: int) -> None:
        """Training starts or continues at ``step`` of ``epoch``; an epoch has ``steps`` steps."""

    def step(self, images: int, loss: float, top1: float) -> None:
        """A step with ``images`` images is done; ``loss`` and ``top1`` are the means of the epoch so far."""

    def epoch(self, entry: dict[str, Any]) -> None:
        """An epoch is done and logged."""

    def notice(self, sentence: str) -> None:
        """Something that the user should know, although the run continues."""
        warnings.warn(sentence, stacklevel=2)


class NotebookProgress(Progress):
    """A progress bar and the latest numbers in the output of one cell, which keeps the last state when it is saved."""

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
    """A progress bar in a notebook; elsewhere a run prints nothing."""
    return NotebookProgress() if notebook.inside() else Progress()
