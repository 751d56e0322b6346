"""Processes that decode image files for a run.  They ignore signals, and their death is reported in a sentence."""

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
    """Runs in a worker before its first image.  Ctrl-C and SIGTERM reach the whole process group, but the run ends its
    workers itself after it has saved.  torch would print a line of its own about crashes."""
    for sent in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sent, signal.SIG_IGN)
    for sent in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE):
        signal.signal(sent, signal.SIG_DFL)


def batches_of(loader: DataLoader[Any]) -> Iterator[Any]:
    """The batches of ``loader``.  If a worker has died, LostWorker is raised while waiting for a batch, never while the
    caller works with one.

    torch raises its own error at any moment, from a SIGCHLD handler.  Without a handler, waiting for the rest of a
    message whose writer has died would never end.
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
            f"a process that decodes images {how}, perhaps because memory ran out or an image crashed the decoder"
        ) from None
