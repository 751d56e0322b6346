"""The documentation names only things that exist."""

import os
import re
import shutil
import subprocess
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import rbnn
from rbnn.functional import ESTIMATORS
from rbnn.methods import method_names, method_options
from rbnn.packed import pretrained

ROOT = Path(__file__).parents[1]
METHOD = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
METHODS = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAP = CONTRIBUTING.partition("## Where do I add")[2].partition("\n## ")[0]
NAMES = sorted(set(re.findall(r"`(rbnn(?:\.\w+)+)", METHOD + METHODS)))
FILES = sorted(set(re.findall(r"`([\w./]*/[\w./]*|[\w]+\.(?:toml|txt|md|py))`", CONTRIBUTING)))


def find(name: str) -> Any:
    """A module or an object in one: the longest prefix that can be imported is the module."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[length:], module)
    raise ModuleNotFoundError(name)


def test_enough_is_named() -> None:
    assert len(NAMES) > 25
    assert len(FILES) > 25
    for word in ("method", "estimator", "network", "data set", "command", "recipe", "kernel"):
        assert f"| a {word} " in MAP or f"| an {word} " in MAP, word


def test_every_target_of_the_makefile_is_listed() -> None:
    targets = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0].split()
    assert set(targets) - {"clean"} == set(re.findall(r"^make (\w+)", CONTRIBUTING, re.MULTILINE))


@pytest.mark.parametrize("name", NAMES)
def test_every_function_in_method_md_exists(name: str) -> None:
    assert find(name) is not None


def test_every_option_of_rbnn_is_explained() -> None:
    explained = METHOD.partition("## What the paper leaves open")[2].partition("\n## ")[0]
    for option in method_options("rbnn"):
        assert f"`{option}`" in explained, option


def test_methods_md_says_what_every_method_needs_at_inference() -> None:
    inference = METHODS.partition("## What inference needs")[2].partition("\n## ")[0]
    assert all(f"`{name}`" in inference for name in method_names() if name != "float")


def test_methods_md_names_every_estimator() -> None:
    estimators = METHODS.partition("## Estimators")[2].partition("\n## ")[0]
    assert all(f"`{estimator}`" in estimators for estimator in ESTIMATORS)


@pytest.mark.parametrize("name", FILES)
def test_every_file_in_contributing_exists(name: str) -> None:
    assert (ROOT / name).exists()


EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
CHECKS = """
for _, layer in rbnn.nn.binary_layers(model):
    assert type(layer.method) is balanced.Balanced
    assert layer.weight.abs().max() <= 1
    values = layer.weight[0].numel()
    assert ((layer.method.signs(layer.weight) > 0).flatten(1).sum(1) == values // 2).all()
assert len(list(rbnn.nn.binary_layers(model))) == 2
difference = abs(torch.from_numpy(logits) - model(images)).amax(1)
assert (difference < 1e-4).float().mean() > 0.9, difference  # a sign at a near-tie may differ in a picture
assert loss < 1.2, loss  # guessing among four gives ln 4 = 1.386
assert not list(rbnn.nn.binary_layers(rbnn.create_model("plain-three", "float")))
"""


def test_the_code_of_extending_md_runs(tmp_path: Path) -> None:
    """In a separate process, so that what it registers does not affect other tests."""
    for name, source in re.findall(r"\[`(\w+\.py)`\]\S*:\n\n```python\n(.*?)```", EXTENDING, re.DOTALL):
        (tmp_path / name).write_text(source, encoding="utf-8")
        assert source.count("\n") < 40
    (use,) = re.findall(r"```python\n(.*?)```", EXTENDING.partition("## Using them")[2], re.DOTALL)
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "use.py").write_text(use + CHECKS, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "use.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "plain.rbnn" in done.stdout


OWN_MODEL = (ROOT / "docs" / "your-own-model.md").read_text(encoding="utf-8")


def test_the_code_of_your_own_model_md_runs(tmp_path: Path) -> None:
    """From top to bottom, in an empty directory."""
    (tmp_path / "page.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", OWN_MODEL, re.DOTALL)), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"], cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (said,) = re.findall(r"```\n(\d+ layers are binary now.*?)```", OWN_MODEL, re.DOTALL)
    assert done.stdout.startswith(said)
    torch, packed, signals, vectors = map(float, re.findall(r"(\d+\.\d) % right", done.stdout))
    assert torch == packed
    assert min(torch, signals, vectors) > 85
    assert re.search(r"\{'class': '1', 'probability': 0\.[5-9]", done.stdout)


@pytest.mark.parametrize("page", ["pretrained", "pack-and-serve", "fine-tuning", "methods"])
def test_the_short_snippets_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the files that readers have: packed networks and an image.  The FastAPI snippet is only compiled."""
    monkeypatch.chdir(tmp_path)
    for name in ("first.rbnn", "mine.rbnn"):
        shutil.copy(pretrained.path("resnet20-bireal-cifar10"), name)
    for name in ("picture.png", "picture.jpg", "cat.jpg"):
        Image.new("RGB", (40, 40)).save(name)
    known = {"rbnn": rbnn, "torch": torch, "images": torch.zeros(4, 3, 32, 32)}
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text("utf-8"), re.DOTALL)
    assert snippets
    for snippet in snippets:
        code = compile(snippet, f"{page}.md", "exec")
        if "fastapi" not in snippet:
            exec(code, known)


def test_the_contents_of_your_own_model_md() -> None:
    headings = re.findall(r"^## (.*)", OWN_MODEL, re.MULTILINE)
    anchors = [heading.lower().replace(" ", "-").replace("'", "") for heading in headings]
    assert re.findall(r"\[[^\]]+\]\(#([\w-]+)\)", OWN_MODEL) == anchors


ONNX = (ROOT / "docs" / "onnx.md").read_text(encoding="utf-8")


def test_the_code_of_onnx_md_runs(tmp_path: Path) -> None:
    """From top to bottom, with digits in place of CIFAR-10; the last block is for qonnx (test_qonnx.py)."""
    *source, last = re.findall(r"```python\n(.*?)```", ONNX, re.DOTALL)
    assert "qonnx.core" in last
    code = "\n".join(source).replace("resnet20-bireal-cifar10", "resnet20-bireal-digits").replace("cifar10", "digits")
    (tmp_path / "page.py").write_text(code, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "page.py"], cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("360 of 360 images have the same class\n")


def named(row: str) -> set[str]:
    return set(re.findall(r"`([\w.*]+)`", row))


def test_every_module_is_on_the_map() -> None:
    rows = re.findall(r"^\| `src/(rbnn/[\w/]*)` \| (.*) \|$", CONTRIBUTING, re.MULTILINE)
    listed = {f"{room}{name}" for room, row in rows for name in named(row)}
    package = ROOT / "src" / "rbnn"
    modules = {path.relative_to(ROOT / "src").with_suffix("").as_posix() for path in package.rglob("*.py")}
    assert listed == {name for name in modules if not name.endswith(("__init__", "__main__"))}


def test_every_file_of_the_engine_is_listed() -> None:
    table = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8").partition("\n## ")[0]
    listed: set[Path] = set()
    folder = ""
    for line in table.splitlines():
        if row := re.match(r"\| (?:`(\w+)/`)? ?\| (`.*?`) \| ", line):
            folder = row[1] or folder
            for name in named(row[2]):
                pattern = name if name.endswith(".h") else f"{name}.*"
                found = set((ROOT / "csrc" / folder).glob(pattern))
                assert found, f"{folder}/{name} is no file of csrc/"
                listed |= found
    assert listed == {path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".cpp", ".h")}
