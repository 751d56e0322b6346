"""A run that is stopped in the middle of an epoch, and what must come of it."""

import signal
from pathlib import Path
from typing import Any

import pytest
from runs import assert_same_run, small

from rbnn.training.loop import Progress, train


class StopAt(Progress):
    """End a run at a step, as Ctrl-C would."""

    def __init__(self, step: int) -> None:
        self.left = step

    def step(self, images: int, loss: float, top1: float) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)


def assert_resumes_bit_for_bit(folder: Path, **fields: Any) -> Path:
    """A small run with these fields, stopped and resumed, equals one that was not stopped, whose directory is
    returned."""
    whole, stopped = folder / "whole", folder / "stopped"
    train(small(whole, **fields))
    with pytest.raises(KeyboardInterrupt):
        train(small(stopped, **fields), StopAt(3))
    train(small(stopped, **fields, resume=True))
    assert_same_run(whole, stopped)
    return whole
