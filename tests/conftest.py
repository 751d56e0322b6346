"""What every test starts from, and the table of faults at the end."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import faults
import pytest
import torch
from faults import Fault
from hypothesis import settings

# Some versions of oneDNN crash in their AMX kernels, which torch chooses for bfloat16 where the processor has any.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# A command that a shell runs in the background ignores Ctrl-C, and so do its children; tests send it to both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, so that a change alone can make a test fail; `make test
# PYTEST=--hypothesis-profile=explore` draws others.  A loaded machine is slow now and then: that is no failure.
settings.register_profile("rbnn", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("rbnn")


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    """One thread, since the tensors are small, and the same random numbers whatever ran before."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def fault() -> Fault:
    return faults.counted


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes (``-n``) tells what it counted."""
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
