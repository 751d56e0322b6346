"""What tyro shows for ``rbnn COMMAND --help``, with a plain name for each value and lines that fit the terminal."""

import ast
import dataclasses
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import tyro

from rbnn.cli._wrapping import terminal_width

VALUES = {Path: "PATH", str: "NAME", int: "INT", float: "FLOAT"}
"""Names of values, by their type."""
NO_DEFAULT = "", "''", "None", "False"
"""Defaults that say nothing: the value is absent, and the help says what happens then."""


class Shown(io.StringIO):
    """Takes what tyro prints, with the colours and the characters of standard output."""

    def __init__(self) -> None:
        super().__init__()
        self.output = sys.stdout

    def isatty(self) -> bool:
        return self.output.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.output.encoding


def tidied(shown: str) -> str:
    """What tyro prints, with one empty line between paragraphs and with a usage line that fits the terminal."""
    usage, _, rest = re.sub(r"\n{3,}", "\n\n", re.sub(r" +$", "", shown, flags=re.MULTILINE)).partition("\n")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", usage)
    if len(plain) > terminal_width():
        kept = re.sub(r"\[[^]]*\]", lambda found: found[0].replace(" ", "\0"), plain)  # [--json | --no-json]
        filled = textwrap.fill(kept, terminal_width(), subsequent_indent=" " * len("usage: "), break_on_hyphens=False)
        usage = filled.replace("\0", " ")
    return f"{usage}\n{rest.rstrip()}\n"


@contextmanager
def explained(options: type) -> Iterator[None]:
    """Inside the block, each field of a dataclass has its docstring as help, in one line, and a plain name for its
    value.  Otherwise tyro keeps the line breaks of the source and shows types such as ``{None}|PATH``."""
    before = options.__annotations__
    said = _docstrings(options)
    hints = get_type_hints(options, include_extras=True)
    required = {each.name for each in dataclasses.fields(options) if _has_no_default(each)}
    options.__annotations__ = {
        name: Annotated[
            hint,
            tyro.conf.arg(
                help=" ".join(said[name].split()) if name in said else None,
                metavar=_value(name, hints[name], name in required),
                help_behavior_hint=lambda label: "" if label in NO_DEFAULT else f"(default: {label})",
            ),
        ]
        for name, hint in before.items()
    }
    try:
        yield
    finally:
        options.__annotations__ = before


def _has_no_default(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _value(name: str, hint: Any, required: bool) -> str | None:
    """What the help calls the value of a field; None leaves the choice to tyro."""
    marks = getattr(hint, "__metadata__", ())
    kind = get_args(hint)[0] if marks else hint
    if any(getattr(mark, "metavar", None) for mark in marks):
        return None  # it has a name
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    several = get_origin(kind) is tuple
    kind = get_args(kind)[0] if several else kind
    if kind not in VALUES:
        return None
    if tyro.conf.Positional not in marks:
        return VALUES[kind] + " ..." * several
    own = f"{name.removesuffix('s').upper()} ..." if several else name.upper()
    return own if required else f"[{own}]"


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
