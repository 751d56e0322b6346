"""What a release needs: one version, a citation, and valid workflows and templates."""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

import rbnn

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
GITHUB = sorted((ROOT / ".github").rglob("*.yml"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_the_version_is_written_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"] == "src/rbnn/__init__.py"
    assert metadata.version("rbnn") == rbnn.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", rbnn.__version__)
    assert read(ROOT / "CITATION.cff")["version"] == rbnn.__version__


def test_the_base_installation_brings_no_torch() -> None:
    base = {re.split(r"[^\w-]", each)[0] for each in PROJECT["project"]["dependencies"]}
    assert base == {"numpy", "safetensors", "Pillow", "rich", "tyro"}
    assert any(each.startswith("torch") for each in PROJECT["project"]["optional-dependencies"]["train"])


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, *others = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert first == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", each) for each in others)
    kinds = {each.partition(" (")[0] for each in re.findall(r"^### (.*)$", text, re.MULTILINE)}
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.name)
def test_what_github_reads_can_be_read(path: Path) -> None:
    assert isinstance(read(path), dict)


def test_workflows_for_every_system() -> None:
    assert {"tests", "wheels"} <= {path.stem for path in WORKFLOWS}
    systems = {
        row["os"]
        for row in read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]["include"]
    }
    assert {re.sub(r"-[\d.]+", "", each) for each in systems} == {"ubuntu", "ubuntu-arm", "macos", "windows"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_workflow_calls_what_there_is(path: Path) -> None:
    """Workflows call only targets of the Makefile, so that no step is written twice."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    runs = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    called = {word for run in runs for word in re.findall(r"\bmake ([\w-]+)", run)}
    assert called <= targets
    assert "not run" in path.read_text("utf-8").partition("\nname:")[0]


def test_every_template_asks_for_the_doctor() -> None:
    """A bug report must describe the machine."""
    body = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml")["body"]
    assert any("rbnn doctor" in str(field) for field in body)


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE", "CITATION.cff", "CHANGELOG.md"])
def test_documents_of_a_project(name: str) -> None:
    assert (ROOT / name).stat().st_size > 200
