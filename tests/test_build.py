"""The build names the compilers it supports, and asks the compiler, not the machine, for the target."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compiled import ROOT, configure

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake: pip install cmake")


@needs_cmake
@pytest.mark.parametrize(("compiler", "version"), [("GNU", "11.4.0"), ("MSVC", "19.44")])
def test_other_compilers_are_refused_with_a_sentence(compiler: str, version: str, tmp_path: Path) -> None:
    claimed = {"CMAKE_CXX_COMPILER_ID": compiler, "CMAKE_CXX_COMPILER_VERSION": version}
    done = configure(tmp_path, CMAKE_CXX_COMPILER_FORCED="TRUE", **claimed)
    said = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert "rbnn needs GCC 12 or newer, or Clang" in said
    assert f"is {compiler} {version}: name another one" in said
    assert said.count("CMake Error") == 1


@needs_cmake
@pytest.mark.compiles
@pytest.mark.parametrize(("compiler", "with_avx"), [("g++", True), ("clang++", True), ("aarch64-linux-gnu-g++", False)])
def test_flags_follow_the_target(compiler: str, with_avx: bool, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    made_for = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    if with_avx and not made_for.startswith("x86_64"):
        pytest.skip(f"{compiler} here compiles for {made_for}")
    settings = {"CMAKE_CXX_COMPILER": compiler, "Python_EXECUTABLE": sys.executable}
    done = configure(tmp_path, CMAKE_EXPORT_COMPILE_COMMANDS="ON", **settings)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r'"command": "(.*)"', (tmp_path / "compile_commands.json").read_text())
    flagged = {flag: {line.split()[-1] for line in lines if f" {flag} " in line} for flag in ("-mavx2", "-mavx512f")}
    simd = ROOT / "csrc" / "simd"
    wide, widest = ({str(simd / f"{name}.cpp")} if with_avx else set() for name in ("avx2", "avx512"))
    assert flagged == {"-mavx2": wide | widest, "-mavx512f": widest}
