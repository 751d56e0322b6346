"""A session under load: correct results from many threads at once, and no memory growth."""

import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from faults import Fault
from packed_networks import small_network

from rbnn.packed import file as packfile
from rbnn.packed.session import Session

THREADS, SESSIONS = 8, 100
MAY_GROW = 4 << 20
"""Bytes that an allocator may keep.  A leak of one arena per call or of one session's weights is larger."""


def resident_bytes() -> int:
    pages = Path("/proc/self/statm")
    if not pages.exists():
        pytest.skip("needs /proc to see how much memory is used")
    return int(pages.read_text().split()[1]) * resource.getpagesize()


def use_at_once(session: Session, seconds: float) -> tuple[int, list[str]]:
    """The number of results that eight threads got, and the errors among them."""
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(1 + i % 3, 3, 8, 8)).astype(np.float32) for i in range(THREADS)]
    wanted = [Session(small_network(), threads=1, kernels="portable")(batch) for batch in batches]
    wrong: list[str] = []
    counts = [0] * THREADS
    until = time.monotonic() + seconds

    def use(number: int) -> None:
        try:
            while time.monotonic() < until:
                for i in range(THREADS):  # every thread has its own order of the batches
                    which = (number + i * (number + 1)) % THREADS
                    answer = session(batches[which])
                    if not np.allclose(answer, wanted[which], rtol=1e-5, atol=1e-5):
                        wrong.append(f"thread {number}: another answer to batch {which}")
                    counts[number] += 1
        except Exception as error:
            wrong.append(f"thread {number}: {error!r}")

    threads = [threading.Thread(target=use, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), wrong


@pytest.mark.parametrize("seconds", [2, pytest.param(60, marks=pytest.mark.long)])
def test_one_session_and_eight_threads(seconds: float, fault: Fault) -> None:
    session = Session(small_network(), threads=2)
    use_at_once(session, 0.5)
    before = resident_bytes()
    count, wrong = use_at_once(session, seconds)
    with fault("answer to one of 8 threads", count):
        assert count > 100 * seconds
        assert wrong == []
        assert resident_bytes() - before < MAY_GROW


def test_many_sessions(tmp_path: Path, fault: Fault) -> None:
    path = tmp_path / "net.rbnn"
    packfile.write(small_network(), path)
    image = np.random.default_rng(1).normal(size=(4, 3, 8, 8)).astype(np.float32)
    wanted = Session(path)(image)

    def open_and_close(count: int) -> None:
        for number in range(count):
            assert np.array_equal(Session(path, threads=1 + number % 3)(image), wanted)

    open_and_close(SESSIONS // 5)
    before = resident_bytes()
    with fault("session opened and closed", SESSIONS):
        open_and_close(SESSIONS)
        assert resident_bytes() - before < MAY_GROW
    kept = [Session(path) for _ in range(SESSIONS)]
    with fault("session opened and closed", SESSIONS):
        assert all(np.array_equal(session(image), wanted) for session in kept)


DAEMONS = """
import threading, time
import numpy as np
from packed_networks import small_network
from rbnn.packed.session import Session

session, images = Session(small_network()), np.zeros((64, 3, 8, 8), np.float32)
session(images)

def use():
    while True:
        session(images)

for _ in range(3):
    threading.Thread(target=use, daemon=True).start()
time.sleep(0.05)
"""


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_the_interpreter_ends_while_daemon_threads_use_a_session(times: int, fault: Fault) -> None:
    """Python ends these threads when they return to it, which used to abort the process."""
    tests = str(Path(__file__).parents[1])
    for _ in range(times):
        with fault("interpreter that ends around daemon threads"):
            done = subprocess.run(
                [sys.executable, "-c", DAEMONS], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": tests}
            )
            assert (done.returncode, done.stderr) == (0, "")
