"""Which part of the package may import which, checked by reading the source."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import rbnn

ROOT = Path(rbnn.__file__).parent

LEAVES = {"errors", "files", "text", "notebook", "plugins", "_core"}
TORCH_SIDE = [
    "functional",
    ("methods", "own_forward"),
    ("padding", "own_weights"),
    "nn",
    "neighbours",
    ("convert", "schedule", "optim"),
    "models",
    "training",
    "reproduce",
]
PACKED_SIDE: dict[str, set[str]] = {"data": set(), "packed": {"data"}, "runtime": {"packed"}}
BOTH_SIDES: dict[str, set[str]] = {
    "exporting": set(),
    "importing": {"exporting"},
    "translating": {"importing"},
    "costs": set(),
    "bench": {"translating"},
    "report": {"costs"},
    "cli": {"exporting", "importing", "translating", "costs", "bench", "report"},
}
INSIDE_PACKED = [
    "limits", "site", "attributes", "shapes", "operations", "sizes", "graph", "formulas",
    ("budget", "comparison", "file", "maps", "oracle", "prediction", "pretrained"), ("plans", "find"), "session",
    ("export_report", "evaluate"),
]  # fmt: skip


def layers(steps: Sequence[str | tuple[str, ...]]) -> dict[str, set[str]]:
    """For each part, the parts before it."""
    rules: dict[str, set[str]] = {}
    for step in steps:
        below = set(rules)
        rules |= dict.fromkeys([step] if isinstance(step, str) else step, below)
    return rules


def allowed() -> dict[str, set[str]]:
    """For each part of the package, the parts that it may import besides itself and the leaves."""
    torch_side = layers(TORCH_SIDE)
    both = set(torch_side) | set(PACKED_SIDE)
    rules: dict[str, set[str]] = {leaf: set() for leaf in LEAVES} | torch_side | PACKED_SIDE
    for part in ("training", "reproduce"):
        rules[part] = rules[part] | {"data"}  # they load images
    rules |= {part: both | others for part, others in BOTH_SIDES.items()}
    rules["__main__"] = {"cli"}
    # The public names are imported when they are first used; only type checkers follow these lines.
    rules["__init__"] = both | (set(BOTH_SIDES) - {"cli"})
    return rules


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


FILES = sorted(path for path in ROOT.rglob("*.py") if "__pycache__" not in path.parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, at whatever depth, with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            if module in ("rbnn", "rbnn.packed"):  # from rbnn import data, _core, __version__ …
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def ours(module: str) -> str | None:
    """The part of the package that ``module`` belongs to; None for other packages and for names of ``rbnn`` itself."""
    parts = module.split(".")
    if parts[0] != "rbnn" or len(parts) < 2:
        return None
    known = (ROOT / parts[1]).is_dir() or (ROOT / f"{parts[1]}.py").exists() or parts[1] == "_core"
    return parts[1] if known else None


def test_every_part_has_its_place_on_the_map() -> None:
    contributing = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shown = contributing.partition("## What may import what")[2].split("```")[1]
    drawn = {word for line in shown.splitlines() for word in re.findall(r"\w+", line.partition("    ")[0])}
    assert set(allowed()) - {"__main__", "__init__"} <= drawn


def test_the_files_are_found() -> None:
    assert {"functional", "methods", "nn", "convert", "schedule", "models", "data"} <= {part_of(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_import_directions(path: Path) -> None:
    part = part_of(path)
    rules = allowed()
    assert part in rules, f"{part} has no place in the map yet: give it one here and in CONTRIBUTING.md"
    for line, module in imports(path):
        other = ours(module)
        if other is not None and other != part and other not in LEAVES:
            assert other in rules[part], f"{path.relative_to(ROOT)}:{line}: {part} must not import {other}"


@pytest.mark.parametrize("path", sorted((ROOT / "packed").glob("[!_]*.py")), ids=lambda path: path.stem)
def test_import_directions_inside_packed(path: Path) -> None:
    rules = layers(INSIDE_PACKED)
    for line, module in imports(path):
        if module.startswith("rbnn.packed"):
            other = module.split(".")[2]
            assert other in rules[path.stem], f"packed/{path.name}:{line}: {path.stem} must not import {other}"


TORCH_FREE = {*LEAVES, *PACKED_SIDE}


@pytest.mark.parametrize("path", [path for path in FILES if part_of(path) in TORCH_FREE], ids=lambda path: path.stem)
def test_the_packed_side_never_imports_torch(path: Path) -> None:
    packages = {module.partition(".")[0] for _, module in imports(path)}
    assert not packages & {"torch", "torchvision", "tensorboard"}


def test_only_type_checkers_follow_the_imports_of_the_package_itself() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    at_import = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert {module for module in at_import if module and module.startswith("rbnn")} == {"rbnn.errors"}


# Check that the rules can fail.


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("functional", "methods"), ("methods", "nn"), ("nn", "schedule"), ("convert", "schedule"),
        ("models", "training"), ("data", "functional"), ("training", "report"), ("report", "cli"),
        ("training", "packed"), ("errors", "nn"), ("packed", "exporting"), ("costs", "report"), ("exporting", "bench"),
    ],
)  # fmt: skip
def test_these_directions_are_forbidden(part: str, other: str) -> None:
    assert other not in allowed()[part]


# Without torch


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("module", ["rbnn", "rbnn.data", "rbnn.errors", "rbnn._core"])
def test_it_imports_where_torch_is_not_installed(module: str) -> None:
    done = run(f"import sys; sys.modules['torch'] = None; import {module}; print(dir({module})[0])")
    assert done.returncode == 0, done.stderr


def test_a_name_that_needs_torch_says_how_to_get_it() -> None:
    done = run("import sys; sys.modules['torch'] = None; import rbnn; rbnn.create_model")
    assert done.returncode == 1
    assert "ImportError: rbnn.create_model needs torch: pip install 'rbnn[train]'" in done.stderr


def test_importing_the_package_does_not_import_torch() -> None:
    done = run("import sys, rbnn, rbnn.data; sys.exit('torch' in sys.modules)")
    assert done.returncode == 0, done.stderr
