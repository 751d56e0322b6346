"""Help texts of flags are paragraphs, whatever line breaks their docstrings have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_type_hints

import pytest
import tyro

from rbnn.cli._flags import parse_flags


@dataclass(frozen=True)
class Small:
    """A command."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("here")
    """Where the result goes, if
    it goes anywhere."""
    count: int = 1
    silent: bool = False


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
