"""The engine without Python: under sanitizers here, and its NEON kernels cross-compiled and emulated."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiles

ROOT = Path(__file__).parent.parent.parent
ENGINE = ("threads", "dispatch", "operation", "window", "binary_conv", "float_conv", "float_ops", "program")
KERNELS = {
    "portable": [],
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vpopcntdq", "-w"],
    "neon": [],
}


def build(compiler: str, folder: Path, arm: bool, *flags: str) -> Path:
    """The comparison program, compiled file by file as CMakeLists.txt does."""
    common = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}", *flags]
    objects = []
    sources = {name: (ROOT / "csrc" / f"{name}.cpp", []) for name in ENGINE}
    sources |= {
        f"kernels_{name}": (ROOT / "csrc" / f"kernels_{name}.cpp", ["-ffp-contract=off", *([] if arm else isa)])
        for name, isa in KERNELS.items()
    }
    sources["main"] = (Path(__file__).with_name("compare_kernels.cpp"), [])
    for name, (source, extra) in sources.items():
        objects.append(folder / f"{name}.o")
        subprocess.run([*common, *extra, "-c", str(source), "-o", str(objects[-1])], check=True)
    program = folder / "compare_kernels"
    subprocess.run([*common, *map(str, objects), "-o", str(program), "-pthread", "-ldl"], check=True)
    return program


def test_no_sanitizer_complains(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler: apt install g++")
    sanitizers = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    program = build(compiler, tmp_path, False, *sanitizers)
    done = subprocess.run([program, "25"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "comparisons" in done.stdout


def test_neon_kernels_equal_the_portable_ones_under_emulation(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-g++"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("needs a cross compiler and an emulator: apt install g++-aarch64-linux-gnu qemu-user")
    program = build(compiler, tmp_path, True, "-O2", "-static")
    done = subprocess.run([emulator, program, "25"], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "neon" in done.stdout
