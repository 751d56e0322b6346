"""The sentences of a report follow from its numbers."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from changed_runs import set_options, without

from rbnn.report.analysed import Analysed
from rbnn.report.findings import _accuracy, findings, findings_of
from rbnn.report.page import read
from rbnn.report.paper_figures import claims
from rbnn.training.config import TrainConfig

# Sentences


def test_the_sentences_follow_from_the_numbers(rbnn_run: Path, xnor_run: Path) -> None:
    report = read([rbnn_run, xnor_run])
    ours, theirs = report.runs
    other = {layer.name: layer for layer in theirs.layers}
    won = sum(layer.angle < other[layer.name].angle for layer in ours.layers)
    first, second, counted = (ours, theirs, won) if 2 * won >= 18 else (theirs, ours, 18 - won)
    how_many = "all 18" if counted == 18 else f"{counted} of 18"
    said = " ".join(findings(report.runs, report.times))
    assert f"smaller in {first.name} than in {second.name} in {how_many} layers" in said
    assert "25.3× smaller than the float twin" in said
    assert "different data or numbers of epochs" in said
    best = max(entry["top1"] for entry in ours.run.epochs)
    assert findings_of(ours)[0] == "Method: rbnn as in its paper."
    assert f"Reached {best:.2f} % on the test set of digits" in findings_of(ours)[1]

    table = {(claim.figure, claim.run): claim for claim in claims(report.runs)}
    cosines = sum(layer.cosine > other[layer.name].cosine for layer in ours.layers)
    assert table["2a", ours.name].answer.startswith(f"{cosines} of 18 layers, mean 0.")
    assert table["2a", ours.name].holds == (cosines == 18)
    absolute = sum((layer.error or 0) < (other[layer.name].error or 0) for layer in ours.layers)
    assert table["2b", ours.name].answer.endswith(f"; absolute: {absolute} of 18")
    assert table["4c", ours.name].answer.startswith("1.000 at the start, ")
    near_half = sum(0.45 <= (layer.flips or 0) <= 0.55 for layer in ours.layers)
    assert table["7", ours.name].answer.startswith(f"{near_half} of 18 layers")
    assert set(table) == {(figure, ours.name) for figure in ("2a", "2b", "4c", "6", "7")} | {
        (figure, theirs.name) for figure in ("6", "7")
    }
    alone = {claim.figure for claim in claims(report.runs[:1])}
    assert alone == {"4c", "6", "7"}, "nothing to compare with"


def test_rbnn_without_rotation_is_not_held_to_the_paper(rbnn_run: Path, tmp_path: Path) -> None:
    copy = without(rbnn_run, tmp_path, "best.pt", "last.pt")
    set_options(copy, 'rotation = "none"', 'alpha = "none"')
    assert claims(read([copy]).runs) == []


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (1.0, "reaches 100 % of the weights."),
        (1 - 1e-9, "reaches more than 99 % of the weights; for the others F′ is 0 or close to it."),
        (0.996, "reaches more than 99 % of the weights; for the others F′ is 0 or close to it."),
        (0.99, "reaches 99 % of the weights; for the others F′ is 0 or close to it."),
        (0.5, "reaches 50 % of the weights; for the others F′ is 0 or close to it."),
        (0.004, "reaches less than 1 % of the weights; for the others F′ is 0 or close to it."),
        (0.0, "reaches 0 % of the weights; for the others F′ is 0 or close to it."),
    ],
)
def test_all_weights_are_said_of_all_weights_alone(rbnn_run: Path, share: float, said: str) -> None:
    (each,) = read([rbnn_run]).runs
    vars(each)["reached"] = share  # instead of computing them
    (sentence,) = [text for text in findings_of(each) if "the gradient of sign reaches" in text]
    assert sentence.endswith(said)


@pytest.mark.parametrize(
    ("train_top1", "ends"),
    [
        (90.0, "20.0 points below the training accuracy."),
        (60.0, "above the training accuracy, which is measured during the epoch on augmented images."),
    ],
)
def test_a_test_accuracy_above_the_training_accuracy_is_explained(train_top1: float, ends: str) -> None:
    entry = {"epoch": 0, "top1": 70.0, "train_top1": train_top1, "evaluated_on": "test"}
    run = SimpleNamespace(epochs=[entry], config=TrainConfig(data="digits"))
    (sentence,) = _accuracy(cast(Analysed, SimpleNamespace(run=run, best=lambda: entry)))
    assert sentence.endswith(ends)
