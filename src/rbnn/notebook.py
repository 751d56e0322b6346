"""How rbnn's objects look in a notebook.  Everything that is shown is escaped, because names come from files."""

import sys
from collections.abc import Iterable, Sequence
from html import escape

STYLE = "text-align:left;padding:0.1em 0.8em 0.1em 0"


def table(caption: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Rows under a caption, as HTML."""
    lines = [_row("th", head)] if head else []
    lines += [_row("td", row) for row in rows]
    return f'<table><caption style="text-align:left"><b>{escape(caption)}</b></caption>{"".join(lines)}</table>'


def _row(tag: str, values: Sequence[object]) -> str:
    cells = (f'<{tag} style="{STYLE}">{escape(str(value))}</{tag}>' for value in values)
    return f"<tr>{''.join(cells)}</tr>"


def inside() -> bool:
    """Whether this process is a notebook kernel, which can show HTML."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
