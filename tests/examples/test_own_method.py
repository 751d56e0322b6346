"""The example method and network: every command accepts them with --import."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWN = "balanced.py", "plain_network.py"
IMPORTS = [word for name in OWN for word in ("--import", f"mine/{name}")]
TRAIN = [
    "train", "digits", "--method", "balanced", "--model", "plain-three", "--options", "estimator=ppf",
    "--epochs", "1", "--limit", "128", "--batch-size", "64", "--threads", "1", "--out", "run",
]  # fmt: skip
COMMANDS: dict[str, tuple[list[str], str]] = {
    "methods as data": (["methods", "--json"], "balanced"),
    "methods": (["methods"], "balanced"),
    "one method": (["methods", "balanced"], "Signs around the median"),
    "models": (["models"], "plain-three"),
    "info by name": (["info", "plain-three", "--method", "balanced"], "plain-three, balanced"),
    "train": (TRAIN, "plain-three balanced on digits"),
    "resume": (["train", "run", "--resume"], "run is finished after 1 epoch"),
    "eval": (["eval", "run", "--json"], "top1"),
    "info": (["info", "run"], "plain-three, balanced"),
    "export": (["export", "run", "-o", "net.rbnn"], "net.rbnn"),
    "predict": (["predict", "run", "one.png"], "one.png"),
    "bench": (["bench", "run", "--against", "", "--seconds", "0.01"], "rbnn"),
    "report": (["report", "run", "-o", "report.html"], "report.html"),
    "fine-tuning": ([*TRAIN[:-1], "further", "--start-from", "run"], "plain-three balanced on digits"),
}
"""Each command with a word that it prints."""
NEED_THEM = ("resume", "eval", "info", "export", "predict", "bench", "report")
SCRIPT = """
import contextlib, io, json, sys
from rbnn.cli import main

answers = {}
for name, words in json.loads(sys.argv[1]).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    answers[name] = code, out.getvalue(), err.getvalue()
print(json.dumps(answers))
"""


def answers(commands: dict[str, list[str]], folder: Path) -> dict[str, tuple[int, str, str]]:
    """Exit code, stdout and stderr of each, in a separate process, so that what they register does not affect other
    tests."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps(commands)], cwd=folder, capture_output=True,
        text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: tuple(answer) for name, answer in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the examples in mine/ and an image."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("own")
    (folder / "mine").mkdir()
    for name in OWN:
        (folder / "mine" / name).write_bytes((ROOT / "examples" / name).read_bytes())
    Image.new("L", (8, 8), 99).save(folder / "one.png")
    return folder


def test_the_page_shows_the_examples() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"\[`(\w+\.py)`\]\S*:\n\n```python\n(.*?)```", page, re.DOTALL))
    assert shown == {name: (ROOT / "examples" / name).read_text(encoding="utf-8") for name in OWN}


def test_every_command_takes_them(folder: Path) -> None:
    # Imports persist within the process, so each flag is given where it is first needed.
    given = {name: [*words, *IMPORTS] for name, (words, _) in COMMANDS.items()}
    found = answers(given, folder)
    for name, (code, out, err) in found.items():
        assert code == 0, (name, err)
        assert COMMANDS[name][1] in out, (name, out)
    # The file is the first to import rbnn's own methods, but they do not belong to it.
    sources = {row["name"]: row["imported_from"] for row in json.loads(found["methods as data"][1])}
    assert {name: source for name, source in sources.items() if source} == {"balanced": "mine/balanced.py"}
    config = (folder / "run" / "config.toml").read_text(encoding="utf-8")
    assert 'imports = ["mine/balanced.py", "mine/plain_network.py"]' in config
    checkpoint_is_remembered_as_needing_them(folder)
    a_file_that_a_checkpoint_names_is_never_run(folder)


def checkpoint_is_remembered_as_needing_them(folder: Path) -> None:
    needs = (
        "rbnn: the run needs mine/balanced.py and mine/plain_network.py: add --import mine/balanced.py --import "
        "mine/plain_network.py\n"
    )
    given = {name: COMMANDS[name][0] for name in NEED_THEM} | {
        "checkpoint": ["eval", "run/best.pt"],
        "half": ["eval", "run", "--import", "mine/balanced.py"],
        "start": ["train", "digits", "--start-from", "run", "--out", "new", "--epochs", "1"],
    }
    for name, answer in answers(given, folder).items():
        assert answer == (2, "", needs), name
    assert not (folder / "new").exists()
    # The packed file needs neither the method nor its code.
    ((code, out, _),) = answers({"": ["predict", "net.rbnn", "one.png"]}, folder).values()
    assert (code, "one.png" in out) == (0, True)


def a_file_that_a_checkpoint_names_is_never_run(folder: Path) -> None:
    """Even though the file exists where the checkpoint says."""
    for name in OWN:
        (folder / "mine" / name).write_text("open('executed', 'w')\n", encoding="utf-8")
    answers({name: COMMANDS[name][0] for name in NEED_THEM}, folder)
    assert not (folder / "executed").exists()
