"""The engine without Python: under sanitizers, and with the kernels of other machines under emulation."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from compiled import EMULATED, SANITIZED, build

from rbnn import _core

pytestmark = pytest.mark.compiles

x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the AVX-512 kernels are for x86-64")


def compared(*command: str | Path) -> str:
    """The output of the comparison program if all kernels agree."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "comparisons" in done.stdout
    return done.stdout


def test_no_sanitizer_complains(tmp_path: Path) -> None:
    compared(build(tmp_path, "compare_kernels", **SANITIZED), "25")


def test_large_operations_check_for_an_interruption(tmp_path: Path) -> None:
    """Otherwise Ctrl-C would wait for the end of the longest loop."""
    done = subprocess.run([build(tmp_path, "count_checks")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("checks") == 12


@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_an_exception_in_a_worker_reaches_the_caller(threads: str, tmp_path: Path) -> None:
    """Otherwise a worker without memory would end the process."""
    done = subprocess.run([build(tmp_path, "throw_in_parallel"), threads], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "caught, and the pool still works\n")


def avx512() -> dict[str, str]:
    """Compiler flags: with AVX-512 on a machine that has it, otherwise plain C++."""
    native = dict(_core.kernels())["avx512"]
    if not native and not Path("/usr/include/simde/x86/avx512.h").exists():
        pytest.skip("needs AVX-512 or its emulation: apt install libsimde-dev")
    return {} if native else EMULATED


@x86
def test_avx512_kernels_equal_the_portable_ones(tmp_path: Path) -> None:
    assert "avx512" in compared(build(tmp_path, "compare_kernels", **avx512()), "200")


@x86
def test_training_by_every_set_is_that_of_the_portable_kernels(tmp_path: Path) -> None:
    assert "avx512" in compared(build(tmp_path, "compare_sign_conv", **SANITIZED, **avx512()), "40")


def test_neon_kernels_equal_the_portable_ones_under_emulation(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs a cross compiler and an emulator: apt install g++-aarch64-linux-gnu qemu-user")
    program = build(tmp_path, "compare_kernels", CMAKE_CXX_COMPILER=compiler, CMAKE_EXE_LINKER_FLAGS="-static")
    assert "neon" in compared(emulator, program, "25")
