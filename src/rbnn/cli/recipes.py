"""`rbnn recipes`: list the bundled recipes and their known results."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import tyro

WIDE = 115
"""The narrowest terminal with room for all columns."""


@dataclass(frozen=True)
class Recipes:
    """List the recipes that `rbnn train NAME` takes: purpose, network, method, data, epochs, and the known result, from
    the paper or from our own measurement.

    Example: rbnn recipes digits
    """

    name: tyro.conf.Positional[str] = ""
    """Recipe to print, with the reasons for its numbers. The default lists all recipes."""
    json: bool = False
    """Print JSON: name, purpose, model, method, data, epochs, result."""


def run(options: Recipes) -> None:
    """List them, or show one."""
    from rbnn.errors import UnknownName
    from rbnn.training.config import bundled_recipes

    paths = {path.stem: path for path in bundled_recipes().glob("*.toml")}
    if options.name and options.name not in paths:
        raise UnknownName("recipe", options.name, paths)
    rows = [_row(path) for name, path in sorted(paths.items()) if options.name in ("", name)]
    if options.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    elif options.name:
        print(paths[options.name].read_text(encoding="utf-8"), end="")
        print(f"\n# rbnn train {options.name}")
    else:
        _list(rows)


def _row(path: Path) -> dict[str, str | int]:
    from rbnn.training.config import read_recipe

    config = read_recipe(path)
    said = paragraphs(path)
    measured = [text.removeprefix("Measured: ") for text in said if text.startswith("Measured: ")]
    published = re.search(r"\S+ % (?:top-1 (?:and \S+ % top-5 )?)?in the paper", said[0])
    return {
        "name": path.stem,
        "purpose": said[0],
        "model": config.model,
        "method": config.method,
        "data": config.data,
        "epochs": config.epochs,
        "result": measured[0] if measured else published.group() if published else "",
    }


def paragraphs(path: Path) -> list[str]:
    """The paragraphs of a recipe's first comment, each as one line: its purpose, and ``Measured: …`` if known."""
    head = re.match(r"(#[^\n]*\n)+", path.read_text(encoding="utf-8"))
    lines = head.group().splitlines() if head else []
    text = "\n".join(line.removeprefix("#").strip() for line in lines)
    return [" ".join(each.split()) for each in text.split("\n\n")]


def _list(rows: list[dict[str, str | int]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    console = Console()
    heads = ["network, method, data", "epochs", "known result"]
    if console.width < WIDE:
        heads = heads[1:]  # the names say the same
    table = Table(Column("recipe", no_wrap=True, min_width=max(len(str(row["name"])) for row in rows)))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        what = f"{row['model']}, {row['method']}, {row['data']}"
        cells = what, str(row["epochs"]), str(row["result"]).partition(" (")[0]
        table.add_row(str(row["name"]), *cells[-len(heads) :])
    console.print(table)
    console.print(
        "Names are DATA-NETWORK-METHOD. Recipes whose names end in -cpu are short runs for a CPU. The other cifar10 "
        "and imagenet recipes are rows of the paper's tables, with its epochs. `rbnn recipes NAME` prints a recipe "
        "with the reasons for its values.",
        highlight=False,
    )
