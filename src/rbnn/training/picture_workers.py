"""Processes that decode picture files for a run: they leave signals to it, and their death is a sentence."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data._utils.signal_handling import _error_if_any_worker_fails  # type: ignore[attr-defined]

from rbnn.errors import LostWorker


def start_worker(number: int) -> None:
    """In a worker, before its first picture.  Ctrl-C and SIGTERM reach the whole group of processes; the run ends its
    workers itself, after it has saved.  Of crashes torch would print a line of its own."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)
    for sent in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE):
        signal.signal(sent, signal.SIG_DFL)


def batches_of(loader: DataLoader[Any]) -> Iterator[Any]:
    """What ``loader`` gives.  LostWorker where one of its workers has died: raised while a batch is waited for, never
    in the middle of what the caller does with one.

    torch raises it at any moment, out of a handler of SIGCHLD; without a handler the wait for the rest of a message,
    whose writer has died, would never end.
    """
    with _deaths_said():
        iterator = iter(loader)
    waiting = False

    def child_ended(number: int, frame: FrameType | None) -> None:
        if waiting:
            _error_if_any_worker_fails()

    handled = loader.num_workers > 0 and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGCHLD, child_ended) if handled else None
    try:
        while True:
            waiting = True
            try:
                with _deaths_said():
                    _error_if_any_worker_fails()
                    batch = next(iterator)
            except StopIteration:
                return
            finally:
                waiting = False
            yield batch
    finally:
        if handled:
            signal.signal(signal.SIGCHLD, before)


@contextmanager
def _deaths_said() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker"):
            raise
        killed = re.search(r"signal: ([^.]+)\.", str(error))
        how = f"was killed ({killed[1]})" if killed else "has ended"
        raise LostWorker(
            f"a process that decodes pictures {how}, perhaps because memory ran out or a picture crashed its decoder"
        ) from None
