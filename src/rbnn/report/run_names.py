"""The runs of a report and their names."""

import json
from os.path import abspath, realpath
from pathlib import Path

from rbnn.errors import CheckpointError
from rbnn.text import printable

LARGEST_TABLE = 1 << 24


def named_runs(paths: list[Path]) -> list[tuple[Path, str]]:
    """Run directories and checkpoints with short, unique names.  A table of `rbnn reproduce` (OUT/TABLE.json) stands
    for its finished runs, which are named after its rows.  A run in two tables has its name from the first."""
    given = [path for path in paths if path.suffix != ".json" or path.is_dir()]
    names = dict(zip(given, map(printable, _names(given)), strict=True))
    found: dict[str, tuple[Path, str]] = {}
    for path in paths:
        for run, name in [(path, names[path])] if path in names else _of_table(path):
            found.setdefault(realpath(run), (run, name))
    taken: dict[str, int] = {}
    for key, (run, name) in found.items():  # two tables may use one name for different runs
        taken[name] = taken.get(name, 0) + 1
        found[key] = (run, name if taken[name] == 1 else f"{name} ({taken[name]})")
    return list(found.values())


def _names(paths: list[Path]) -> list[str]:
    """The last parts that distinguish the paths, without trailing parts that all share, such as ``seed-0``."""
    real = [realpath(path) for path in paths]
    if len(set(real)) < len(real):
        twice = next(path for path, own in zip(paths, real, strict=True) if real.count(own) > 1)
        raise CheckpointError(f"{twice} is given twice: name each run once")
    parts = [Path(abspath(path)).parts for path in paths]  # a link may rename a run
    while len(parts) > 1 and len({own[-1] for own in parts}) == 1:
        parts = [own[:-1] for own in parts]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(own[-length:]) for own in parts]
        if len(set(names)) == len(names):
            return names
    return []


def _of_table(path: Path) -> list[tuple[Path, str]]:
    """The runs are next to the table, in OUT/METHOD-MODEL…/seed-N, even if OUT was moved."""
    try:
        if path.stat().st_size > LARGEST_TABLE:
            raise CheckpointError(f"{path} is too large for a table: expected at most {LARGEST_TABLE:,} bytes")
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
        raise CheckpointError(f"cannot read table {path}: {problem.strerror or problem}") from None
    except (ValueError, TypeError, LookupError, RecursionError):
        raise CheckpointError(f"{path} is not a table of `rbnn reproduce`") from None
    if not found:
        raise CheckpointError(f"no run of {path} is finished yet: name the run directories instead")
    return found
