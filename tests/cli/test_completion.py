"""The scripts of `rbnn completion` in their shells."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from answers import WITHOUT_TORCH, Rbnn

from rbnn import cli

COMPLETE = """
source {script}
complete -p rbnn
COMP_WORDS=({words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_rbnn
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(script: Path, words: str) -> list[str]:
    """What bash suggests for the last word."""
    done = subprocess.run(
        ["bash", "-c", COMPLETE.format(script=script, words=words)], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *offered = done.stdout.splitlines()
    assert first == "complete -o default -F _rbnn rbnn"
    return [word for word in offered if word]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "rbnn.bash"
    done = subprocess.run(
        [sys.executable, "-m", "rbnn", "completion", "bash"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    path.write_text(done.stdout, "utf-8")
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash(script: Path) -> None:
    assert completed(script, "rbnn re") == ["recipes", "report", "reproduce"]
    assert set(completed(script, "rbnn ''")) == {*cli.commands(), "--help", "--version"}
    assert completed(script, "rbnn predict resnet20-bireal-d") == ["resnet20-bireal-digits"]
    assert completed(script, "rbnn train digi") == ["digits"]
    assert completed(script, "rbnn train digits --batch-s") == ["--batch-size"]
    assert completed(script, "rbnn train digits --method xnor") == ["xnor-net", "xnor++"]
    assert completed(script, "rbnn train digits --activation pre") == ["prelu"]
    assert completed(script, "rbnn predict net.rbnn --j") == ["--json"]
    assert completed(script, "rbnn predict net.rbnn ca") == []  # a file, by -o default
    assert completed(script, "rbnn completion z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(shell: str, rbnn: Rbnn, tmp_path: Path) -> None:
    answer = rbnn("completion", shell)
    assert (answer.code, answer.err) == (0, "")
    assert "resnet20-bireal-digits" in answer.out
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    path = tmp_path / f"rbnn.{shell}"
    path.write_text(answer.out, "utf-8")
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_torch_the_commands_are_there_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, "completion", "fish"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "-a train -d " in done.stdout
    assert "seen_subcommand_from predict' -l top" in done.stdout
    assert "seen_subcommand_from train" not in done.stdout


def test_another_shell_is_refused(rbnn: Rbnn) -> None:
    answer = rbnn("completion", "cmd")
    assert (answer.code, answer.out) == (2, "")
