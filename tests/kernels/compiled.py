"""The engine compiled with CMake, without Python, together with its test programs (tests/CMakeLists.txt)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SANITIZED = {"RBNN_SANITIZE": "address,undefined"}
EMULATED = {"RBNN_EMULATED_AVX512": str(Path(__file__).with_name("emulated"))}


def configure(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Configure the project with these CMake settings."""
    words = [f"-D{name}={value}" for name, value in settings.items()]
    return subprocess.run(["cmake", "-S", ROOT, "-B", folder, *words], capture_output=True, text=True)


def build(folder: Path, program: str, **settings: str) -> Path:
    """Build one of the programs unless ``folder`` has it; warnings are errors."""
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
