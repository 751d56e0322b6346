"""The engine compiled without Python, around a main program of its own."""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted((ROOT / "csrc").glob("*.cpp"))
OTHERS = ("kernels_", "training", "bindings", "sign_", "memory", "batch_norm")
ENGINE = [path for path in SOURCES if not path.stem.startswith(OTHERS)]
SIGN_CONV = [path for path in SOURCES if path.stem.startswith(("sign_conv", "sign_columns"))]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vpopcntdq", "-mavx512vnni", "-w"]
X86 = {"portable": [], "avx2": AVX2, "avx512": AVX512, "neon": []}
ARM: dict[str, list[str]] = {name: [] for name in X86}
EMULATED = X86 | {"avx512": [f"-I{Path(__file__).with_name('emulated')}", "-w"]}


def build(
    compiler: str, folder: Path, main: Path, kernels: dict[str, list[str]], *flags: str, sign_conv: bool = False
) -> Path:
    """The program in the file ``main`` with the engine, and training's ``sign_conv`` where asked for, compiled file by
    file as CMakeLists.txt does; ``kernels`` says with which flags."""
    common = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}", *flags]
    objects = []
    sources = {path.stem: (path, []) for path in ENGINE}
    if sign_conv:
        sources |= {path.stem: (path, ["-Wno-psabi"]) for path in SIGN_CONV}
        sources["sign_kernels"] = (ROOT / "csrc" / "sign_kernels_avx512.cpp", kernels["avx512"])
    sources |= {
        f"kernels_{name}": (ROOT / "csrc" / f"kernels_{name}.cpp", ["-ffp-contract=off", *extra])
        for name, extra in kernels.items()
    }
    sources["main"] = (main, [])
    commands = []
    for name, (source, extra) in sources.items():
        objects.append(folder / f"{name}.o")
        commands.append([*common, *extra, "-c", str(source), "-o", str(objects[-1])])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda command: subprocess.run(command, check=True), commands))
    program = folder / main.stem
    libraries = ["-pthread", "-ldl", *(["-latomic"] if "clang" in compiler else [])]  # g++ brings it where it is needed
    subprocess.run([*common, *map(str, objects), "-o", str(program), *libraries], check=True)
    return program


def host_compiler() -> str:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("needs a C++ compiler: apt install g++")
    return compiler
