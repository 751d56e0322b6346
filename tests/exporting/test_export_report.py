"""The text of an export report."""

from dataclasses import replace
from pathlib import Path

import pytest

from rbnn.packed.export_report import ExportReport


def report(near_ties: int, other_images: int, images: int = 4, changed: int | None = None) -> ExportReport:
    return ExportReport(
        Path("net.rbnn"), 64384, 18, 2, [], images, 229_376, near_ties, other_images, 3e-7, 2e-6, changed
    )


@pytest.mark.parametrize(
    ("near_ties", "other", "layers", "whole"),
    [
        (0, 0, "all 229,376 signs are the same;", "no sign differs in 4 images; outputs differ by at most 2e-06"),
        (1, 1, "1 sign differs of 229,376, always", "signs differ in 1 of 4 images; in the other 3 outputs differ by"),
        (7, 4, "7 signs differ of 229,376, always", "signs differ in 4 of 4 images"),
    ],
)
def test_counts_are_told_as_they_are(near_ties: int, other: int, layers: str, whole: str) -> None:
    shown = repr(report(near_ties, other)).splitlines()
    assert shown[0] == "net.rbnn: 64,384 bytes, 18 binary and 2 float layers"
    assert shown[1].startswith(f"each layer compared with torch: {layers}")
    assert shown[2].startswith(f"whole network: {whole}")
    assert str(report(near_ties, other)) == repr(report(near_ties, other))


def test_what_int8_changed() -> None:
    assert repr(report(0, 0, changed=1)).endswith("int8: changes the class of 1 of 4 images")


def test_a_notebook_shows_the_same_facts_and_runs_nothing_of_a_name() -> None:
    made = replace(report(1, 1, changed=0), path=Path("<script>.rbnn"))
    shown = made._repr_html_()
    assert "&lt;script&gt;.rbnn" in shown
    assert "<script" not in shown
    assert shown.count("<tr>") == len(repr(made).splitlines()) == 4


def test_a_network_that_was_never_binarized_is_named() -> None:
    said = "warning: nothing was binarized, so all layers are float; call rbnn.binarize_ before training"
    floats = repr(replace(report(0, 0), binary_layers=0, signs=0))
    assert said in floats.splitlines()
    assert "sign" not in floats
    assert "nothing was binarized" not in repr(report(0, 0))
