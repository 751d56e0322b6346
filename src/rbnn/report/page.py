"""Runs → measures → figures → one page that needs nothing else."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from rbnn import __version__
from rbnn.files import write_whole
from rbnn.methods import method_options
from rbnn.report.analysed import Analysed, Timed, packed_files, time_packed
from rbnn.report.drawing import RUNS, as_png, as_svg, inline
from rbnn.report.figures import Figure
from rbnn.report.findings import findings, findings_of
from rbnn.report.log_tables import EPOCH, LAYER, epoch_rows, layer_rows
from rbnn.report.paper_figures import SHOWN, claims
from rbnn.report.run_directory import read_runs
from rbnn.report.sections import Section, networks, sections
from rbnn.text import printable
from rbnn.training.config import as_table


@dataclass(frozen=True)
class Report:
    """Everything a page shows."""

    runs: list[Analysed]
    times: list[Timed]

    @cached_property
    def sections(self) -> list[Section]:
        return sections(self.runs, self.times)

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections for figure in section.figures]


def read(paths: Sequence[Path], packed: Sequence[Path] = ()) -> Report:
    """Reads and measures runs, and times the packed networks given or found beside them."""
    runs = read_runs(list(paths))
    times = [time_packed(path, printable(name)) for path, name in packed_files(runs, list(packed))]
    return Report([Analysed(run, number) for number, run in enumerate(runs)], times)


def write_page(report: Report, path: Path) -> None:
    """One HTML file: pictures are inside, nothing is fetched."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["joined"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    template = environment.from_string(files("rbnn.report").joinpath("page.html.jinja").read_text("utf-8"))
    checked = {(claim.run, claim.figure): claim for claim in claims(report.runs)}
    page = template.render(
        version=__version__,
        runs=report.runs,
        colours=len(RUNS),
        sections=[(section, [_drawn(figure) for figure in section.figures]) for section in report.sections],
        overall=findings(report.runs, report.times),
        own=[(each, findings_of(each)) for each in report.runs],
        missing=[sentence for each in report.runs for sentence in each.run.missing()],
        same_network=len({(each.run.config.model, each.run.config.data) for each in report.runs}) == 1,
        shown=SHOWN,
        claims=checked,
        claimed={run for run, _ in checked},
        compared=any(figure == "2a" for _, figure in checked),
        layers=[each for each in report.runs if each.layers],
        networks=networks(report.runs),
        settings=_settings(report.runs),
    )
    write_whole(path, lambda file: file.write(printable(page).encode()))


def write_figures(report: Report, directory: Path) -> list[Path]:
    """Each figure as SVG and PNG, its numbers as CSV, and all runs' epochs and layers as two tables, into a directory
    that exists."""
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
    """Numbers unrounded: what is read back equals the log."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def _drawn(figure: Figure) -> dict[str, Any]:
    label = f"{figure.title}. {figure.caption}"
    panels = [inline(draw(), f"{figure.key}-{n}", title) for n, (title, draw) in enumerate(figure.panels)]
    return {"figure": figure, "panels": panels, "svg": "" if panels else inline(figure.draw(), figure.key, label)}


def _settings(runs: list[Analysed]) -> list[tuple[str, list[str], bool]]:
    """Every field of the configuration and of the methods' options: (name, each run's value, whether they differ)."""
    tables = []
    for each in runs:
        table = as_table(each.run.config)
        options = method_options(each.run.config.method) | table.pop("options")
        tables.append(table | {f"options.{key}": value for key, value in options.items()})
    keys = list(dict.fromkeys(key for table in tables for key in table))
    rows = [(key, [str(table.get(key, "–")) for table in tables]) for key in keys]
    return [(key, values, len(set(values)) > 1) for key, values in rows]
