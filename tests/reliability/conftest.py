"""The run that the tests interrupt, without interruption."""

from pathlib import Path

import pytest
from killed_run import code_of, start
from short_runs import command


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run of `short_runs.command`; do not modify."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert code_of(start(command(out), out.with_name("said"))) == 0
    return out
