"""`rbnn models`: list the networks, or the pretrained ones."""

import json
import shlex
from dataclasses import dataclass
from typing import Any

from rbnn.cli._flags import parse_flags
from rbnn.errors import ConfigError


@dataclass(frozen=True)
class Models:
    """List the networks that rbnn can build, or with --pretrained the trained networks that come with it.

    Example: rbnn models --pretrained
    """

    pretrained: bool = False
    """List the pretrained networks. Their names can be used wherever a command takes a network."""
    json: bool = False
    """Print JSON."""


def parse(words: list[str]) -> Models:
    """The flags.  A name belongs to another command."""
    if named := [word for word in words if not word.startswith("-")]:
        raise ConfigError(
            f"`rbnn models` lists all networks and takes no name: run `rbnn info {shlex.quote(named[0])}`"
        )
    return parse_flags(Models, words, prog="rbnn models")


def run(options: Models) -> None:
    """List them."""
    if options.pretrained:
        _pretrained(options.json)
    else:
        _known(options.json)


def _known(as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from rbnn.models import MODELS, model_names
    from rbnn.plugins import source_of

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "image_size": MODELS[name].image_size,
            "summary": MODELS[name].summary,
            "imported_from": source_of("model", name),
        }
        for name in model_names()
    ]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("model", "images", "what it is")
    for row in rows:
        origin = f" (from {row['imported_from']})" if row["imported_from"] else ""
        table.add_row(row["name"], f"{row['image_size']}×{row['image_size']}", f"{row['summary']}{origin}")
    Console().print(table)


def _pretrained(as_json: bool) -> None:
    from dataclasses import asdict

    from rich.console import Console
    from rich.table import Column, Table

    from rbnn.packed import pretrained

    cards = {name: pretrained.card(name) for name in pretrained.names()}
    sizes = {name: pretrained.path(name).stat().st_size for name in cards}
    if as_json:
        print(json.dumps([{"name": n, "bytes": sizes[n], **asdict(card)} for n, card in cards.items()], indent=2))
        return
    name = Column("name", no_wrap=True, min_width=max(map(len, cards)))  # people type it
    table = Table(name, "what it is", "top-1 %", "kB", "epochs")
    for each, card in cards.items():
        size = f"{sizes[each] / 1000:,.1f}"
        table.add_row(each, card.summary, f"{card.packed_top1:.2f}", size, str(card.epochs))
    Console().print(table)
