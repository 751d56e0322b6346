"""A trained network, and the command line as a user sees it."""

from pathlib import Path

import numpy as np
import pytest
from answers import SMALL, Answer, Rbnn
from packed_networks import small_network
from PIL import Image

from rbnn.cli import main
from rbnn.packed import file as packfile


@pytest.fixture(autouse=True)
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output is not wrapped to the width of a terminal, which pytest-xdist gives its workers in COLUMNS."""
    monkeypatch.delenv("COLUMNS", raising=False)


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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """net.rbnn, and a set of images in which folder "a" has three and the others two."""
    monkeypatch.chdir(tmp_path)
    packfile.write(small_network(), tmp_path / "net.rbnn")
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, count in zip("abcde", (3, 2, 2, 2, 2), strict=True):
            folder = tmp_path / "image-folder" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(rng.integers(0, 256, (11, 8, 3), np.uint8)).save(folder / f"{i}.png")
    return tmp_path
