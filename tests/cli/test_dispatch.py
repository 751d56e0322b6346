"""The command line before any command: names, help, exit codes, streams."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from answers import WITHOUT_TORCH, Rbnn

from rbnn import __version__, cli
from rbnn.errors import RbnnError


def fresh(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a fresh interpreter."""
    env = os.environ | environment
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120, env=env)


def test_help_lists_every_command_with_what_it_does(rbnn: Rbnn) -> None:
    for words in (["--help"], ["-h"]):
        answer = rbnn(*words)
        assert (answer.code, answer.err) == (0, "")
        assert {"train", "eval", "models", "methods", "data"} <= set(cli.commands())
        for name in cli.commands():
            (line,) = [line for line in answer.out.splitlines() if line.startswith(f"  {name} ")]
            assert len(line.split()) > 3


def test_help_of_a_command_by_either_name(rbnn: Rbnn) -> None:
    assert rbnn("help").out == rbnn("--help").out
    assert rbnn("help", "train").out == rbnn("train", "--help").out


def test_no_command_shows_the_way(rbnn: Rbnn) -> None:
    answer = rbnn()
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"rbnn {__version__}: ")
    assert "`rbnn --help` lists all commands" in answer.out
    shown = [line.split() for line in answer.out.splitlines() if line.startswith("  rbnn ")]
    assert [words[1] for words in shown] == ["doctor", "predict", "train", "report", "export", "bench"]
    assert {words[1] for words in shown} <= set(cli.commands())
    assert max(map(len, answer.out.splitlines())) <= 120


def test_version(rbnn: Rbnn) -> None:
    answer = rbnn("--version")
    assert (answer.code, answer.out) == (0, f"rbnn {__version__}\n")


@pytest.mark.parametrize("name", sorted(cli.commands()))
def test_every_command_explains_itself_with_an_example(name: str, rbnn: Rbnn) -> None:
    answer = rbnn(name, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert f"rbnn {name}" in answer.out
    assert "Example" in answer.out
    assert "Traceback" not in answer.out


def test_help_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from rbnn.cli import main; main(['--help']); print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = fresh(code)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr == ""


def test_without_torch_a_command_says_what_to_install() -> None:
    done = fresh(WITHOUT_TORCH, "eval", ".")
    assert done.returncode == 2
    assert done.stderr == "rbnn: `rbnn eval` needs torch: pip install 'rbnn[train]'\n"


def test_without_torch_a_network_that_is_not_there_is_the_trouble() -> None:
    done = fresh(WITHOUT_TORCH, "eval", "net")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "rbnn: no checkpoint, run directory, packed file or pretrained network is named net: "
    )


@pytest.mark.parametrize(("wrong", "right"), [("trian", "train"), ("evaluate", "eval"), ("model", "models")])
def test_unknown_command_names_the_nearest(wrong: str, right: str, rbnn: Rbnn) -> None:
    answer = rbnn(wrong)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"rbnn: unknown command '{wrong}': did you mean '{right}'? available: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("-v", "did you mean --version? "),
        ("-V", "did you mean --version? "),
        ("--hlep", "did you mean --help? "),
        ("-", ""),
    ],
)
def test_an_option_is_not_called_a_command(wrong: str, hint: str, rbnn: Rbnn) -> None:
    answer = rbnn(wrong)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"rbnn: unknown option '{wrong}': {hint}`rbnn --help` lists commands and options\n"


def test_the_name_of_a_network_belongs_to_info(rbnn: Rbnn) -> None:
    answer = rbnn("models", "resnet18")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "rbnn: `rbnn models` lists all networks and takes no name: run `rbnn info resnet18`\n"


@pytest.fixture
def command_that(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make `rbnn models` raise the given exception."""

    def install(error: BaseException) -> None:
        def run(options: object) -> None:
            raise error

        fake = SimpleNamespace(parse=lambda words: None, run=run)
        monkeypatch.setattr("importlib.import_module", lambda name: fake)

    return install


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (RbnnError("do this"), 2, "rbnn: do this"),
        (ValueError("oh"), 1, "rbnn: this is a bug in rbnn: ValueError: oh (--debug shows the traceback)"),
        (
            ModuleNotFoundError("No module named 'json5'", name="json5"),
            1,
            "rbnn: this is a bug in rbnn: ModuleNotFoundError",
        ),
        (PermissionError(13, "Permission denied", "a/b"), 2, "rbnn: cannot access a/b: Permission denied"),
        (OSError("odd"), 2, "rbnn: input or output failed: odd"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (SystemExit(2), 2, ""),
        (SystemExit("a sentence"), 2, ""),
    ],
)
def test_exit_codes(error: BaseException, code: int, says: str, rbnn: Rbnn, command_that: Any) -> None:
    command_that(error)
    answer = rbnn("models")
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith(says)
    assert answer.err.count("\n") <= 1
    with_traceback = rbnn("models", "--debug")
    assert with_traceback.code == code
    if code in (1, 2) and not isinstance(error, SystemExit):
        assert "Traceback (most recent call last)" in with_traceback.err
        assert "raise error" in with_traceback.err


@pytest.mark.parametrize("words", [["--help"], ["models"], ["train", "--help"]])
def test_a_reader_that_left_is_no_error(words: list[str]) -> None:
    """As in `rbnn models | true`."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "rbnn", *words]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_our_letters() -> None:
    done = fresh("import sys; from rbnn.cli import main; sys.exit(main(['--help']))", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: rbnn COMMAND ?" in done.stdout


# Streams that are closed or full


def shell(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = f'"{sys.executable}" -m rbnn {words}'
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_what_the_caller_closed_is_nobodys(tmp_path: Path) -> None:
    """The next opened file must not get the number of a closed stream, or output would end up in it."""
    run = "train digits --epochs 1 --limit 64 --batch-size 64 --threads 1 --out run"
    done = shell(f"{run} >&- 2>&-", tmp_path)
    assert done.returncode == 0
    names = {path.name for path in (tmp_path / "run").iterdir() if not path.name.startswith("events")}
    assert names == {"config.toml", "log.jsonl", "initial.safetensors", "last.pt", "best.pt"}
    assert shell("methods --json >&-", tmp_path).returncode == 0
    done = shell("eval nothing.pt >&-", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_stderr_changes_no_exit_code(tmp_path: Path) -> None:
    assert shell("eval nothing.pt 2>/dev/full", tmp_path).returncode == 2
    done = shell("methods >/dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (2, "rbnn: input or output failed: No space left on device\n")
