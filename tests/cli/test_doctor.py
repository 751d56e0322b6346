"""What `rbnn doctor` finds on this machine and on simulated ones."""

import json
import re
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
from answers import WITHOUT_TORCH, Rbnn

from rbnn import __version__, _core
from rbnn.cli import doctor


def test_it_says_what_this_machine_is(rbnn: Rbnn) -> None:
    answer = rbnn("doctor", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert found["rbnn"] == __version__
    assert found["executable"] == sys.executable
    assert found["cores"] >= 1
    assert found["processor"]
    assert [(each["name"], each["supported"]) for each in found["kernels"]] == list(_core.kernels())
    assert all(each["same_answers"] is (True if each["supported"] else None) for each in found["kernels"])
    assert found["chosen"] == _core.chosen_kernels()
    packages = {each["name"]: each for each in found["packages"]}
    assert packages["numpy"] == {
        "name": "numpy", "version": np.__version__, "needed": ">=1.26", "extra": "", "trouble": None
    }  # fmt: skip
    assert packages["torch"]["extra"] == "train"
    assert packages["onnxruntime"]["extra"] == "onnx"
    assert [each["name"] for each in found["extras"]] == list(doctor.PURPOSES)


def test_people_see_the_same(rbnn: Rbnn) -> None:
    answer = rbnn("doctor")
    assert (answer.code, answer.err) == (0, "")
    assert re.match(rf"rbnn +{re.escape(__version__)}, Python", answer.out)
    (line,) = [line for line in answer.out.splitlines() if "chosen" in line]
    assert _core.chosen_kernels() in line
    assert "same as portable" in line


def test_what_is_missing_is_said_with_what_it_is_for(rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    here = metadata.version

    def version(name: str) -> str:
        if name == "onnxruntime":
            raise metadata.PackageNotFoundError(name)
        return "2.3.1+cpu" if name == "torch" else here(name)

    monkeypatch.setattr(metadata, "version", version)
    answer = rbnn("doctor")
    assert "To compare with other engines (bench): pip install 'rbnn[bench]' (onnxruntime is missing" in answer.out
    assert "To train, export and report: pip install 'rbnn[train]' (torch is older than 2.4)" in answer.out
    assert "To run packed networks" not in answer.out
    found = json.loads(rbnn("doctor", "--json").out)
    complete = {each["name"]: each["complete"] for each in found["extras"]}
    assert (complete[""], complete["train"], complete["onnx"], complete["bench"]) == (True, False, False, False)


@pytest.mark.parametrize(
    ("version", "needed", "trouble"),
    [
        ("2.10", ">=2.4", None), ("2.4", ">=2.4", None), ("2.4.0rc1", ">=2.4", None), ("13.0.0", ">=10", None),
        ("2.3.9", ">=2.4", "older than 2.4"), (None, ">=2.4", "missing"), ("0.1", "", None),
    ],
)  # fmt: skip
def test_versions_are_compared_as_numbers(version: str | None, needed: str, trouble: str | None) -> None:
    assert doctor._trouble(version, needed) == trouble


def test_kernels_that_answer_wrongly_are_an_error(rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [{"name": "avx2", "supported": True, "same_answers": False}]
    monkeypatch.setattr(doctor, "_kernels", lambda: wrong)
    answer = rbnn("doctor")
    assert answer.code == 2
    assert (
        answer.err
        == "rbnn: the kernels avx2 give wrong results: choose others with the environment variable RBNN_KERNELS\n"
    )


def test_it_runs_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "doctor", "--json"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["chosen"] == _core.chosen_kernels()
