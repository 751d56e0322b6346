"""Which runs a report is about, and what they are called."""

import json
from os.path import abspath, realpath
from pathlib import Path

from rbnn.errors import CheckpointError
from rbnn.text import printable

LARGEST_TABLE = 1 << 24


def named_runs(paths: list[Path]) -> list[tuple[Path, str]]:
    """Run directories and checkpoints with short names of their own.  A table of `rbnn reproduce` (OUT/TABLE.json)
    stands for its finished runs, called as its rows; a run of two tables is called as in the first."""
    given = [path for path in paths if path.suffix != ".json" or path.is_dir()]
    names = dict(zip(given, map(printable, _names(given)), strict=True))
    found: dict[str, tuple[Path, str]] = {}
    for path in paths:
        for run, name in [(path, names[path])] if path in names else _of_table(path):
            found.setdefault(realpath(run), (run, name))
    taken: dict[str, int] = {}
    for key, (run, name) in found.items():  # two tables may call different runs the same
        taken[name] = taken.get(name, 0) + 1
        found[key] = (run, name if taken[name] == 1 else f"{name} ({taken[name]})")
    return list(found.values())


def _names(paths: list[Path]) -> list[str]:
    """The last parts that tell the paths apart, without those at the end that all share, such as ``seed-0``."""
    real = [realpath(path) for path in paths]
    if len(set(real)) < len(real):
        twice = next(path for path, own in zip(paths, real, strict=True) if real.count(own) > 1)
        raise CheckpointError(f"{twice} is given twice: name each run once")
    parts = [Path(abspath(path)).parts for path in paths]  # a link gives a run the name that its maker wants
    while len(parts) > 1 and len({own[-1] for own in parts}) == 1:
        parts = [own[:-1] for own in parts]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(own[-length:]) for own in parts]
        if len(set(names)) == len(names):
            return names
    return []


def _of_table(path: Path) -> list[tuple[Path, str]]:
    """The runs lie beside the table, in OUT/METHOD-MODEL…/seed-N, wherever OUT was moved to."""
    try:
        if path.stat().st_size > LARGEST_TABLE:
            raise CheckpointError(f"{path} is no table: those have at most {LARGEST_TABLE:,} bytes")
        table = json.loads(path.read_bytes())
        more = path.stem.partition(table["table"])[2].replace("-", " ")  # options of all rows
        rows = [(row["row"], list(map(Path, row["runs"])), row["seeds"]) for row in table["rows"]]
        several = any(len(seeds) > 1 for _, _, seeds in rows)
        found = [
            (path.parent.joinpath(*run.parts[-2:]), f"{row}{more}{f', seed {seed}' if several else ''}")
            for row, runs, seeds in rows
            for run, seed in zip(runs, seeds, strict=True)
        ]
    except OSError as problem:
        raise CheckpointError(f"cannot read the table {path}: {problem.strerror or problem}") from None
    except (ValueError, TypeError, LookupError, RecursionError):
        raise CheckpointError(f"{path} is not a table as `rbnn reproduce` writes it") from None
    if not found:
        raise CheckpointError(f"no run of {path} is finished yet: name the run directories beside it instead")
    return found
