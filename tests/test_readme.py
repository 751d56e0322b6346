"""Runs the Python code of the README, and parses every command that the documentation shows."""

import importlib
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
import tyro

from rbnn.cli import commands

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


LEFT_OUT = r"…|\$|--import|--help|train runs/|\b[A-Z]{3}"


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def shown_commands() -> list[list[str]]:
    """Every `rbnn …` line in shell blocks, without its comment, and in tables.

    Commands with placeholders or variables, and commands that need the user's own files, are left out; other tests
    cover them.
    """
    found: dict[tuple[str, ...], None] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = [line for block in blocks("sh", text) for line in block.replace("\\\n", " ").splitlines()]
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        lines += re.findall(r"`(rbnn [a-z]+ [^`]+)`", "\n".join(rows))
        found |= {tuple(shlex.split(line, comments=True)): None for line in lines if line.startswith("rbnn ")}
    return [list(words) for words in found if not re.search(LEFT_OUT, " ".join(words))]


def test_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    (source,) = blocks("python")
    exec(compile(source, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "2 binary and 2 float layers" in printed
    assert float(re.findall(r"(\d+\.\d) % of the test images", printed)[0]) > 85


@pytest.mark.parametrize("words", shown_commands(), ids=" ".join)
def test_commands_are_understood(words: list[str]) -> None:
    name = words[1]
    assert name in commands()
    module = importlib.import_module(f"rbnn.cli.{name}")
    if hasattr(module, "parse"):
        module.parse(words[2:])
    else:
        tyro.cli(getattr(module, name.capitalize()), args=words[2:])


def test_two_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    shown = [line.split()[1] for block in blocks("sh") for line in block.splitlines() if line.startswith("make ")]
    assert {"demo", "test"} <= set(shown) <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["demo", "clean"])
def test_make_deletes_nothing_that_the_environment_names(target: str) -> None:
    environment = os.environ | {"RUNS": "/precious", "VENV": "/precious", "MAKEFLAGS": ""}
    asked = subprocess.run(["make", "-n", target], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
    assert "rm -rf" in asked.stdout
    assert "/precious" not in asked.stdout
    chosen = subprocess.run(["make", "-n", target, "RUNS=elsewhere"], cwd=ROOT, capture_output=True, text=True)
    assert re.search(r"rm -rf .*\belsewhere$", chosen.stdout, re.MULTILINE)


def test_a_visitor_reads_it_in_half_a_minute() -> None:
    assert len(README.splitlines()) < 120
