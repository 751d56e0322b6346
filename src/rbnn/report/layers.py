"""What binarization does to each binary layer of a trained network: the measures behind figures 2, 6 and 7."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import acos, cos, degrees, erf, pi, radians, sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from rbnn.errors import CheckpointError
from rbnn.functional import cosine, optimal_scale, quantisation_error, sign
from rbnn.nn import binary_layers
from rbnn.report.run_directory import Run
from rbnn.training.layer_measures import INITIAL, Signs, layer_measures, present_signs

GAUSSIAN_COSINE = sqrt(2 / pi)
"""cos θ between Gaussian weights and their signs, ``E|w| / √E[w²]``: that of a layer without rotation."""
GAUSSIAN_ANGLE = degrees(acos(GAUSSIAN_COSINE))

GAUSSIAN_NEAR_ONE = erf(1.5 / sqrt(pi)) - erf(0.5 / sqrt(pi))
"""Share of Gaussian weights with ``|w|/mean|w|`` in [0.5, 1.5]."""

EDGES = np.linspace(-4, 4, 81)
"""Bins of ``w̃/λ*``, where the signs are at ±1.  Values beyond are counted in the outermost bins."""


@dataclass(frozen=True)
class Layer:
    """Measures of one binary layer; None if the run does not contain what a measure needs."""

    name: str
    shape: tuple[int, ...]
    cosine: float
    """cos θ between the weight before sign, w̃, and its signs: 1 is best."""
    angle: float
    """θ in degrees."""
    relative_error: float
    """``‖w̃ − λ*b‖² / ‖w̃‖² = sin²θ``."""
    error: float | None
    """``‖w̃ − λ*b‖²``."""
    flips: float | None
    """Share of signs that differ from those before training."""
    alpha: float | None
    """Mean of α over the layer's filters."""
    histogram: NDArray[np.float64] | None
    """Share of the weights in each bin of ``EDGES``."""
    weights: NDArray[np.float32] | None
    """w̃, all of its values in a row."""
    scale: float = 1.0
    """λ* = mean|w̃|; 1 for a layer of zeros."""

    @property
    def near_one(self) -> float | None:
        """Share of the weights whose ``|w̃|/λ*`` is in [0.5, 1.5]."""
        return None if self.weights is None else self._share(0.5, 1.5)

    @property
    def two_modes(self) -> bool | None:
        """Whether the weights are at most half as dense around 0 as around ±1."""
        if self.weights is None:
            return None
        return 2 * self._share(0, 0.25) / 0.25 <= self._share(0.75, 1.25) / 0.5

    def _share(self, low: float, high: float) -> float:
        """Share of the weights whose ``|w̃|/λ*`` is in [low, high]."""
        assert self.weights is not None, "the caller has looked"
        magnitudes = np.abs(self.weights) / self.scale
        return float(((magnitudes >= low) & (magnitudes <= high)).mean())


def layers(run: Run) -> list[Layer]:
    """All binary layers of a run, measured on its network, or from the log's last entry if there is no checkpoint."""
    return list(_of_network(run) if run.network is not None else _of_log(run))


@torch.no_grad()
def _of_network(run: Run) -> Iterator[Layer]:
    assert run.network is not None, "the caller has looked"
    model = run.network.model
    signs = present_signs(model)
    if run.initial is not None and _shapes(run.initial) != _shapes(signs):
        raise CheckpointError(
            f"{run.path / INITIAL} belongs to another network: restore the file that this run wrote in its first epoch"
        )
    logged = layer_measures(model, run.initial or signs, signs)
    for name, layer in binary_layers(model):
        before = layer.method.before_sign(layer.filters).double()
        bits, measures = sign(before), logged[name]
        weights, scale = before.flatten().float().numpy(), optimal_scale(before, bits) or 1.0
        yield Layer(
            name,
            tuple(layer.filters.shape),
            cosine(before, bits),
            measures["angle"],
            measures["error"],
            quantisation_error(before, bits),
            None if run.initial is None else measures["flips"],
            measures.get("alpha"),
            np.histogram(np.clip(weights / scale, EDGES[0], EDGES[-1]), EDGES)[0] / weights.size,
            weights,
            scale,
        )


def _of_log(run: Run) -> Iterator[Layer]:
    for name, measures in run.epochs[-1]["layers"].items() if run.epochs else ():
        if {"angle", "error"} <= set(measures):
            theta, relative = measures["angle"], measures["error"]
            flips, alpha = measures.get("flips"), measures.get("alpha")
            yield Layer(name, (), cos(radians(theta)), theta, relative, None, flips, alpha, None, None)


def _shapes(signs: Signs) -> dict[str, tuple[int, ...]]:
    return {name: words.shape for name, words in signs.items()}
