"""The figures of the gradient of sign: one, or one each for weights and activations."""

from pathlib import Path

import pytest
from changed_runs import set_options, without

from rbnn.report.figures import Figure
from rbnn.report.page import read

# The gradient of sign


def gradient_figures(*runs: Path) -> list[Figure]:
    return [figure for figure in read(runs).figures if figure.key.startswith("gradient_")]


def test_weights_and_activations_have_a_figure_each_where_their_gradients_differ(rbnn_run: Path) -> None:
    weights, activations = gradient_figures(rbnn_run)
    assert f"used by {rbnn_run.name} for weights." in weights.caption
    assert "t grows from 0.01 to 10" in weights.caption
    assert weights.caption.endswith("Figure 5 of the paper.")
    assert f"used by {rbnn_run.name} for activations." in activations.caption
    assert "t grows from 1 to 10" in activations.caption
    assert "t stays 1 until e/E = 0.67" in activations.caption
    assert "Figure 5" not in activations.caption
    assert weights.title != activations.title
    at_zero = [{row[0]: row[3] for row in figure.rows if row[1] == 0} for figure in (weights, activations)]
    # F'(0) = √2 t k
    assert at_zero[0] == pytest.approx(
        {step: 2**0.5 * max(1, 10 ** (-2 + 3 * step)) for step in (0.0, 0.25, 0.5, 0.75, 1.0)}
    )
    assert at_zero[1] == pytest.approx({0.5: 2**0.5, 0.75: 2**0.5 * 10**0.25, 1.0: 2**0.5 * 10})


@pytest.mark.parametrize("options", ["floored = false", 'estimator = "ste"'])
def test_one_figure_where_they_do_not(rbnn_run: Path, tmp_path: Path, options: str) -> None:
    copy = without(rbnn_run, tmp_path, "best.pt", "last.pt")
    set_options(copy, options)
    (figure,) = gradient_figures(copy)
    assert "used by copy for weights and activations." in figure.caption


def test_all_runs_keep_the_side(rbnn_run: Path, xnor_run: Path, tmp_path: Path) -> None:
    twice = without(rbnn_run, tmp_path)
    captions = [figure.caption for figure in gradient_figures(rbnn_run, twice)]
    assert [caption.split(". ")[0] for caption in captions] == [
        "The estimator training-aware, used by all runs for weights",
        "The estimator training-aware, used by all runs for activations",
    ]
    assert "used by xnor for weights and activations." in gradient_figures(rbnn_run, xnor_run)[2].caption
