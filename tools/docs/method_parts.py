"""The parts of a method's page that the library knows itself: formula, options, drawings, published results.

A page asks for one by a comment, ``<!-- options of xnor-net -->``, which a forge does not show.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

import estimator_figures
from docstrings import formula, inline_code, options

from rbnn.methods import METHODS, method_options
from rbnn.reproduce.tables import TABLES

ASKED = re.compile(r"<!-- (formula|gradients|options|published results) of (\S+) -->")


def fill_in(text: str) -> str:
    """A page with what it asks for."""
    text = text.replace("<!-- estimators -->", estimator_figures.of_all())
    return ASKED.sub(lambda asked: PARTS[asked[1]](asked[2]), text)


def _docstring(name: str) -> str:
    return inspect.getdoc(METHODS[name]) or ""


def _formula(name: str) -> str:
    return formula(_docstring(name))


def _options(name: str) -> str:
    defaults = method_options(name)
    if not defaults:
        return "It has no options."
    said = options(_docstring(name))
    rows = [f"| `{key}` | `{_shown(value)}` | {_cell(said[key])} |" for key, value in defaults.items()]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _cell(text: str) -> str:
    return inline_code(text).replace("|", "\\|")


def _published(name: str) -> str:
    rows = [
        f"| {table.title.partition(': ')[2]} | `{row.model}` | {row.top1:.1f} % | "
        f"{'' if row.top5 is None else f'{row.top5:.1f} %'} | `rbnn reproduce {table.name} --rows {row.name}` |"
        for table in (TABLES["cifar10"], TABLES["imagenet"])
        for row in table.rows
        if row.method == name
    ]
    return "\n".join(["| data | network | top-1 | top-5 | command |", "|---|---|---:|---:|---|", *rows])


PARTS: dict[str, Callable[[str], str]] = {
    "formula": _formula,
    "gradients": estimator_figures.of_method,
    "options": _options,
    "published results": _published,
}
