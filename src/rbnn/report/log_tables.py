"""A log in compact form: every run's epochs, and its layers at the end, each as one table."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rbnn.report.analysed import Analysed

OF_LAYERS = "angle", "error", "flips", "epoch_flips", "alpha"
"""Measures in the log that all binary layers have, or none: given as the mean of the layers."""
OF_EPOCH = "lr", "loss", "train_top1", "test_loss", "top1", "top5", "images_per_second"

EPOCH = "run", "epoch", *OF_EPOCH, *OF_LAYERS
LAYER = "run", "layer", "cosine", "angle", "relative_error", "error", "flips", "alpha", "near_one", "two_modes"


def epoch_rows(runs: Sequence[Analysed]) -> list[tuple[Any, ...]]:
    """A row for each epoch; cells without a number in the log are empty."""
    rows = []
    for each in runs:
        for entry in each.run.epochs:
            numbers = [entry.get(key) for key in OF_EPOCH] + [_mean(entry, key) for key in OF_LAYERS]
            rows.append((each.name, entry["epoch"] + 1, *numbers))
    return rows


def _mean(entry: dict[str, Any], key: str) -> float | None:
    values = [measures[key] for measures in entry["layers"].values() if key in measures]
    return fmean(values) if values else None


def layer_rows(runs: Sequence[Analysed]) -> list[tuple[Any, ...]]:
    """A row for each binary layer of the network that was measured."""
    return [
        (each.name, layer.name, *(getattr(layer, key) for key in LAYER[2:])) for each in runs for layer in each.layers
    ]
