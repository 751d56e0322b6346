"""Turns runs into measures, figures and one self-contained page."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2

from rbnn import __version__
from rbnn.files import write_whole
from rbnn.methods import method_options
from rbnn.report.analysed import Analysed, Timed, packed_files, time_packed
from rbnn.report.drawing import RUNS, as_png, as_svg, inline
from rbnn.report.figures import Figure, by_row
from rbnn.report.findings import findings, findings_of
from rbnn.report.log_tables import EPOCH, LAYER, epoch_rows, layer_rows
from rbnn.report.paper_figures import SHOWN, claims
from rbnn.report.run_directory import read_runs
from rbnn.report.sections import Section, networks, sections
from rbnn.report.seeds import mean_and_deviation, rows_of
from rbnn.text import printable
from rbnn.training.config import as_table


@dataclass(frozen=True)
class Report:
    """Everything that a page shows."""

    runs: list[Analysed]
    times: list[Timed]

    @cached_property
    def sections(self) -> list[Section]:
        return sections(self.runs, self.times)

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]


@dataclass(frozen=True)
class Line:
    """A line of the summary: a run, or runs that differ only in their seed, with mean and deviation."""

    runs: list[Analysed]

    @property
    def first(self) -> Analysed:
        return self.runs[0]

    @property
    def name(self) -> str:
        return self.first.name if len(self.runs) == 1 else f"{self.first.row} ({len(self.runs)} seeds)"

    @property
    def best(self) -> str:
        return mean_and_deviation([each.best()["top1"] for each in self.runs if each.run.epochs], 2)

    @property
    def last(self) -> str:
        return mean_and_deviation([each.run.epochs[-1]["top1"] for each in self.runs if each.run.epochs], 2)

    @property
    def epochs(self) -> str:
        counts = dict.fromkeys(len(each.run.epochs) for each in self.runs)
        return f"{', '.join(map(str, counts))} of {self.first.run.config.epochs}"

    @property
    def angle(self) -> str:
        return mean_and_deviation([fmean(layer.angle for layer in e.layers) for e in self.runs if e.layers], 1)

    @property
    def error(self) -> str:
        return mean_and_deviation([fmean(layer.relative_error for layer in e.layers) for e in self.runs if e.layers], 3)

    @property
    def kilobytes(self) -> str:
        return f"{self.first.costs.bytes / 1000:.1f}" if self.first.costs else "–"

    @property
    def measured(self) -> str:
        return ", ".join(dict.fromkeys(each.run.measured for each in self.runs if each.layers)) or "–"


def read(paths: Sequence[Path], packed: Sequence[Path] = ()) -> Report:
    """Read and measure runs, and time the packed networks that are given or found in their directories."""
    runs = read_runs(list(paths))
    times = [time_packed(path, printable(name)) for path, name in packed_files(runs, list(packed))]
    place = {id(run): (number, row.name) for number, row in enumerate(rows_of(runs)) for run in row.runs}
    return Report([Analysed(run, *place[id(run)]) for run in runs], times)


def write_page(report: Report, path: Path) -> None:
    """Write one HTML file with all images inside; nothing is loaded from elsewhere."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["joined"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    template = environment.from_string(files("rbnn.report").joinpath("page.html.jinja").read_text("utf-8"))
    rows = [Line(some) for some in by_row(report.runs)]
    checked = {(claim.run, claim.figure): claim for claim in claims(report.runs)}
    page = template.render(
        version=__version__,
        runs=report.runs,
        rows=rows,
        colours=len(RUNS),
        sections=[(section, [_drawn(figure) for figure in section.figures]) for section in report.sections],
        overall=findings(report.runs, report.times),
        own=[(each, findings_of(each)) for each in report.runs],
        missing=[sentence for each in report.runs for sentence in each.run.missing()],
        same_network=len({(each.run.config.network, each.run.config.data) for each in report.runs}) == 1,
        shown=SHOWN,
        claims=checked,
        claimed={run for run, _ in checked},
        compared=any(figure == "2a" for _, figure in checked),
        layers=[each for each in report.runs if each.layers],
        networks=networks(report.runs),
        settings=_settings(rows),
    )
    write_whole(path, lambda file: file.write(printable(page).encode()))


def write_figures(report: Report, directory: Path) -> list[Path]:
    """Write each figure as SVG and PNG, its numbers as CSV, and the epochs and layers of all runs as two tables, into
    an existing directory."""
    written = []

    def write(name: str, content: bytes) -> None:
        write_whole(directory / name, lambda file: file.write(content))
        written.append(directory / name)

    for figure in report.figures:
        made = figure.draw()
        write(f"{figure.key}.svg", as_svg(made).encode())
        write(f"{figure.key}.png", as_png(made))
        write(f"{figure.key}.csv", as_csv(figure.columns, figure.rows).encode())
    write("epochs.csv", as_csv(EPOCH, epoch_rows(report.runs)).encode())
    write("layers.csv", as_csv(LAYER, layer_rows(report.runs)).encode())
    return written


def as_csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Numbers are not rounded, so they equal those of the log when read back."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _drawn(figure: Figure) -> dict[str, Any]:
    label = f"{figure.title}. {figure.caption}"
    panels = [inline(draw(), f"{figure.key}-{n}", title) for n, (title, draw) in enumerate(figure.panels)]
    return {"figure": figure, "panels": panels, "svg": "" if panels else inline(figure.draw(), figure.key, label)}


def _settings(lines: list[Line]) -> list[tuple[str, list[str], bool]]:
    """Every field of the configuration and of the methods' options: (name, each line's value, whether they differ)."""
    tables: list[dict[str, str]] = []
    for line in lines:
        of_runs = []
        for each in line.runs:
            table = as_table(each.run.config)
            options = method_options(each.run.config.method) | table.pop("options")
            of_runs.append(table | {f"options.{key}": value for key, value in options.items()})
        fields = list(dict.fromkeys(key for table in of_runs for key in table))
        tables.append({key: ", ".join(dict.fromkeys(str(table.get(key, "–")) for table in of_runs)) for key in fields})
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = [(key, [table.get(key, "–") for table in tables]) for key in keys]
    return [(key, values, len(set(values)) > 1) for key, values in rows]
