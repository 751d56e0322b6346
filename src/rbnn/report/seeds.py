"""Runs that differ only in their seed are one row: a line with a band, and a mean with its deviation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rbnn.report.run_directory import Run
from rbnn.text import printable
from rbnn.training.config import CIRCUMSTANCES, as_table, with_all_options

SEED = re.compile(r"(, seed |[/_-]?seed[-_]?)\d+$")
"""The end of a name that contains only the seed."""


@dataclass(frozen=True)
class Row:
    """Runs of one row, in the order in which they were given."""

    runs: list[Run]

    @property
    def name(self) -> str:
        """The name of a single run, or of several runs without the seed; if nothing is left, that of the folder."""
        first = self.runs[0]
        return first.name if len(self.runs) == 1 else SEED.sub("", first.name) or printable(first.path.parent.name)


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Group the runs into rows.  Two runs with the same seed, such as a run and its copy, are in different rows."""
    rows: dict[str, list[Row]] = {}
    for run in runs:
        table = as_table(with_all_options(run.config))
        alike = rows.setdefault(repr({k: v for k, v in table.items() if k not in (*CIRCUMSTANCES, "seed")}), [])
        row = next((row for row in alike if all(run.config.seed != each.config.seed for each in row.runs)), None)
        if row is None:
            alike.append(Row([run]))
        else:
            row.runs.append(run)
    order = {id(run): place for place, run in enumerate(runs)}
    return sorted((row for alike in rows.values() for row in alike), key=lambda row: order[id(row.runs[0])])


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """``77.23 ± 0.58``, with the sample standard deviation; a single value has none, and no value is a dash."""
    if not values:
        return "–"
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{deviation}"


Points = list[tuple[float, float]]


def band(lines: Sequence[Points]) -> list[tuple[float, float, float, float]]:
    """(x, mean, lowest, highest) of several lines, at each x that one of them has."""
    values: dict[float, list[float]] = {}
    for line in lines:
        for x, y in line:
            values.setdefault(x, []).append(y)
    return [(x, fmean(found), min(found), max(found)) for x, found in sorted(values.items())]
