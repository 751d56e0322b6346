"""Seeds of one row: one line with a band in the figures, mean and standard deviation in the tables."""

import re
import shutil
from pathlib import Path
from statistics import fmean, stdev

import pytest
from matplotlib.collections import PolyCollection

from rbnn.report import page
from rbnn.report.figures import Figure
from rbnn.report.page import Line
from rbnn.report.run_directory import read_runs
from rbnn.report.seeds import band, mean_and_deviation, rows_of
from rbnn.training.config import from_table
from rbnn.training.log import read_log
from rbnn.training.loop import train


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three seeds of one row."""
    place = tmp_path_factory.mktemp("runs") / "bnn"
    table = {"epochs": 2, "limit": 128, "batch_size": 64, "lr": 0.05, "threads": 1, "method": "bnn"}
    return [train(from_table(table | {"seed": n, "out": str(place / f"seed-{n}")})).out for n in range(3)]


def test_runs_that_differ_in_the_seed_alone_are_a_row(seeds: list[Path], xnor_run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(seeds[0], tmp_path / "copy"))
    longer = Path(shutil.copytree(seeds[1], tmp_path / "longer"))
    config = longer / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.05", "lr = 0.06"))
    rows = rows_of(read_runs([seeds[0], xnor_run, *seeds[1:], copy, longer]))
    assert [[run.path for run in row.runs] for row in rows] == [seeds, [xnor_run], [copy], [longer]]
    assert [row.name for row in rows] == ["bnn", "xnor", "copy", "longer"]


@pytest.mark.parametrize(
    ("name", "row"),
    [("B+T, seed 12", "B+T"), ("bnn/seed-0", "bnn"), ("bnn-seed1", "bnn"), ("seed-0", "bnn"), ("seeds", "seeds")],
)
def test_the_name_of_a_row_is_without_the_seed(seeds: list[Path], name: str, row: str) -> None:
    from dataclasses import replace

    runs = [replace(run, name=name) for run in read_runs(seeds)]
    assert [each.name for each in rows_of(runs)] == [row]
    assert rows_of(runs[:1])[0].name == name  # one alone keeps it


def figures(*paths: Path) -> dict[str, Figure]:
    return {figure.key: figure for figure in page.read(paths).figures}


def test_a_row_is_one_line_with_a_band(seeds: list[Path], xnor_run: Path) -> None:
    drawn = figures(*seeds, xnor_run)
    logs = [read_log(path / "log.jsonl") for path in seeds]
    axes = drawn["accuracy"].draw().axes[0]
    curves = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_transform() == axes.transData]
    assert len(curves) == 4  # two rows, test and training
    means = [fmean(log[epoch]["top1"] for log in logs) for epoch in range(2)]
    assert list(curves[0].get_ydata()) == pytest.approx(means)
    (shade,) = [each for each in axes.collections if isinstance(each, PolyCollection)]
    heights = shade.get_paths()[0].vertices[:, 1]
    tops = [log[epoch]["top1"] for log in logs for epoch in range(2)]
    assert (heights.min(), heights.max()) == pytest.approx((min(tops), max(tops)))
    names = [text.get_text() for text in axes.texts]
    assert sorted(names) == ["bnn", "xnor"]
    assert "one line, their mean, with a band" in drawn["accuracy"].caption
    assert len({row[0] for row in drawn["accuracy"].rows}) == 4  # the CSV has the numbers of each run

    angles = drawn["angle"].draw().axes[0]
    assert sorted(text.get_text() for text in angles.texts) == ["bnn", "unrotated", "xnor"]
    assert len([each for each in angles.collections if isinstance(each, PolyCollection)]) == 1
    assert "mean of the layers and seeds" in drawn["angle_over_training"].caption


def test_without_several_seeds_nothing_is_said_of_bands(seeds: list[Path], xnor_run: Path) -> None:
    drawn = figures(seeds[0], xnor_run)
    assert "band" not in drawn["accuracy"].caption
    assert not drawn["accuracy"].draw().axes[0].collections
    assert "mean of the layers;" in drawn["angle_over_training"].caption


def test_the_tables_have_one_line_with_mean_and_deviation(seeds: list[Path], xnor_run: Path, tmp_path: Path) -> None:
    made = page.read([*seeds, xnor_run])
    last = [read_log(path / "log.jsonl")[-1]["top1"] for path in seeds]
    line = Line(made.runs[:3])
    assert line.name == "bnn (3 seeds)"
    assert line.last == f"{fmean(last):.2f} ± {stdev(last):.2f}"
    page.write_page(made, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    summary = text.partition('<section id="summary">')[2].partition("</table>")[0]
    assert summary.count("<tr>") == 3  # heading and two rows
    assert f"<td>{line.last}</td>" in summary
    settings = text.partition('<section id="configuration">')[2]
    assert re.search(r"<td>seed</td><td>0, 1, 2</td><td>0</td>", settings)


def test_one_run_looks_as_ever() -> None:
    assert mean_and_deviation([], 2) == "–"
    assert mean_and_deviation([77.123], 2) == "77.12"
    assert mean_and_deviation([1.0, 2.0, 3.0], 1) == "2.0 ± 1.0"


def test_a_band_goes_as_far_as_the_longest_line() -> None:
    assert band([[(1, 4.0), (2, 6.0)], [(1, 2.0)]]) == [(1, 3.0, 2.0, 4.0), (2, 6.0, 6.0, 6.0)]
