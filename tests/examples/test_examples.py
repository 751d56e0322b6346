"""Every example at small size: it trains, exports, and the packed network answers like torch."""

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHARED = "digits_cnn.py"
IN_THIS_PROCESS = ("plain_torch.py", "mixed_precision.py", "moving_average.py")
BY_ITSELF = {
    "lightning_loop.py": "lightning",
    "hugging_face_trainer.py": "transformers",
    "accelerate_loop.py": "accelerate",
}
"""With the package that it needs.  A process each: these packages leave things behind."""
ON_TWO = ("ddp.py", "fsdp.py")


def check(printed: str) -> None:
    losses = [float(each) for each in re.findall(r"\bloss'?:? '?(\d+\.\d+)", printed)]
    assert len(losses) >= 2
    assert losses[-1] < 0.7 * losses[0]
    ((torch, packed),) = re.findall(r"torch (\d+\.\d) %, packed (\d+\.\d) %", printed)
    assert torch == packed
    assert float(torch) > 70
    assert "360 of 360 answers equal" in printed


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Other packages warn of their own affairs.
    assert not re.search(r"(rbnn|examples)/\S+: \w*Warning", done.stderr), done.stderr
    return done.stdout


def test_compiled(tmp_path: Path) -> None:
    """One epoch by a backend that compiles no C++, which takes most of a minute."""
    printed = run([str(EXAMPLES / "compiled.py"), "--epochs", "1", "--backend", "aot_eager"], tmp_path)
    ((torch, packed),) = re.findall(r"torch (\d+\.\d) %, packed (\d+\.\d) %", printed)
    assert torch == packed
    assert float(torch) > 30  # of ten classes


def test_every_example_is_run() -> None:
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for path in set(EXAMPLES.glob("*.py")) - {EXAMPLES / SHARED}:
        assert f'"{path.name}"' in tests


@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_own_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [name, "--epochs", "3", "--out", str(tmp_path / "net.rbnn")])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    check(capsys.readouterr().out)


@pytest.mark.parametrize("name", BY_ITSELF)
def test_loops_of_other_packages(tmp_path: Path, name: str) -> None:
    pytest.importorskip(BY_ITSELF[name], reason="pip install 'rbnn[examples]'")
    check(run([str(EXAMPLES / name), "--epochs", "2"], tmp_path))


@pytest.mark.parametrize("name", ON_TWO)
def test_two_processes(tmp_path: Path, name: str) -> None:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    check(run([*launcher, str(EXAMPLES / name), "--epochs", "2"], tmp_path))


@pytest.mark.skipif(find_spec("aeon") is None, reason="pip install --no-deps aeon")
@pytest.mark.parametrize(("data", "least"), [("BasicMotions", 85), ("JapaneseVowels", 85)])
def test_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: str, least: int
) -> None:
    arguments = [data, "--epochs", "8", "--out", str(tmp_path / "net.rbnn")]
    monkeypatch.setattr(sys, "argv", ["signals.py", *arguments])
    runpy.run_path(str(EXAMPLES / "signals.py"), run_name="__main__")
    printed = capsys.readouterr().out
    twin, binary, packed = map(float, re.findall(r"(\d+\.\d) %", printed))
    assert binary == packed
    assert min(twin, binary) > least
