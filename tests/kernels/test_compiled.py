"""The engine without Python: under sanitizers here, and the kernels of other machines emulated."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from compiled import ARM, EMULATED, X86, build, host_compiler

from rbnn import _core

pytestmark = pytest.mark.compiles

MAIN = Path(__file__).with_name("compare_kernels.cpp")
SIGN_CONV = Path(__file__).with_name("compare_sign_conv.cpp")
x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the AVX-512 kernels are for x86-64")


def compared(*command: str | Path) -> str:
    """What the comparison program prints when all kernels agree."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "comparisons" in done.stdout
    return done.stdout


def test_no_sanitizer_complains(tmp_path: Path) -> None:
    sanitizers = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    compared(build(host_compiler(), tmp_path, MAIN, X86, *sanitizers), "25")


def avx512() -> dict[str, list[str]]:
    """How kernels are compiled: on a machine that has AVX-512 for it, elsewhere in plain C++."""
    native = dict(_core.kernels())["avx512"]
    if not native and not Path("/usr/include/simde/x86/avx512.h").exists():
        pytest.skip("needs AVX-512 or its emulation: apt install libsimde-dev")
    return X86 if native else EMULATED


@x86
def test_avx512_kernels_equal_the_portable_ones(tmp_path: Path) -> None:
    assert "avx512" in compared(build(host_compiler(), tmp_path, MAIN, avx512(), "-O2"), "200")


@x86
def test_training_by_avx512_kernels_is_that_of_plain_code(tmp_path: Path) -> None:
    sanitizers = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    compared(build(host_compiler(), tmp_path, SIGN_CONV, avx512(), *sanitizers, sign_conv=True), "40")


def test_neon_kernels_equal_the_portable_ones_under_emulation(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs a cross compiler and an emulator: apt install g++-aarch64-linux-gnu qemu-user")
    program = build(compiler, tmp_path, MAIN, ARM, "-O2", "-static")
    assert "neon" in compared(emulator, program, "25")
