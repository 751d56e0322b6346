"""The engine without Python: under sanitizers here, and the kernels of other machines emulated."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from rbnn import _core

pytestmark = pytest.mark.compiles

ROOT = Path(__file__).parent.parent.parent
ENGINE = ("threads", "dispatch", "operation", "window", "binary_conv", "float_conv", "float_ops", "program")
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vpopcntdq", "-w"]
X86 = {"portable": [], "avx2": AVX2, "avx512": AVX512, "neon": []}
ARM: dict[str, list[str]] = {name: [] for name in X86}
EMULATED = X86 | {"avx512": [f"-I{Path(__file__).with_name('emulated')}", "-w"]}


def build(compiler: str, folder: Path, kernels: dict[str, list[str]], *flags: str) -> Path:
    """The comparison program, compiled file by file as CMakeLists.txt does; ``kernels`` says with which flags."""
    common = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}", *flags]
    objects = []
    sources = {name: (ROOT / "csrc" / f"{name}.cpp", []) for name in ENGINE}
    sources |= {
        f"kernels_{name}": (ROOT / "csrc" / f"kernels_{name}.cpp", ["-ffp-contract=off", *extra])
        for name, extra in kernels.items()
    }
    sources["main"] = (Path(__file__).with_name("compare_kernels.cpp"), [])
    for name, (source, extra) in sources.items():
        objects.append(folder / f"{name}.o")
        subprocess.run([*common, *extra, "-c", str(source), "-o", str(objects[-1])], check=True)
    program = folder / "compare_kernels"
    subprocess.run([*common, *map(str, objects), "-o", str(program), "-pthread", "-ldl"], check=True)
    return program


def compared(*command: str | Path) -> str:
    """What the comparison program prints when all kernels agree."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "comparisons" in done.stdout
    return done.stdout


def host_compiler() -> str:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler: apt install g++")
    return compiler


def test_no_sanitizer_complains(tmp_path: Path) -> None:
    sanitizers = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    compared(build(host_compiler(), tmp_path, X86, *sanitizers), "25")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the AVX-512 kernels are for x86-64")
def test_avx512_kernels_equal_the_portable_ones(tmp_path: Path) -> None:
    """On a machine that has AVX-512 by itself, elsewhere in plain C++."""
    native = dict(_core.kernels())["avx512"]
    if not native and not Path("/usr/include/simde/x86/avx512.h").exists():
        pytest.skip("needs AVX-512 or its emulation: apt install libsimde-dev")
    program = build(host_compiler(), tmp_path, X86 if native else EMULATED, "-O2")
    assert "avx512" in compared(program, "200")


def test_neon_kernels_equal_the_portable_ones_under_emulation(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs a cross compiler and an emulator: apt install g++-aarch64-linux-gnu qemu-user")
    program = build(compiler, tmp_path, ARM, "-O2", "-static")
    assert "neon" in compared(emulator, program, "25")
