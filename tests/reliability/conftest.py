"""Counts faults by kind: how often one was tried, survived, lost.  The table comes at the end of the tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import Fault
from killed_run import code_of, start
from short_runs import command

_TABLE: dict[str, list[int]] = {}
"""Kind of fault → tried, lost."""


@pytest.fixture
def fault() -> Fault:
    @contextmanager
    def counted(kind: str, times: int = 1) -> Iterator[None]:
        row = _TABLE.setdefault(kind, [0, 0])
        row[0] += times
        row[1] += times
        yield
        row[1] -= times  # reached only when nothing was raised

    return counted


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `short_runs.command`, left alone; not to be changed."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert code_of(start(command(out), out.with_name("said"))) == 0
    return out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _TABLE:
        return
    width = max(map(len, _TABLE))
    terminalreporter.section("reliability")
    terminalreporter.write_line(f"{'fault':{width}}  {'tried':>9}  {'survived':>9}  {'lost':>5}")
    total = [sum(row[i] for row in _TABLE.values()) for i in (0, 1)]
    for kind, (tried, lost) in [*_TABLE.items(), ("all", total)]:
        terminalreporter.write_line(f"{kind:{width}}  {tried:>9,}  {tried - lost:>9,}  {lost:>5,}")
