"""The reference pages: one per command, from its help, and one per public module, from its docstrings."""

import contextlib
import importlib
import inspect
import io
import os
import sys
from unittest import mock

from docstrings import inline_code

from rbnn import cli

MODULES = (
    "rbnn",
    "rbnn.nn",
    "rbnn.methods",
    "rbnn.functional",
    "rbnn.models",
    "rbnn.optim",
    "rbnn.data",
    "rbnn.training.config",
    "rbnn.training.loop",
    "rbnn.training.statistics",
    "rbnn.exporting",
    "rbnn.packed.session",
    "rbnn.packed.prediction",
    "rbnn.packed.file",
    "rbnn.packed.graph",
    "rbnn.packed.oracle",
    "rbnn.packed.pretrained",
    "rbnn.costs.model",
    "rbnn.costs.packed",
    "rbnn.errors",
)
"""What is documented: the names that users import, and the modules that the other pages name."""

COLUMNS = 84
"""The width of help texts, which fits on a screen of 1280 pixels."""


def commands() -> dict[str, str]:
    """Pages by path, one per command."""
    return {f"reference/commands/{name}.md": _command(name) for name in cli.commands()}


def command_table() -> str:
    """A list of links to the commands, each with its sentence from ``rbnn --help``."""
    said = {name: cli.summary(path) for name, path in cli.commands().items()}
    rows = [f"| [`rbnn {name}`](reference/commands/{name}.md) | {text} |" for name, text in said.items()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def modules() -> dict[str, str]:
    """Pages by path, one per module."""
    shown: dict[str, str] = {}
    return {f"reference/python/{name}.md": _module(name, shown) for name in MODULES}


def help_of(*words: str) -> str:
    """What ``rbnn WORDS --help`` prints."""
    printed = io.StringIO()
    plain = {"COLUMNS": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb"}
    with mock.patch.dict(os.environ, plain), contextlib.redirect_stdout(printed):
        code = cli.main([*words, "--help"])
    if code != 0:
        raise RuntimeError(f"rbnn {' '.join(words)} --help ended with {code}")
    return printed.getvalue().strip("\n")


def _command(name: str) -> str:
    return f"# rbnn {name}\n\n`rbnn {name} --help` prints:\n\n```text\n{help_of(name)}\n```\n"


def public_names(module: str) -> list[str]:
    """``__all__``, or what a module without one defines."""
    found = importlib.import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    own = {name for name, value in vars(found).items() if getattr(value, "__module__", None) == module}
    return sorted(name for name in own if not name.startswith("_"))


def defined_at(module: str, name: str) -> str:
    """The full name of something public, in the file that defines it."""
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    for path, source in sorted(_sources(module).items()):
        if f"\n{name}:" in source or f"\n{name} =" in source:
            return f"{path}.{name}"
    raise LookupError(f"{module}.{name} is defined nowhere")


def _sources(module: str) -> dict[str, str]:
    """The files of a module or package, by the names under which they are imported."""
    names = [name for name in sys.modules if name == module or name.startswith(f"{module}.")]
    return {name: "\n" + inspect.getsource(sys.modules[name]) for name in names}


def _module(module: str, shown: dict[str, str]) -> str:
    """Each object has one entry, on the first page that shows it (``shown``); later pages link there."""
    summary = inspect.getdoc(importlib.import_module(module)) or ""
    parts = [f"# {module}", "", inline_code(summary.partition("\n\n")[0]), ""]
    for name in sorted(public_names(module), key=str.lower):
        place = defined_at(module, name)
        if shown.setdefault(place, module) == module:
            parts += [f"::: {place}", ""]
        else:
            parts += [f"`{name}` is described in [{shown[place]}]({shown[place]}.md#{place}).", ""]
    return "\n".join(parts)
