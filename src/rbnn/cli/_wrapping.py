"""Text in the width of the terminal."""

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator

MARGIN = "  "
"""In front of each line of a command's text, as in the boxes below it.  tyro joins lines that begin with a letter."""
COLUMN = re.compile(r"\S {3,}(?=\S)")
"""What separates columns in a docstring."""


def terminal_width() -> int:
    """At least 40 columns, as in tyro."""
    return max(40, shutil.get_terminal_size().columns)


def wrapped(text: str, margin: str = "") -> str:
    """The paragraphs of a docstring, wrapped for the terminal.  Lines with columns stay lines.  Examples are not
    wrapped, so that they can be copied."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join("\n".join(_paragraph(each, margin)) for each in paragraphs)


def table(rows: dict[str, str]) -> list[str]:
    """Two columns.  Where the terminal has no room for the second, it is below the first."""
    widest = max(map(len, rows))
    room = terminal_width() - len(MARGIN)
    if widest + 2 + max(map(len, rows.values())) > room and widest > room // 2:
        below = f"{MARGIN}    "
        return [
            line
            for name, what in rows.items()
            for line in (f"{MARGIN}{name}", *textwrap.wrap(what, room, initial_indent=below, subsequent_indent=below))
        ]
    return [_wrapped_row(f"{name:<{widest}}   {what}", MARGIN) for name, what in rows.items()]


def _paragraph(text: str, margin: str) -> list[str]:
    if text.startswith("Example"):
        return [margin + line for line in text.splitlines()]
    return [_wrapped_row(row, margin) for row in _rows(text)]


def _rows(paragraph: str) -> Iterator[str]:
    """A paragraph of prose is one row.  In a table and in formulas, which are indented, each line is one; a line that
    begins under the second column of a table continues the row above it."""
    lines = paragraph.splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines]
    if len(set(indents)) == 1 and not any(COLUMN.search(line) for line in lines):
        yield " " * indents[0] + " ".join(" ".join(lines).split())
        return
    row = ""
    for line, indent in zip(lines, indents, strict=True):
        if row and not indents[0] and indent and indent == _second_column(row):
            row = f"{row} {line.strip()}"
        else:
            if row:
                yield row
            row = line.rstrip()
    yield row


def _second_column(row: str) -> int:
    """Where the second column begins; 0 without one."""
    found = COLUMN.search(row)
    return found.end() if found else 0


def _wrapped_row(row: str, margin: str) -> str:
    width = terminal_width()
    indent = len(row) - len(row.lstrip())
    formula, _, remark = row.rpartition("    ")
    if indent and formula.strip() and len(margin + row) > width:
        return f"{margin}{formula.rstrip()}\n{margin}{' ' * 2 * indent}{remark}"
    hanging = _second_column(row)
    under = hanging if 0 < hanging <= width // 2 else 2 * indent
    return textwrap.fill(
        row, width, initial_indent=margin, subsequent_indent=margin + " " * under, break_on_hyphens=False
    )
