"""The engine compiled without Python, by CMake and with programs of its own (tests/CMakeLists.txt)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SANITIZED = {"RBNN_SANITIZE": "address,undefined"}
EMULATED = {"RBNN_EMULATED_AVX512": str(Path(__file__).with_name("emulated"))}


def configure(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """CMake's answer to the project with these settings."""
    words = [f"-D{name}={value}" for name, value in settings.items()]
    return subprocess.run(["cmake", "-S", ROOT, "-B", folder, *words], capture_output=True, text=True)


def build(folder: Path, program: str, **settings: str) -> Path:
    """One of the programs, made anew unless ``folder`` has it; any warning is an error."""
    if shutil.which("cmake") is None:
        pytest.skip("needs cmake: pip install cmake")
    settings = {"RBNN_PYTHON": "OFF", "RBNN_TESTS": "ON", "CMAKE_COMPILE_WARNING_AS_ERROR": "ON"} | settings
    configured = configure(folder, **settings)
    assert configured.returncode == 0, configured.stderr
    made = subprocess.run(
        ["cmake", "--build", folder, "--target", program, "--parallel", str(os.cpu_count())],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return folder / "tests" / program
