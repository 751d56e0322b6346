"""Help texts of flags are paragraphs, whatever line breaks their docstrings have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_type_hints

import pytest
import tyro

from rbnn.cli import main
from rbnn.cli._flags import parse_flags
from rbnn.errors import ConfigError


@dataclass(frozen=True)
class Small:
    """A command."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("here")
    """Where the result goes, if
    it goes anywhere."""
    count: int = 1
    silent: bool = False
    share: float = 0.5


def test_a_help_text_has_no_line_breaks_of_the_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    before = get_type_hints(Small, include_extras=True)
    with pytest.raises(SystemExit):
        parse_flags(Small, ["--help"], prog="small")
    assert "Where the result goes, if it goes anywhere. (default: here)" in capsys.readouterr().out
    assert get_type_hints(Small, include_extras=True) == before


def test_flags_keep_their_other_names_and_their_types() -> None:
    assert parse_flags(Small, ["-o", "there", "--count", "3"]) == Small(Path("there"), 3)


def test_without_the_source_flags_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr("inspect.getsource", missing)
    assert parse_flags(Small, ["--silent"]) == Small(silent=True)
    with pytest.raises(SystemExit) as end:
        parse_flags(Small, ["--help"])
    assert end.value.code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--count", "x"], "--count takes a whole number, got 'x'"),
        (["--share", "half"], "--share takes a number, got 'half'"),
        (["--cuont", "3"], "unknown option --cuont: did you mean --count?"),
        (["--out", "x"], "unknown option --out: did you mean --output? `"),
        (["--slient"], "unknown option --slient: did you mean --silent? `"),
        (["extra"], "unknown option extra"),
        (["--count"], "--count needs a value"),
    ],
)
def test_a_bad_flag_is_one_sentence(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_flags(Small, words, prog="rbnn small [RECIPE]")
    assert str(caught.value).startswith(says)
    assert str(caught.value).endswith("`rbnn small --help` explains the options")
    assert "│" not in str(caught.value)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["eval"], "the argument NET is missing: `rbnn eval --help` explains the options"),
        (["completion"], "the argument {bash,zsh,fish} is missing: `rbnn completion --help` explains the options"),
        (["reproduce"], "the argument TABLE is missing: `rbnn reproduce --help` explains the options"),
        (["import", "x"], "the argument -o is missing: `rbnn import --help` explains the options"),
        (["export", "x", "--stem", "int4"], "--stem takes one of 'float32', 'int8', got 'int4': `rbnn export --help`"),
        (["completion", "tcsh"], "shell takes one of 'bash', 'zsh', 'fish', got 'tcsh': `rbnn completion --help`"),
    ],
)
def test_a_missing_argument_or_a_bad_choice_is_one_sentence(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"rbnn: {says}")
    assert said.count("\n") == 1
