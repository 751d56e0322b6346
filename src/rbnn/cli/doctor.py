"""`rbnn doctor`: show what this machine can run, and what is missing for what."""

import json
import os
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rbnn.errors import RbnnError

PURPOSES = {
    "": "run packed networks (predict, eval, info)",
    "train": "train, export and report",
    "onnx": "write ONNX files (export --onnx)",
    "bench": "compare with other engines (bench)",
    "examples": "run the examples with other training loops",
}
"""What the packages of each extra are for; "" stands for those that every installation has."""
VARIABLES = ("RBNN_KERNELS", "RBNN_MOST_WORK", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Environment variables that change what rbnn does."""
TRIED = "resnet20-bireal-digits"
"""The network for which all instruction sets must give the same outputs."""


@dataclass(frozen=True)
class Doctor:
    """Show the processor, the instruction sets that rbnn uses on it, versions, and which packages are missing for what.
    The network resnet20-bireal-digits runs on every instruction set, and all must give the same outputs.

    Example: rbnn doctor --json
    """

    json: bool = False
    """Print JSON: rbnn, python, executable, system, processor, cores, kernels (name, supported, same_answers), chosen,
    variables, packages (name, version, needed, extra, trouble), extras (name, purpose, complete)."""


def run(options: Doctor) -> None:
    """Examine and print."""
    found = examine()
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    wrong = [each["name"] for each in found["kernels"] if each["same_answers"] is False]
    if wrong:
        raise RbnnError(
            f"the kernels {', '.join(wrong)} give wrong results: "
            "choose others with the environment variable RBNN_KERNELS"
        )


def examine() -> dict[str, Any]:
    """Everything that the command shows."""
    from rbnn import __version__, _core
    from rbnn.cli._packed import cores

    packages = _packages()
    extras = [
        {"name": extra, "purpose": purpose, "complete": not _lacking(packages, extra)}
        for extra, purpose in PURPOSES.items()
    ]
    return {
        "rbnn": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "processor": _processor(),
        "cores": cores(),
        "kernels": _kernels(),
        "chosen": _core.chosen_kernels(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "packages": packages,
        "extras": extras,
    }


def _processor() -> str:
    """The processor's name, or its architecture if it does not report a name."""
    try:
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _kernels() -> list[dict[str, Any]]:
    """Every compiled instruction set, best first, and whether its outputs equal those of the portable kernels."""
    import numpy as np

    from rbnn import _core
    from rbnn.packed import pretrained
    from rbnn.packed.session import Session

    path = pretrained.path(TRIED)
    with Session(path, kernels="portable") as session:
        images = np.random.default_rng(0).normal(size=(64, *session.input_shape)).astype(np.float32)
        expected = session(images)

    def same(name: str) -> bool:
        """Float sums are added in another order, which flips a sign near its threshold in a few images."""
        differences = np.abs(Session(path, kernels=name)(images) - expected).max(1)
        return bool((differences < 1e-4).mean() > 0.9)

    return [
        {"name": name, "supported": supported, "same_answers": same(name) if supported else None}
        for name, supported in _core.kernels()
    ]


def _packages() -> list[dict[str, Any]]:
    """Each package that rbnn requires, by extra: its installed version and what is wrong with it."""
    asked: dict[str, dict[str, Any]] = {}
    for line in metadata.requires("rbnn") or []:
        requirement, _, condition = line.partition(";")  # torch>=2.4; extra == "train"
        extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", condition)
        part = extra[1] if extra else ""
        name = re.split(r"[^\w.-]", requirement.strip())[0]
        if part in PURPOSES and name != "rbnn" and name not in asked:
            version, needed = _version(name), requirement.strip().removeprefix(name)
            asked[name] = {
                "name": name,
                "version": version,
                "needed": needed,
                "extra": part,
                "trouble": _trouble(version, needed),
            }
    return list(asked.values())


def _lacking(packages: list[dict[str, Any]], extra: str) -> list[dict[str, Any]]:
    """What an extra is missing: its own packages, and those of the extras that it includes."""
    asked = metadata.requires("rbnn") or []
    inside = [re.match(rf"rbnn\[([\w,]+)\]\s*;.*extra\s*==\s*['\"]{extra}['\"]", line) for line in asked]
    included = {name for each in inside if each for name in each[1].split(",")}
    return [each for each in packages if each["trouble"] and each["extra"] in {extra, *included}]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _trouble(version: str | None, needed: str) -> str | None:
    """Missing, older than needed, or None."""
    if version is None:
        return "missing"
    least = re.search(r">=\s*([\d.]+)", needed)
    return f"older than {least[1]}" if least and _numbers(version) < _numbers(least[1]) else None


def _numbers(version: str) -> list[int]:
    release = re.match(r"[\d.]*\d", version)
    return [int(part) for part in release[0].split(".")] if release else []


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from rbnn.text import plural

    console = Console(highlight=False, soft_wrap=True)
    facts = {
        "rbnn": f"{found['rbnn']}, Python {found['python']} ({found['executable']})",
        "system": found["system"],
        "processor": f"{found['processor']}, {plural(found['cores'], 'usable core')}",
    }
    for name, value in found["variables"].items():
        facts[name] = value
    widest = max(map(len, facts))
    for name, value in facts.items():
        console.print(f"{name:<{widest}}  {escape(value)}")
    sets = Table("instruction set", "this machine", "outputs")
    for each in found["kernels"]:
        chosen = ", chosen" if each["name"] == found["chosen"] else ""
        answers = {True: "same as portable", False: "WRONG", None: "–"}[each["same_answers"]]
        sets.add_row(each["name"], ("supported" if each["supported"] else "not supported") + chosen, answers)
    console.print(sets)
    table = Table("package", "version", "needed for")
    for each in found["packages"]:
        said = each["version"] or ""
        if each["trouble"]:
            said = f"{said} {each['trouble']}".strip()
        table.add_row(each["name"], escape(said), PURPOSES[each["extra"]])
    console.print(table)
    for extra in found["extras"]:
        if not extra["complete"]:
            lacking = [
                f"{each['name']} {'is missing' if each['trouble'] == 'missing' else 'is ' + each['trouble']}"
                for each in _lacking(found["packages"], extra["name"])
            ]
            install = f"rbnn[{extra['name']}]" if extra["name"] else "rbnn"
            console.print(f"To {extra['purpose']}: pip install '{install}' ({', '.join(lacking)})", markup=False)
    if all(extra["complete"] for extra in found["extras"]):
        console.print("Nothing is missing.")
