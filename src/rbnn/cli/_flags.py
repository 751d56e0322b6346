"""Parse the flags of a command, with help texts that are wrapped as paragraphs and errors in one sentence."""

import ast
import inspect
import io
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from typing import Annotated, Any, TypeVar

import tyro

from rbnn.errors import ConfigError

Options = TypeVar("Options")


def parse_flags(options: type[Options], words: list[str], **settings: Any) -> Options:
    """``options``, a dataclass, from the words of a command line.  ``settings`` are arguments of ``tyro.cli``."""
    said = io.StringIO()
    try:
        with _flowing(options) if {"-h", "--help"} & set(words) else nullcontext(), redirect_stderr(said):
            parsed: Options = tyro.cli(options, args=words, **settings)
    except SystemExit as end:
        if not end.code:
            raise
        raise ConfigError(_sentence(said.getvalue(), settings["prog"].partition(" [")[0])) from None
    return parsed


def _sentence(box: str, command: str) -> str:
    """What tyro says in a box, in one sentence."""
    plain_box = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│| ") for line in plain_box.splitlines() if line[:1] not in "╭╰+"]
    text = " ".join(line for line in lines if line.strip("─-"))
    text = re.sub(r"^[A-Z][a-z ]+ (?=Error parsing |Unrecognized options: |Missing )", "", text)  # the box's title
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
    r"^Missing from rbnn \w+: \S+ (.*?)\.? \(required\).*": r"an argument is missing (\1)",
}
"""What tyro says, and the same in our words."""


@contextmanager
def _flowing(options: type) -> Iterator[None]:
    """Inside the block, the docstring of each field is its help in one line.  Otherwise tyro keeps the line breaks of
    the source, because the lines are indented."""
    before = options.__annotations__
    said = _docstrings(options)
    options.__annotations__ = {
        name: Annotated[hint, tyro.conf.arg(help=" ".join(said[name].split()))] if name in said else hint
        for name, hint in before.items()
    }
    try:
        yield
    finally:
        options.__annotations__ = before


def _docstrings(options: type) -> dict[str, str]:
    """The docstrings of the fields, as in the source; none if that is not installed."""
    found: dict[str, str] = {}
    try:
        (made,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    except OSError:
        return found
    assert isinstance(made, ast.ClassDef)
    for field, after in zip(made.body, made.body[1:], strict=False):
        match field, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = text
    return found
