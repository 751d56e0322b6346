"""A trained network, and the command line as a user sees it."""

from pathlib import Path

import pytest
from answers import SMALL, Answer, Rbnn

from rbnn.cli import main


@pytest.fixture
def rbnn(capsys: pytest.CaptureFixture[str]) -> Rbnn:
    """``rbnn("models", "--json")``: exit code, stdout and stderr."""

    def run(*words: str | Path) -> Answer:
        capsys.readouterr()
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One epoch on digits, in a directory whose name has a space and a non-ASCII letter; do not modify."""
    out = tmp_path_factory.mktemp("runs") / "erster Läuf"
    assert main(["train", "digits", "--epochs", "1", *SMALL, "--out", str(out)]) == 0
    return out
