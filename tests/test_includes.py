"""Each folder of csrc/ includes only its lower layers: ops/ does not know files, and only bindings/ knows Python."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[1] / "csrc"
SEES = {
    "base": {"base"},
    "simd": {"base", "simd"},
    "ops": {"base", "simd", "ops"},
    "program": {"base", "simd", "ops", "program"},
    "training": {"base", "simd", "ops", "training"},
    "bindings": {"base", "simd", "ops", "program", "training", "bindings"},
}
SOURCES = sorted(path for path in CSRC.rglob("*") if path.suffix in (".cpp", ".h"))


def included(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include "([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_folder_is_known() -> None:
    assert {path.relative_to(CSRC).parts[0] for path in SOURCES} == set(SEES)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CSRC)))
def test_a_file_includes_what_its_folder_sees(path: Path) -> None:
    folder = path.relative_to(CSRC).parts[0]
    for name in included(path):
        assert (CSRC / name).is_file(), f"{name} is no file of csrc/: name it from there"
        assert name.split("/")[0] in SEES[folder], f"{folder}/ does not see {name}"


def test_only_bindings_know_python() -> None:
    python = re.compile(r"#\s*include <(nanobind/|Python\.h)")
    knowing = {path.relative_to(CSRC).parts[0] for path in SOURCES if python.search(path.read_text(encoding="utf-8"))}
    assert knowing == {"bindings"}
