"""The last lines of `rbnn report`: a summary computed from the numbers."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from rbnn.cli import main
from rbnn.report.page import read
from rbnn.training.log import read_log


def best(run: Path) -> float:
    return max(entry["top1"] for entry in read_log(run / "log.jsonl"))


def test_three_lines_and_the_page(
    rbnn_run: Path, xnor_run: Path, float_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, page, runs = tmp_path / "net.rbnn", tmp_path / "page.html", [rbnn_run, xnor_run, float_run]
    assert main(["export", str(rbnn_run), "-o", str(packed)]) == 0
    capsys.readouterr()
    assert main(["report", *map(str, runs), "--packed", str(packed), "-o", str(page)]) == 0
    head, accuracy, angle, bits, _, last = capsys.readouterr().out.splitlines()[-6:]
    assert head == "In short"
    order = sorted(runs, key=lambda run: -best(run))
    assert accuracy == f"  Accuracy on digits: {', '.join(f'{run.name} {best(run):.1f} %' for run in order)}."
    means = {each.name: fmean(layer.angle for layer in each.layers) for each in read(runs[:2]).runs}
    nearer, farther = sorted(means, key=means.__getitem__)
    assert angle.endswith(f": {nearer} {means[nearer]:.1f}°, {farther} {means[farther]:.1f}°.")
    size = packed.stat().st_size / 1000
    assert re.fullmatch(rf"  As bits: net\.rbnn has {size:.1f} kB, \d+\.\d× smaller .* \d\.\d+ ms per image\.", bits)
    assert last.startswith(f"Wrote {page} (")


def test_a_float_network_has_no_angle(float_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["report", str(float_run), "-o", str(tmp_path / "page.html")]) == 0
    *_, head, accuracy, empty, _ = capsys.readouterr().out.splitlines()
    assert (head, empty) == ("In short", "")
    assert accuracy == f"  Accuracy on digits: {float_run.name} {best(float_run):.1f} %."
