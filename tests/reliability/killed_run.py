"""Run a command in a separate process, which receives a signal at a chosen moment.

Processes are forked from a server that has imported everything, so a start takes a tenth of a second.
"""

import faulthandler
import io
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, BinaryIO

MOMENTS = (
    "step",
    "validation",
    "log",
    "half a line of the log",
    "half a checkpoint",
    "before its name",
    "after its name",
)


def start(
    words: list[str],
    said: Path,
    moment: str = "",
    count: int = 1,
    signals: tuple[int, ...] = (),
    whom: str = "itself",
) -> BaseProcess:
    """Run ``rbnn WORDS``.  ``whom`` (itself, or one of its workers) receives the signals when it
    reaches the moment for the ``count``-th time; ``said`` receives its output."""
    process = server().Process(target=run, args=(words, said, moment, count, signals, whom))
    process.start()
    return process


def server() -> ForkServerContext:
    """The server that processes are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["rbnn.cli.train", "sklearn.datasets", "torch.utils.tensorboard", "torch._dynamo", "killed_run"]
    )
    return context


def run(words: list[str], said: Path, moment: str, count: int, signals: tuple[int, ...], whom: str) -> None:
    os.setsid()
    # Python passes the server's start method on to its children; a command that a shell starts has the default.
    multiprocessing.set_start_method(None, force=True)
    handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    faulthandler.enable()
    from rbnn.cli import main

    left = count

    def come(to: str) -> None:
        nonlocal left
        if to == moment:
            left -= 1
            if left == 0:
                for number in signals:
                    _send(number, whom)

    if moment:
        _watch(come)
    sys.exit(main(words))


def _send(number: int, whom: str) -> None:
    if whom == "itself":
        os.kill(os.getpid(), number)
    else:
        worker = multiprocessing.active_children()[0]
        assert worker.pid is not None
        os.kill(worker.pid, number)
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)  # dead, and left for its parent to find


def _watch(come: Callable[[str], None]) -> None:
    from rbnn.cli import train
    from rbnn.training import checkpoint, log, loop

    step, evaluate, add, write_whole = train.Watch.step, loop.evaluate, log.RunLog.add, checkpoint.write_whole

    def watched_step(self: train.Watch, *args: Any) -> None:
        step(self, *args)
        come("step")

    def watched_evaluate(model: Any, *args: Any) -> Any:
        hook = model.register_forward_hook(lambda *_: come("validation"))
        try:
            return evaluate(model, *args)
        finally:
            hook.remove()

    def watched_add(self: log.RunLog, entry: dict[str, Any], *more: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:  # what a system crash may leave of a line
            line = json.dumps(entry)
            place = file.tell()
            file.write(line[: len(line) // 2])
            file.flush()
            come("half a line of the log")
            file.truncate(place)
        add(self, entry, *more)
        come("log")

    def watched_write(path: Path, write: Callable[[BinaryIO], object]) -> None:
        def in_two_parts(file: BinaryIO) -> None:
            whole = io.BytesIO()
            write(whole)
            data = whole.getvalue()
            file.write(data[: len(data) // 2])
            file.flush()
            come("half a checkpoint")
            file.write(data[len(data) // 2 :])
            come("before its name")

        write_whole(path, in_two_parts)
        come("after its name")

    train.Watch.step = watched_step  # type: ignore[method-assign]
    loop.evaluate = watched_evaluate
    log.RunLog.add = watched_add  # type: ignore[method-assign]
    checkpoint.write_whole = watched_write


def send_to_group(process: BaseProcess, number: int) -> None:
    """Send the signals to a stopped run and to its workers from outside, as a terminal or a job scheduler does."""
    assert process.pid is not None
    stat = Path(f"/proc/{process.pid}/stat")
    until = time.monotonic() + 120
    while stat.read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until, "the run did not come to the moment"
        time.sleep(0.05)
    os.killpg(process.pid, number)
    time.sleep(0.5)  # a process that dies from it is dead before the run continues
    os.kill(process.pid, signal.SIGCONT)


def messages(said: str) -> list[str]:
    """The lines that a command printed, without those for each epoch."""
    return [line for line in said.splitlines() if not line.startswith("epoch ")]


def code_of(process: BaseProcess, seconds: float = 120) -> int:
    """How it ended; a number below zero is the signal that killed it."""
    process.join(seconds)
    if process.exitcode is None:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGABRT)  # says where it stands
        process.join(10)
        process.kill()
        process.join()
        raise AssertionError("the run hangs")
    return process.exitcode


KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
