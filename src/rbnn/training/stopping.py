"""A run that is asked to stop does so after the step, with a checkpoint."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = signal.SIGINT, signal.SIGTERM


@dataclass
class Stop:
    """Whether somebody asked the run to stop.  Not a threading.Event: that has a lock, and a handler of signals that is
    itself interrupted by a signal would wait for its own lock for ever."""

    asked: bool = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """SIGINT and SIGTERM ask the loop to stop after the step, with a checkpoint; a second one stops at once."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        for sent in ENDING:
            signal.signal(sent, signal.default_int_handler)
        stop.asked = True

    with signals_to(ask):
        yield stop


@contextmanager
def signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """``handler`` for SIGINT and SIGTERM, inside the block."""
    before = {sent: signal.signal(sent, handler) for sent in ENDING}
    try:
        yield
    finally:
        for sent, earlier in before.items():
            signal.signal(sent, earlier)
