"""Stopping a run after the current step, with a checkpoint."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = signal.SIGINT, signal.SIGTERM


@dataclass
class Stop:
    """Whether the run should stop.  This is not a threading.Event, because that has a lock, and a signal handler that
    is interrupted by another signal would wait forever for its own lock."""

    asked: bool = False


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """SIGINT and SIGTERM stop the loop after the current step, with a checkpoint.  A second signal stops it at once."""
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
    """Use ``handler`` for SIGINT and SIGTERM inside the block."""
    before = {sent: signal.signal(sent, handler) for sent in ENDING}
    try:
        yield
    finally:
        for sent, earlier in before.items():
            signal.signal(sent, earlier)
