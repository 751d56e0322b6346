"""How a notebook shows a run and its result."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rbnn.training.config import from_table
from rbnn.training.loop import train
from rbnn.training.progress import NotebookProgress, Progress, progress_here
from rbnn.training.result import Result


class Cell:
    """The output of a notebook cell: everything it displayed, in order."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, shown: Any, display_id: bool = False) -> "Cell":
        assert display_id
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.shown.append(shown._repr_html_())


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Pretend that this is a notebook."""
    made = Cell()
    shell = type("ZMQInteractiveShell", (), {})()
    modules = {"IPython": ModuleType("IPython"), "IPython.display": ModuleType("IPython.display")}
    modules["IPython"].get_ipython = lambda: shell  # type: ignore[attr-defined]
    modules["IPython.display"].display = made.display  # type: ignore[attr-defined]
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def small(out: Path, **more: Any) -> Any:
    return from_table({"epochs": 2, "limit": 128, "batch_size": 64, "threads": 1, "out": str(out)} | more)


def test_a_notebook_has_a_bar(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbnn.training.progress.PAUSE", 0.0)
    assert isinstance(progress_here(), NotebookProgress)
    result = train(small(tmp_path / "run"))
    assert '<progress value="0" max="4">' in cell.shown[0]
    assert '<progress value="4" max="4">' in cell.shown[-1]
    assert "resnet20-bireal rbnn on digits" in cell.shown[-1]
    assert f"epoch 2 of 2: test accuracy {result.last['top1']:.2f} %" in cell.shown[-1]
    assert len(cell.shown) == 1 + 4 + 2


def test_a_bar_is_drawn_now_and_then_only(cell: Cell) -> None:
    progress = NotebookProgress()
    progress.begin(small(Path("run")), 500, 0, 0)
    for _ in range(500):
        progress.step(64, 1.0, 50.0)
    assert len(cell.shown) < 5
    assert repr(progress).startswith("resnet20-bireal rbnn on digits: step 500 of 1000, loss 1.000, train 50.0 %")


def test_elsewhere_a_run_is_silent() -> None:
    assert type(progress_here()) is Progress


def test_what_a_run_came_to(tmp_path: Path) -> None:
    result = train(small(tmp_path / "<run>"))
    first, *lines = repr(result).splitlines()
    assert first == f"run in {tmp_path / '<run>'}"
    angles = [layer["angle"] for layer in result.last["layers"].values()]
    assert lines[0] == "  epochs: 2"
    last = f"{result.last['top1']:.2f} % of the test images after the last epoch"
    assert lines[1] == f"  accuracy: {last}, best {result.best_top1:.2f} %"
    assert lines[3].startswith(f"  18 binary layers: angle {sum(angles) / 18:.1f}°, relative error ")
    shown = result._repr_html_()
    assert "&lt;run&gt;" in shown
    assert "<run" not in shown
    assert f"best {result.best_top1:.2f} %" in shown


def test_of_a_float_network_and_of_a_run_without_an_epoch(tmp_path: Path) -> None:
    assert len(repr(train(small(tmp_path / "run", method="float", epochs=1))).splitlines()) == 4
    assert repr(Result(tmp_path, 0.0, {})) == f"run in {tmp_path}\n  epochs: none finished"
