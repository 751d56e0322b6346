"""Parse the flags of a command, with errors in one sentence."""

import io
import re
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from typing import Any, TypeVar

import tyro

from rbnn.cli._help import Shown, explained, tidied
from rbnn.cli._wrapping import MARGIN, wrapped
from rbnn.errors import ConfigError

Options = TypeVar("Options")


def parse_flags(options: type[Options], words: list[str], **settings: Any) -> Options:
    """``options``, a dataclass, from the words of a command line.  ``settings`` are arguments of ``tyro.cli``."""
    shown = Shown()
    help_wanted = bool({"-h", "--help"} & set(words))
    if help_wanted:
        settings["description"] = wrapped(settings.get("description") or options.__doc__ or "", MARGIN)
    plain = explained(options) if help_wanted else nullcontext()
    try:
        with plain, redirect_stdout(shown), redirect_stderr(io.StringIO()):
            parsed: Options = tyro.cli(options, args=words, **settings)
    except SystemExit as end:
        if not end.code:
            print(tidied(shown.getvalue()), end="")
            raise
        complaint = _complaint(options, words, settings)
        raise ConfigError(_sentence(complaint, settings["prog"].partition(" [")[0])) from None
    return parsed


def _complaint(options: type, words: list[str], settings: dict[str, Any]) -> str:
    """What tyro says about wrong words, with plain names of values."""
    said = io.StringIO()
    with explained(options), redirect_stderr(said), suppress(SystemExit):
        tyro.cli(options, args=words, **settings)
    return said.getvalue()


def _sentence(box: str, command: str) -> str:
    """What tyro says in a box, in one sentence."""
    plain_box = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│| ") for line in plain_box.splitlines() if line[:1] not in "╭╰+"]
    text = " ".join(line for line in lines if line.strip("─-"))
    text = re.sub(
        r"^[A-Z][a-z ]+ (?=Error parsing |Unrecognized options: |Missing |invalid choice )", "", text
    )  # the box's title
    text, _, _ = text.partition(" For full helptext")
    text, _, near = text.partition(" Perhaps you meant: ")
    text, _, _ = text.partition(" Argument helptext:")
    hint = f"did you mean {_long_name(near)}? " if near else ""
    for pattern, plain in _PLAIN.items():
        text = re.sub(pattern, plain, text)
    return f"{text}: {hint}`{command} --help` explains the options"


def _long_name(near: str) -> str:
    """The name of the option that tyro suggests, without its short form: ``--output`` of ``-o, --output PATH …``."""
    names = [word.rstrip(",") for word in near.split()]
    return next((name for name in names if name.startswith("--")), names[0])


_PLAIN = {
    r"^Error parsing (\S+): invalid literal for int\(\) with base 10: ": r"\1 takes a whole number, got ",
    r"^Error parsing (\S+): could not convert string to float: ": r"\1 takes a number, got ",
    r"^Error parsing (\S+): ": r"\1: ",
    r"^Unrecognized options: ([^,]*).*": r"unknown option \1",
    r"^Missing value for argument '(\S+)'.*": r"\1 needs a value",
    r"^Missing from rbnn \w+: (\{.*?\}|[^\s,]+).* \(required\).*": r"the argument \1 is missing",
    r"^invalid choice (.*) for argument '(\S+)'\. Expected one of \((.*)\)\.$": r"\2 takes one of \3, got \1",
}
"""What tyro says, and the same in our words."""
