"""`rbnn methods`: the binarization methods and their options."""

import inspect
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Methods:
    """The binarization methods that rbnn knows by name, and their options with defaults.

    Example: rbnn methods --json
    """

    json: bool = False
    """Print JSON."""


def run(options: Methods) -> None:
    """List them."""
    from rich.console import Console
    from rich.table import Table

    from rbnn.methods import METHODS, method_names, method_options

    rows: list[dict[str, Any]] = []
    for name in method_names():
        doc = inspect.getdoc(METHODS[name]) if name in METHODS else "No binarization: the float twin of a network."
        rows.append({"name": name, "summary": (doc or "").partition("\n")[0], "options": method_options(name)})
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("method", "what it does", "options (defaults)")
    for row in rows:
        chosen = "\n".join(f"{key}={value}" for key, value in row["options"].items())
        table.add_row(str(row["name"]), str(row["summary"]), chosen)
        table.add_section()
    Console().print(table)
