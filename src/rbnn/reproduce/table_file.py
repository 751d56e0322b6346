"""A user's own table: a TOML file with rows, their options and published numbers."""

from math import isfinite
from pathlib import Path
from typing import Any

from rbnn import data
from rbnn.errors import ConfigError, UnknownName
from rbnn.methods import check_method, method_options
from rbnn.models import model_names
from rbnn.reproduce.tables import OURS, TABLES, PaperTable, Row
from rbnn.text import quoted
from rbnn.training.config import checked, read_toml

TABLE: dict[str, Any] = {"title": "", "data": "cifar10", "epochs": 120, "batch_size": 256, "warmup": 5, "rows": []}
"""Keys of the file and their defaults."""
ROW: dict[str, Any] = {"name": "", "model": "", "method": "", "top1": 0.0, "top5": 0.0, "options": {}}
"""Keys of a row.  name, model and method are required."""
NEEDED = ("name", "model", "method")


def read_table(path: Path) -> PaperTable:
    """The table that a file describes, checked as a whole."""
    table = read_toml(path, "table")
    if path.stem in TABLES:
        raise ConfigError(f"{path} has the name of a built-in table, {path.stem!r}: rename it")
    found = TABLE | {"title": path.stem} | checked(table, TABLE, f"table {path}")
    for key in ("epochs", "batch_size"):
        if found[key] < 1:
            raise ConfigError(f"{key} in table {path} must be at least 1, got {found[key]}")
    if found["warmup"] < 0:
        raise ConfigError(f"warmup in table {path} must be 0 or more, got {found['warmup']}")
    if found["data"] not in data.names():
        raise UnknownName("data set", found["data"], data.names(), f"in table {path}")
    rows = [_row(row, f"row {number} of table {path}") for number, row in enumerate(found.pop("rows"), 1)]
    if not rows:
        raise ConfigError(f"table {path} has no rows: each row begins with [[rows]] and has {', '.join(NEEDED)}")
    names = [row.name for row in rows]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"table {path} has two rows named {quoted(twice)}: give each its own name")
    for place, row in enumerate(rows):
        for other in rows[:place]:
            if _system(row) == _system(other):
                raise ConfigError(
                    f"rows {quoted(other.name)} and {quoted(row.name)} of table {path} have the same network, method "
                    "and options: remove one"
                )
    return PaperTable(path.stem, **found, rows=tuple(rows))


def _row(table: Any, where: str) -> Row:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table that begins with [[rows]], got {quoted(table)}")
    row = checked(table, ROW, where)
    for key in NEEDED:
        if not row.get(key):
            raise ConfigError(
                f"{where} has no {key}: it needs {', '.join(NEEDED)}, and may have top1, top5 and options"
            )
    if row["model"] not in model_names():
        raise UnknownName("model", row["model"], model_names(), f"in {where}")
    options = row.pop("options", {})
    check_method(row["method"], options)
    for key in ("top1", "top5"):
        if key in row and not (isfinite(row[key]) and 0 <= row[key] <= 100):
            raise ConfigError(f"{key} in {where} must be a percentage, 0 to 100, got {row[key]}")
    # Options that the file does not name are those of the method's paper, even where our own tables differ from it.
    defaults = method_options(row["method"])
    as_published = {key: defaults[key] for key in OURS.get(row["method"], {})}
    return Row(**row, options=as_published | options)


def _system(row: Row) -> tuple[str, str, dict[str, Any]]:
    return row.model, row.method, method_options(row.method) | row.options
