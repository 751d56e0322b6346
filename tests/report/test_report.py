"""`rbnn report`: the whole page, its numbers, and its messages if something is missing."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_runs import without
from packed_networks import small_network

from rbnn.cli import main
from rbnn.costs.packed import OperationCosts, PackedCosts
from rbnn.packed import file as packfile
from rbnn.report.analysed import Timed
from rbnn.report.findings import findings
from rbnn.report.page import Report, read, write_page

SECTIONS = ("summary", "curves", "layers", "weights", "flips", "alpha", "gradients", "costs", "configuration")
FIGURES = {
    "accuracy", "loss", "lr", "cosine", "angle", "relative_error", "error", "angle_over_training", "histograms",
    "flips", "epoch_flips", "alpha", "gradient_1", "gradient_2", "costs_1",
}  # fmt: skip


class Page(HTMLParser):
    """The text, the ids and what a browser would fetch; fails if tags do not match."""

    EMPTY = ("meta", "path", "use", "rect", "line", "circle", "br")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.EMPTY:
            self.open.append(tag)
        assert tag not in ("script", "link", "img", "iframe", "object", "embed")
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            if key in ("href", "src", "xlink:href") and not (value or "").startswith("#"):
                self.fetched.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)


@pytest.fixture
def page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Page]:
    """Run the command and read its page."""

    def make(*words: str | Path) -> Page:
        path = tmp_path / "report.html"
        assert main(["report", *map(str, words), "-o", str(path)]) == 0, capsys.readouterr().err
        return Page(path)

    return make


@pytest.fixture(scope="module")
def both(rbnn_run: Path, xnor_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, Path]:
    """The page of two runs, and the directory of its figures."""
    place = tmp_path_factory.mktemp("report")
    words = [str(rbnn_run), str(xnor_run), "-o", str(place / "page.html"), "--figures", str(place / "figures")]
    assert main(["report", *words]) == 0
    return Page(place / "page.html"), place / "figures"


def test_the_page_is_whole_and_fetches_nothing(both: tuple[Page, Path]) -> None:
    found, _ = both
    assert set(SECTIONS) | {"paper"} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert found.fetched == []
    assert not re.search(r"https?:|//|@import|url\((?!#)", found.source)
    for target in re.findall(r'(?:href="|url\()#([^")]+)', found.source):
        assert target in found.ids, target
    assert "prefers-color-scheme: dark" in found.source
    for colour in set(re.findall(r"var\((--[\w-]+)\)", found.source)):
        assert found.source.count(f"{colour}:") == 2, f"{colour} in light and in dark"


def test_names_are_no_markup(both: tuple[Page, Path], rbnn_run: Path) -> None:
    assert rbnn_run.name in both[0].text
    assert "<b>" not in both[0].source


def test_a_name_is_no_pattern(page: Callable[..., Page], xnor_run: Path, tmp_path: Path) -> None:
    run = tmp_path / r"runs\digits\g<0>"
    shutil.copytree(xnor_run, run)
    assert run.name in page(run).text


def test_networks_of_other_widths_are_told_apart(page: Callable[..., Page], xnor_run: Path, tmp_path: Path) -> None:
    assert "Network resnet20-bireal, data digits." in page(xnor_run).text
    (tmp_path / "wide").mkdir()
    for name in ("log.jsonl", "config.toml"):
        text = (xnor_run / name).read_text(encoding="utf-8")
        (tmp_path / "wide" / name).write_text(text.replace("width = 1.0", "width = 1.5"), encoding="utf-8")
    found = page(xnor_run, tmp_path / "wide").text
    assert "Network resnet20-bireal, data digits." not in found
    assert "resnet20-bireal, width 1.5" in found


def test_figures_come_as_svg_png_and_csv(both: tuple[Page, Path]) -> None:
    made = {path.name for path in both[1].iterdir()}
    drawn = {f"{key}.{suffix}" for key in FIGURES | {"gradient_3"} for suffix in ("svg", "png", "csv")}
    assert made == drawn | {"epochs.csv", "layers.csv"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in both[1].glob("*.png"))
    assert all("<svg" in path.read_text(encoding="utf-8") for path in both[1].glob("*.svg"))


def test_csv_values_are_the_log_s(both: tuple[Page, Path], rbnn_run: Path, xnor_run: Path) -> None:
    def rows_of(figure: str, run: Path = rbnn_run) -> list[dict[str, str]]:
        with (both[1] / f"{figure}.csv").open(encoding="utf-8", newline="") as file:
            return [row for row in csv.DictReader(file) if row["run"] == run.name]

    log = [json.loads(line) for line in (rbnn_run / "log.jsonl").read_text().splitlines()]
    for figure, keys in (("accuracy", ("top1", "train_top1")), ("loss", ("test_loss", "loss")), ("lr", ("lr",))):
        rows = rows_of(figure)
        assert [int(row["epoch"]) for row in rows] == [1, 2, 3]
        for key in keys:
            assert [float(row[key]) for row in rows] == [entry[key] for entry in log]
    for figure, key in (("alpha", "alpha"), ("epoch_flips", "epoch_flips"), ("angle_over_training", "angle")):
        rows = rows_of(figure)
        shown = log[1:] if key == "epoch_flips" else log  # the first rotation changes half of the signs
        expected = [figures[key] for entry in shown for figures in entry["layers"].values()]
        assert [float(row[key]) for row in rows] == expected
    for row, entry in zip(rows_of("epochs"), log, strict=True):
        assert all(float(row[key]) == entry[key] for key in ("lr", "loss", "test_loss", "top1", "top5"))
        angles = [figures["angle"] for figures in entry["layers"].values()]
        assert float(row["angle"]) == pytest.approx(sum(angles) / 18)
    assert [row["alpha"] for row in rows_of("epochs", xnor_run)] == ["", ""]
    best = max(log, key=lambda entry: entry["top1"])["layers"]
    for row in rows_of("layers"):
        assert float(row["angle"]) == pytest.approx(best[row["layer"]]["angle"])
        assert float(row["flips"]) == best[row["layer"]]["flips"]


def test_one_after_the_other_is_the_same_page(page: Callable[..., Page], float_run: Path) -> None:
    assert page(float_run).source == page(float_run).source


def test_many_runs_side_by_side(page: Callable[..., Page], xnor_run: Path, tmp_path: Path) -> None:
    """More runs than colours: one panel per run, and a text that does not grow with the number of pairs."""
    runs = [Path(shutil.copytree(xnor_run, tmp_path / f"run {number}")) for number in range(7)]
    found = page(*runs)
    assert "Histogram of each run, with a line per layer" in found.text
    assert "Thin and dotted" not in found.text
    assert "Runs with the same learning rate are drawn once." in found.text
    assert "Mean relative quantisation error of the layers: run 0 0." in found.text
    assert "Weights of all runs: " in found.text
    assert "The angle between weights and signs is smaller in" not in found.text
    assert "Figures 2a and 2b compare RBNN with XNOR-Net: they need a run of each" in found.text


# Missing files are reported


def test_a_float_run(page: Callable[..., Page], float_run: Path) -> None:
    found = page(float_run)
    assert "float is a float network: it has no binary layers" in found.text
    assert "float has one epoch" in found.text
    assert "No run has binary layers that were measured." in found.text
    assert "No run has an estimator by name" in found.text
    assert set(SECTIONS) <= set(found.ids)


def missing(report: Report) -> str:
    """The sentences about missing files; a test below checks that the page shows them."""
    return " ".join(sentence for each in report.runs for sentence in each.run.missing())


def keys(report: Report) -> set[str]:
    return {figure.key for figure in report.figures}


def test_nothing_is_missing(rbnn_run: Path) -> None:
    report = read([rbnn_run])
    assert missing(report) == ""
    assert keys(report) == FIGURES


def test_no_initial_signs(rbnn_run: Path, tmp_path: Path) -> None:
    report = read([without(rbnn_run, tmp_path, "initial.safetensors")])
    assert missing(report) == "copy has no initial.safetensors: flips from initialisation cannot be counted."
    assert keys(report) == FIGURES - {"flips"}


def test_no_checkpoint(page: Callable[..., Page], rbnn_run: Path, tmp_path: Path) -> None:
    copy = without(rbnn_run, tmp_path, "best.pt", "last.pt")
    found = page(copy)
    assert "copy has no checkpoint (best.pt or last.pt)" in found.text
    assert "Histograms need a checkpoint" in found.text
    assert keys(read([copy])) == FIGURES - {"histograms", "error", "costs_1"}


def test_an_interrupted_run(rbnn_run: Path, tmp_path: Path) -> None:
    copy = without(rbnn_run, tmp_path)
    config = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(config.replace("epochs = 3", "epochs = 30"))
    assert missing(read([copy])) == "copy has finished 3 of 30 epochs: it was interrupted or is still running."


def test_a_run_stopped_in_its_first_epoch(page: Callable[..., Page], rbnn_run: Path, tmp_path: Path) -> None:
    copy = without(rbnn_run, tmp_path, "best.pt", "log.jsonl")
    found = page(copy)
    assert "copy has not finished an epoch" in found.text
    assert "No run has finished an epoch." in found.text
    assert "The angle between weights and their signs is" in found.text


def test_one_epoch(rbnn_run: Path, tmp_path: Path) -> None:
    copy = without(rbnn_run, tmp_path)
    first = (copy / "log.jsonl").read_text().splitlines()[0]
    (copy / "log.jsonl").write_text(first + '\n{"epoch": 1, "lr": 0.0')  # and half a line, as after a crash
    report = read([copy])
    assert "so changes from epoch to epoch cannot be shown" in missing(report)
    assert keys(report) == FIGURES - {"epoch_flips"}


def test_json(xnor_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["report", str(xnor_run), "-o", str(tmp_path / "p.html"), "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(answer) == {"page", "figures", "findings", "paper"}
    assert [(claim["figure"], claim["run"], claim["holds"]) for claim in answer["paper"]] == [
        ("6", "xnor", True),
        ("7", "xnor", True),
    ]
    assert answer["page"] == str(tmp_path / "p.html")
    assert any("The angle between weights and their signs" in sentence for sentence in answer["findings"])


# Time


def test_packed_files_are_timed(page: Callable[..., Page], float_run: Path, tmp_path: Path) -> None:
    copy = without(float_run, tmp_path)
    graph = small_network()
    packfile.write(graph, copy / "net.rbnn")
    packfile.write(graph, tmp_path / "other.rbnn")
    found = page(copy, "--packed", tmp_path / "other.rbnn")
    assert "The file copy/net.rbnn has " in found.text
    assert "The file other.rbnn has " in found.text
    report = read([copy])
    (timed,) = report.times
    assert timed.costs.file_bytes == (copy / "net.rbnn").stat().st_size
    (figure,) = [figure for figure in report.figures if figure.key == "time_1"]
    assert [row[1] for row in figure.rows] == [operation.name for operation in graph.operations]
    assert timed.milliseconds == pytest.approx(sum(row[-1] for row in figure.rows))


def test_the_size_of_a_file_stands_before_what_is_counted(xnor_run: Path, tmp_path: Path) -> None:
    copy = without(xnor_run, tmp_path)
    packfile.write(small_network(), copy / "net.rbnn")
    report = read([copy])
    said = findings(report.runs, report.times)
    places = [index for index, text in enumerate(said) if text.startswith(("The file copy/net.rbnn", "Weights of"))]
    assert len(places) == 2
    size = (copy / "net.rbnn").stat().st_size
    weights = 16 * 27 + 16 * 9 * 16 + 32 * 9 * 16 + 24 * 32 + 5 * 24  # of the layers, 4 bytes each in the float twin
    others = 16 + 16 + 32 + 1 + 24 + 5  # scale, shift, threshold, inverted channels (as bits), slope, bias
    wanted = f"has {size / 1e3:.1f} kB, {4 * (weights + others) / size:.1f}× smaller than the weights of its float twin"
    assert wanted in said[places[0]]


def test_what_belongs_to_a_layer_is_timed_with_it() -> None:
    def operation(name: str) -> OperationCosts:
        return OperationCosts(name, "pack", 0, (), (1, 1, 1), 0, 0, 0, 0, 0, 0.001)

    names = ["a.b.sign", "a.b", "a.c", "ab"]
    timed = Timed("it", "avx2", PackedCosts([operation(name) for name in names], 1, []))
    grouped = {layer: [each.name for each in operations] for layer, operations in timed.layers().items()}
    assert grouped == {"a.b": ["a.b.sign", "a.b"], "a.c": ["a.c"], "ab": ["ab"]}
    assert timed.milliseconds == pytest.approx(4.0)


def test_a_lone_checkpoint_has_everything_but_curves(rbnn_run: Path, tmp_path: Path) -> None:
    """For example an imported network, which has no epochs."""
    state = torch.load(rbnn_run / "best.pt", weights_only=True)
    del state["epoch"]
    torch.save(state, tmp_path / "lone.pt")
    made = read((tmp_path / "lone.pt", rbnn_run))
    write_page(made, tmp_path / "page.html")
    lone, whole = made.runs
    assert [layer.angle for layer in lone.layers] == [layer.angle for layer in whole.layers]
    assert lone.run.measured == "the checkpoint"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "lone.pt is a single checkpoint, which has no log and no curves." in page


# Bad input


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no runs given"),
        (["nowhere"], "nowhere does not exist"),
        (["file"], "file is not a readable checkpoint"),
        (["empty"], "empty contains no config.toml"),
        (["run", "run"], "run is given twice"),
        (["changed log"], "is incomplete"),
        (["bad log"], "line 1 does not describe an epoch"),
        (["nothing.json"], "cannot read table nothing.json: No such file"),
        (["broken.json"], "broken.json is not a table"),
        (["begun.json"], "no run of begun.json is finished yet"),
        (["bad checkpoint"], "is not a readable checkpoint"),
        (["bad signs"], "cannot read the initial signs"),
        (["run", "--packed", "nothing.rbnn"], "nothing.rbnn: no such file"),
        (
            ["good.rbnn"],
            "good.rbnn is a packed network, which has no training state: name the run directory, and add --packed",
        ),
        (["run", "renamed"], "renamed is a packed network, which has no training state"),
        (["resnet20-bireal-digits"], "resnet20-bireal-digits is a packed network, which has no training state"),
        (["broken.rbnn"], "broken.rbnn: not a packed network"),
        (["run", "-o", "empty"], "cannot access empty: it is a directory, but the output must be a file"),
        (["run", "-o", "no/such/page.html"], "no/such"),
        (["run", "--figures", "file"], "file"),
    ],
)
def test_bad_input(
    words: list[str],
    says: str,
    rbnn_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "empty").mkdir()
    packfile.write(small_network(), tmp_path / "good.rbnn")
    shutil.copy(tmp_path / "good.rbnn", tmp_path / "renamed")
    (tmp_path / "broken.rbnn").write_text("in the way")
    (tmp_path / "broken.json").write_text('{"table": "ablation"}')
    (tmp_path / "begun.json").write_text('{"table": "begun", "rows": [{"row": "B", "runs": [], "seeds": []}]}')
    broken = {"changed log": "log.jsonl", "bad log": "log.jsonl", "bad checkpoint": "best.pt"}
    for name in ("run", *broken, "bad signs"):
        if name in words:
            shutil.copytree(rbnn_run, tmp_path / name)
    for name, file in (broken | {"bad signs": "initial.safetensors"}).items():
        if name in words:
            (tmp_path / name / file).write_text('{"epoch": 0}\n' if name == "changed log" else "hello\nyou\n")
    capsys.readouterr()
    assert main(["report", *words]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
