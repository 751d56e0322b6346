"""The table of `rbnn info`.  A narrow terminal gets fewer columns, and names of layers are always complete."""

import os
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rbnn.text import visible

PIPED = 100
"""Columns of the text if the output is neither a terminal nor given a width.  The table is then as wide as it needs."""
LEFT = "layer", "kind"
"""Columns of words, which are aligned to the left."""
GAP = 2
"""Spaces between two columns."""


def wide_console() -> Console:
    console = Console(highlight=False)
    return console if _has_width(console) else Console(highlight=False, width=PIPED)


def print_layers(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str],
    expendable: Sequence[str],
) -> None:
    """``expendable`` names the columns that may be left out, the first one first.  If the names of the layers do not
    fit even then, they go on in the next line."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = {
        column: max(len(line) for cell in (column, *cells) for line in cell.split("\n"))
        for column, *cells in zip(columns, *rows, total, strict=True)
    }
    shown = list(columns)
    for column in expendable:
        if not _has_width(console) or _width(widths, shown) <= console.width:
            break
        shown.remove(column)
    table = Table(title=escape(visible(title)), box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in shown:
        justify, name = "left" if column in LEFT else "right", column == columns[0]
        table.add_column(column, justify=justify, no_wrap=not name, overflow="fold")  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*_chosen(row, columns, shown))
    table.add_section()
    table.add_row(*_chosen(total, columns, shown))
    if not _has_width(console):
        console = Console(highlight=False, width=max(PIPED, _width(widths, shown)))
    console.print(table)


def _has_width(console: Console) -> bool:
    return console.is_terminal or "COLUMNS" in os.environ


def _width(widths: dict[str, int], columns: Sequence[str]) -> int:
    return sum(widths[column] for column in columns) + GAP * (len(columns) - 1)


def _chosen(row: Sequence[str], columns: Sequence[str], shown: Sequence[str]) -> list[str]:
    return [escape(cell) for cell, column in zip(row, columns, strict=True) if column in shown]
