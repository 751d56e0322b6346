"""F and F' of a run, against the closed form of eq. 12."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rbnn.functional import training_aware
from rbnn.methods import RBNN, ABCNet
from rbnn.report.gradients import GRID, PROGRESS, Gradient, gradients, reached
from rbnn.report.layers import layers
from rbnn.report.run_directory import read_runs

TRAINING_AWARE, EDE = Gradient("training-aware", -2, 1), Gradient("ede", -2, 1)


@pytest.mark.parametrize("progress", PROGRESS)
def test_training_aware(progress: float) -> None:
    t = 10 ** (-2 + 3 * progress)
    k = max(1 / t, 1)
    gradient = Gradient("training-aware", -2, 1)
    assert gradient.sharpness_and_gain(progress) == pytest.approx((t, k))
    slope = np.maximum(k * (np.sqrt(2) * t - t * t * np.abs(GRID)), 0)
    np.testing.assert_allclose(gradient.derivative(progress), slope, atol=1e-12)
    exact = training_aware(torch.from_numpy(GRID), t, k).numpy()
    np.testing.assert_allclose(gradient.function(progress), exact, atol=2e-3)


@pytest.mark.parametrize("progress", PROGRESS)
def test_the_floor_of_rbnn_s_activations(progress: float) -> None:
    gradient = Gradient("training-aware", -2, 1, floored=True)
    t = {0.0: 1.0, 0.25: 1.0, 0.5: 1.0, 0.75: 10**0.25, 1.0: 10.0}[progress]
    assert gradient.sharpness_and_gain(progress) == pytest.approx((t, 1.0))
    slope = np.maximum(np.sqrt(2) * t - t * t * np.abs(GRID), 0)
    np.testing.assert_allclose(gradient.derivative(progress), slope, atol=1e-12)
    # The method itself, on values without standardisation.
    layer = RBNN(torch.randn(4, 4, 3, 3), standardise=False)
    layer.progress = progress
    x = torch.from_numpy(GRID).requires_grad_()
    layer.activation(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slope, atol=1e-12)


def test_abc_net_s_activations_reach_half_as_far() -> None:
    # One threshold at ½: the sign is taken of x − ½.
    x = torch.from_numpy(GRID + 0.5).requires_grad_()
    ABCNet(torch.randn(4, 4, 3, 3).double()).activation(x).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), Gradient("ste", -2, 1, reach=0.5).derivative(0.0))


def test_one_stretch_for_as_long_as_the_function_is_the_same() -> None:
    assert Gradient("training-aware", -2, 1).phases == [(each, each) for each in PROGRESS]
    assert Gradient("training-aware", -2, 1, floored=True).phases == [(0.0, 0.5), (0.75, 0.75), (1.0, 1.0)]
    assert Gradient("ste", -2, 1).phases == [(0.0, 1.0)]


def test_which_estimators_change() -> None:
    assert Gradient("training-aware", -2, 1).changes
    assert Gradient("ede", -3, 1).changes
    assert not Gradient("ste", -2, 1).changes


@pytest.mark.parametrize(
    ("method", "options", "found"),
    [
        ("rbnn", {}, {"weights": TRAINING_AWARE, "activations": replace(TRAINING_AWARE, floored=True)}),
        ("rbnn", {"floored": False}, {"weights and activations": TRAINING_AWARE}),
        ("rbnn", {"estimator": "ppf"}, {"weights and activations": Gradient("ppf", -2, 1)}),
        ("rbnn", {"estimator": "annealed-tanh"}, {"weights and activations": Gradient("annealed-tanh", -2, 1)}),
        ("rbnn", {"estimator": "ede"}, {"weights": EDE, "activations": replace(EDE, floored=True)}),
        ("ir-net", {"t_min": -1.0}, {"weights and activations": Gradient("ede", -1, 1)}),
        ("bnn", {}, {"activations": Gradient("ste", -2, 1), "weights": Gradient("identity", -2, 1)}),
        ("bnn", {"weight_estimator": "ste"}, {"weights and activations": Gradient("ste", -2, 1)}),
        ("lab", {}, {"activations": Gradient("ste", -2, 1), "weights": Gradient("identity", -2, 1)}),
        ("abc-net", {}, {"activations": Gradient("ste", -2, 1, reach=0.5), "weights": Gradient("identity", -2, 1)}),
        ("dorefa", {}, {"weights": Gradient("identity", -2, 1)}),
        ("dsq", {}, {}),
        ("float", {}, {}),
    ],
)
def test_estimators_of_a_run(rbnn_run: Path, method: str, options: dict[str, object], found: object) -> None:
    (run,) = read_runs([rbnn_run])
    config = replace(run.config, method=method, options=options)
    assert gradients(replace(run, config=config)) == found


def test_how_many_weights_the_gradient_reaches(rbnn_run: Path) -> None:
    (run,) = read_runs([rbnn_run])
    measured = layers(run)
    assert run.network is not None
    t = 10 ** (-2 + 3 * run.network.state["epoch"] / 3)
    values = np.concatenate([layer.weights for layer in measured if layer.weights is not None])
    # F' falls linearly from its peak √2 t k to 0 at √2/t, so 1 % of the peak is left at 99 % of the way.
    assert reached(run, measured) == pytest.approx((np.abs(values) <= 0.99 * np.sqrt(2) / t).mean(), abs=1e-3)


def test_other_methods_are_not_asked(xnor_run: Path) -> None:
    (run,) = read_runs([xnor_run])
    assert reached(run, layers(run)) is None
