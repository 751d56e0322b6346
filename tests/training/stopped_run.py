"""A run that is stopped in the middle of an epoch."""

import signal

from rbnn.training.loop import Progress


class StopAt(Progress):
    """Ends a run at a step, as Ctrl-C would."""

    def __init__(self, step: int) -> None:
        self.left = step

    def step(self, images: int, loss: float, top1: float) -> None:
        self.left -= 1
        if not self.left:
            signal.raise_signal(signal.SIGINT)
