"""F and F' over training, which replace sign and its derivative in the backward pass (figure 5)."""

from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rbnn.functional import Number, estimator, floored, sharpness_and_gain
from rbnn.methods import abc_net, method_options
from rbnn.methods._method import T_MAX, T_MIN
from rbnn.nn import binary_layers
from rbnn.report.layers import Layer
from rbnn.report.run_directory import Run

PROGRESS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The values of e/E that are shown."""

GRID = np.linspace(-2, 2, 401)

FIXED_WEIGHT_ESTIMATORS = {"lab": "identity"}
"""Estimators of the weights' sign, for methods without an option for it that do not use ``estimator``."""

REACHES = {"abc-net": abc_net.REACH}
"""The reach of methods that take F' of the activations' sign at x / reach."""

FADED = 0.01
"""A derivative below this share of its peak counts as 0."""


@dataclass(frozen=True)
class Gradient:
    """An estimator and the exponents between which its t grows."""

    estimator: str
    low: float
    high: float
    floored: bool = False
    """t never below 1, and k = 1: RBNN's activations."""
    reach: float = 1.0
    """F' is taken at x / reach: ABC-Net's activations."""

    def sharpness_and_gain(self, progress: float) -> tuple[Number, Number]:
        """t and k at e/E = ``progress``."""
        t, k = sharpness_and_gain(self.estimator, progress, self.low, self.high)
        return floored(t) if self.floored else (t, k)

    def derivative(self, progress: float, at: NDArray[Any] = GRID) -> NDArray[np.float64]:
        """F' at e/E = ``progress``."""
        made = estimator(self.estimator, *self.sharpness_and_gain(progress))
        return made(torch.from_numpy(np.asarray(at, dtype=np.float64) / self.reach)).numpy()

    def function(self, progress: float) -> NDArray[np.float64]:
        """F on the grid: the integral of F' with F(0) = 0, by the trapezoidal rule."""
        slope = self.derivative(progress)
        steps = (slope[1:] + slope[:-1]) / 2 * np.diff(GRID)
        rising = np.concatenate([[0.0], np.cumsum(steps)])
        return np.asarray(rising - rising[len(GRID) // 2])

    @property
    def phases(self) -> list[tuple[float, float]]:
        """The ranges (from, to) of ``PROGRESS`` in which the function stays the same."""
        same = groupby(PROGRESS, lambda progress: self.derivative(progress).tobytes())
        stretches = [list(each) for _, each in same]
        return [(stretch[0], stretch[-1]) for stretch in stretches]

    @property
    def changes(self) -> bool:
        """Whether the function at the end of training differs from that at the start."""
        return len(self.phases) > 1


def gradients(run: Run) -> dict[str, Gradient]:
    """The run's estimators."""
    return gradients_of(run.config.method, method_options(run.config.method) | run.config.options)


def gradients_of(method: str, options: dict[str, Any]) -> dict[str, Gradient]:
    """A method's estimators by the signs that they belong to: ``weights`` and ``activations``, or ``weights and
    activations`` if they are the same."""
    low, high = options.get("t_min", T_MIN), options.get("t_max", T_MAX)

    def named(estimator: str | None) -> Gradient | None:
        return None if estimator is None else Gradient(estimator, low, high)

    activations = named(options.get("estimator"))
    weights = named(options.get("weight_estimator", FIXED_WEIGHT_ESTIMATORS.get(method))) or activations
    if activations is not None:
        activations = replace(activations, floored=options.get("floored", False), reach=REACHES.get(method, 1.0))
    if weights is not None and activations is not None and _equal(weights, activations):
        return {"weights and activations": weights}
    found = {"weights": weights, "activations": activations}
    return {of: gradient for of, gradient in found.items() if gradient is not None}


def _equal(one: Gradient, other: Gradient) -> bool:
    """Whether they are equal as functions: most estimators have no t that a floor could raise."""
    return all(np.array_equal(one.derivative(progress), other.derivative(progress)) for progress in PROGRESS)


def reached(run: Run, layers: list[Layer]) -> float | None:
    """Share of RBNN's weights whose derivative F'(w̃) is at least ``FADED`` of its peak, at the network's epoch.  None
    for other methods, and if the weights are not known."""
    if run.config.method != "rbnn" or run.network is None:
        return None
    gradient = next(gradient for of, gradient in gradients(run).items() if of.startswith("weights"))
    weights = [layer.weights for layer in layers]
    if not layers or any(values is None for values in weights):
        return None
    _, first = next(binary_layers(run.network.model))
    progress = first.method.progress or 0.0
    slopes = gradient.derivative(progress, np.concatenate([values for values in weights if values is not None]))
    return float((slopes >= FADED * gradient.derivative(progress, np.zeros(1))).mean())
