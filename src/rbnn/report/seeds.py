"""Runs that differ in their seed alone are one row: a line with a band, and a mean with its deviation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rbnn.report.run_directory import Run
from rbnn.text import printable
from rbnn.training.config import CIRCUMSTANCES, as_table, with_all_options

SEED = re.compile(r"(, seed |[/_-]?seed[-_]?)\d+$")
"""The end of a name that says nothing but the seed."""


@dataclass(frozen=True)
class Row:
    """Runs of one row, in the order in which they were given."""

    runs: list[Run]

    @property
    def name(self) -> str:
        """Of a single run its own, of several without the seed; where nothing is left, that of the folder."""
        first = self.runs[0]
        return first.name if len(self.runs) == 1 else SEED.sub("", first.name) or printable(first.path.parent.name)


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """The runs by rows.  Two with the same seed, such as a run and its copy, are not of one row."""
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
    """``77.23 ± 0.58``, the sample standard deviation; without one for a single value, a dash for none."""
    if not values:
        return "–"
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{deviation}"


Points = list[tuple[float, float]]


def band(lines: Sequence[Points]) -> list[tuple[float, float, float, float]]:
    """(x, mean, least, largest) of several lines, at each x that one of them has."""
    values: dict[float, list[float]] = {}
    for line in lines:
        for x, y in line:
            values.setdefault(x, []).append(y)
    return [(x, fmean(found), min(found), max(found)) for x, found in sorted(values.items())]
