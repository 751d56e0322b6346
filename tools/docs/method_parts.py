"""The parts of a method's page that come from the library: formula, options, plots, published results.

A comment such as ``<!-- options of xnor-net -->`` says where a part belongs.  The part follows it, up to ``<!-- end of
options -->``, so that a code-hosting site shows it.  After a change in the library, write the parts again:

    python tools/docs/method_parts.py

The documentation site always computes them and adds the plots.
"""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import estimator_figures
from docstrings import formula, inline_code, options

from rbnn.methods import METHODS, method_options
from rbnn.reproduce.tables import TABLES

PAGES = Path(__file__).parents[2] / "docs" / "methods"
PART = re.compile(
    r"<!-- (formula|gradients|options|published results) of (\S+) -->(?:.*?<!-- end of \1 -->)?", re.DOTALL
)


def fill_in(text: str) -> str:
    """A page for the site, with its parts and plots."""
    text = text.replace("<!-- estimators -->", estimator_figures.of_all())
    return PART.sub(lambda found: PARTS[found[1]](found[2]), text)


def written(text: str) -> str:
    """A page as it is stored, with its parts between comments."""
    return PART.sub(lambda found: f"<!-- {found[1]} of {found[2]} -->\n\n{_stored(*found.groups())}\n\n"
                    f"<!-- end of {found[1]} -->", text)  # fmt: skip


def _stored(part: str, name: str) -> str:
    if part == "gradients":
        return "`make docs` builds the site, which draws the derivatives here."
    return _formula(name) if part == "formula" else PARTS[part](name)


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


def _wrapped_formula(name: str) -> str:
    """A formula in a block whose long lines are wrapped."""
    return f'<div class="formula no-copy" markdown>\n\n{_formula(name)}\n\n</div>'


PARTS: dict[str, Callable[[str], str]] = {
    "formula": _wrapped_formula,
    "gradients": estimator_figures.of_method,
    "options": _options,
    "published results": _published,
}


def main() -> None:
    """Write the parts of all pages."""
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
