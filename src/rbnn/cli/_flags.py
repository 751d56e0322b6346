"""Parse the flags of a command, with help texts that are wrapped as paragraphs."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any, TypeVar

import tyro

Options = TypeVar("Options")


def parse_flags(options: type[Options], words: list[str], **settings: Any) -> Options:
    """``options``, a dataclass, from the words of a command line.  ``settings`` are arguments of ``tyro.cli``."""
    with _flowing(options) if {"-h", "--help"} & set(words) else nullcontext():
        parsed: Options = tyro.cli(options, args=words, **settings)
    return parsed


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
