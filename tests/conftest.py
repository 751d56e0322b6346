"""The common state of all tests, and the table of faults at the end."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import faults
import pytest
import torch
from faults import Fault
from hypothesis import settings

# Some versions of oneDNN crash in their AMX kernels, which torch uses for bfloat16 if the processor has AMX.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# A background command ignores Ctrl-C, and so do its children; the tests send it to both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that only a change can make a test fail; `make test
# PYTEST=--hypothesis-profile=explore` draws others.  No deadline, because a loaded machine may be slow.
settings.register_profile("rbnn", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("rbnn")


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    """One thread, because the tensors are small, and the same random numbers whatever ran before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def fault() -> Fault:
    return faults.counted


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes (``-n``) reports its counts."""
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["faults"] = faults.counts()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    faults.add(getattr(node, "workeroutput", {}).get("faults", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := faults.table():
        terminalreporter.section("reliability")
        for line in lines:
            terminalreporter.write_line(line)
