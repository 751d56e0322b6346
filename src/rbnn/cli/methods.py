"""`rbnn methods`: list the binarization methods and their options."""

import inspect
import json
import re
from dataclasses import dataclass
from typing import Any

import tyro


@dataclass(frozen=True)
class Methods:
    """List the binarization methods and their options. The defaults follow each method's paper and its authors' code.
    With a name, the command explains that method, and where the bundled recipes differ from the paper and why.

    Example: rbnn methods rbnn
    """

    name: tyro.conf.Positional[str] = ""
    """Method to explain. The default lists all methods."""
    json: bool = False
    """Print JSON."""


def run(options: Methods) -> None:
    """List them, or explain one."""
    from rbnn.methods import check_method, method_names

    if options.name:
        check_method(options.name)
        rows = [_row(options.name)]
    else:
        rows = [_row(name) for name in method_names()]
    if options.json:
        print(json.dumps(rows, indent=2))
    elif options.name:
        _explain(rows[0])
    else:
        _list(rows)


def _row(name: str) -> dict[str, Any]:
    from rbnn.methods import METHODS, method_options
    from rbnn.plugins import source_of

    doc = inspect.getdoc(METHODS[name]) if name in METHODS else "No binarization: the float twin of a network."
    return {
        "name": name,
        "summary": (doc or "").partition("\n")[0],
        "options": method_options(name),
        "in_our_recipes": _in_recipes(name),
        "imported_from": source_of("method", name),
    }


def _in_recipes(name: str) -> list[dict[str, Any]]:
    """Where our recipes use an option differently from the method's paper: recipe, option, value, and the reason that
    the recipe gives."""
    from rbnn.methods import differences
    from rbnn.training.config import bundled_recipes, read_recipe

    found = []
    for path in sorted(bundled_recipes().glob("*.toml")):
        config = read_recipe(path)
        if config.method == name:
            text = path.read_text(encoding="utf-8")
            for key, (here, _) in differences(name, config.options).items():
                reason = re.search(rf"^{key} = .*?#\s*(.*)$", text, re.MULTILINE)
                said = reason.group(1) if reason else "see its comment"
                found.append({"recipe": path.stem, "option": key, "value": here, "reason": said})
    return found


def _list(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("method", "what it does", "options and defaults")
    for row in rows:
        chosen = "\n".join(f"{key}={value}" for key, value in row["options"].items())
        origin = f" (from {row['imported_from']})" if row["imported_from"] else ""
        table.add_row(str(row["name"]), f"{row['summary']}{origin}", chosen)
        table.add_section()
    Console().print(table)


def _explain(row: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from rbnn.cli._wrapping import wrapped
    from rbnn.methods import METHODS

    console = Console(highlight=False, markup=False)
    said = inspect.getdoc(METHODS[row["name"]]) or "" if row["name"] in METHODS else row["summary"]
    console.print(wrapped(said.replace("``", "`")), soft_wrap=True)
    if row["options"]:
        table = Table("option", "default", "in our recipes")
        for key, value in row["options"].items():
            ours = [each for each in row["in_our_recipes"] if each["option"] == key]
            table.add_row(key, str(value), "\n".join(f"{each['value']} in {each['recipe']}" for each in ours))
        console.print(table)
    for each in row["in_our_recipes"]:
        console.print(f"{each['recipe']}: {each['option']} = {each['value']}: {each['reason']}", soft_wrap=True)
