"""`rbnn models`: the networks that rbnn knows."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Models:
    """The networks that rbnn knows by name.

    Example: rbnn models --json
    """

    json: bool = False
    """Print JSON."""


def run(options: Models) -> None:
    """List them."""
    from rich.console import Console
    from rich.table import Table

    from rbnn.models import MODELS

    if options.json:
        rows = [{"name": n, "image_size": e.image_size, "summary": e.summary} for n, e in MODELS.items()]
        print(json.dumps(rows, indent=2))
        return
    table = Table("model", "pictures", "what it is")
    for name, entry in MODELS.items():
        table.add_row(name, f"{entry.image_size}×{entry.image_size}", entry.summary)
    Console().print(table)
