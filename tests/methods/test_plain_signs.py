"""Methods whose binarized weight is signs times a scale, against their formulas in NumPy: BNN, LAB, BNN+, Bi-Real and
IR-Net.  XNOR-Net has a file of its own."""

import numpy as np
import pytest
import torch
from formulas import (
    SHAPES,
    assert_activation,
    assert_weight,
    filter_means,
    forward_and_gradient,
    made,
    numbers,
    over_filters,
    signs,
    slope,
)

from rbnn.functional import as_tensor

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


# BNN


@shapes
def test_bnn(shape: tuple[int, ...]) -> None:
    w, g = numbers(*shape), numbers(*shape, seed=1)
    bnn = made("bnn", w)
    assert_weight(bnn, w, signs(w), g, g)
    assert_weight(made("bnn", w, weight_estimator="ste"), w, signs(w), g * (np.abs(w) <= 1), g)
    assert_activation(bnn, "ste")
    latent = torch.from_numpy(3 * w)
    bnn.after_step(latent)
    np.testing.assert_array_equal(latent, np.clip(3 * w, -1, 1))


# LAB


def lab_scale(w: np.ndarray, moment: np.ndarray) -> float:
    d = np.sqrt(moment) + 1e-8
    return float((d * np.abs(w)).sum() / d.sum())


@shapes
def test_lab_weighs_magnitudes_by_the_root_of_the_second_moment(shape: tuple[int, ...]) -> None:
    w = numbers(*shape, scale=0.5)
    lab, moment = made("lab", w), np.zeros(shape)
    assert_activation(lab, "ste")
    latent = torch.nn.Parameter(torch.from_numpy(w.copy()))
    for step in range(4):
        now, g = latent.detach().numpy().copy(), numbers(*shape, seed=step + 1, scale=10.0**-step)
        if step == 0:
            assert lab_scale(now, moment) == pytest.approx(np.abs(w).mean())
        assert_weight(lab, now, lab_scale(now, moment) * signs(now), g, g)  # by identity: no α in the gradient
        latent.grad = None
        for half in (0.25, 0.75):  # two micro-batches: v takes the square of the sum
            lab.weight(latent).product().backward(torch.from_numpy(half * g))
        with torch.no_grad():
            latent -= 0.3 * latent.grad  # type: ignore[operator]
        expected = np.clip(latent.detach().numpy(), -1, 1)
        lab.after_step(latent)
        moment = 0.999 * moment + 0.001 * g**2
        np.testing.assert_allclose(lab.moment, moment, rtol=1e-12)
        np.testing.assert_array_equal(latent.detach(), expected)


def test_lab_keeps_its_moment_in_the_state() -> None:
    w = numbers(3, 5, 3, 2)
    lab, fresh = made("lab", w), made("lab", w)
    latent = torch.nn.Parameter(torch.from_numpy(w.copy()))
    lab.weight(latent).product().backward(torch.from_numpy(numbers(*w.shape, seed=1)))
    lab.after_step(latent)
    assert not torch.equal(as_tensor(lab.weight(latent)), as_tensor(fresh.weight(latent)))
    fresh.load_state_dict(lab.state_dict())
    assert torch.equal(as_tensor(lab.weight(latent)), as_tensor(fresh.weight(latent)))


# BNN+


@shapes
@pytest.mark.parametrize("regulariser", ["r1", "r2"])
@pytest.mark.parametrize("scale", ["filter", "layer"])
def test_bnn_plus(shape: tuple[int, ...], regulariser: str, scale: str) -> None:
    w, g = numbers(*shape), numbers(*shape, seed=1)
    plus = made("bnn+", w, regulariser=regulariser, scale=scale, strength=0.25)
    rows = np.abs(w).reshape(len(w) if scale == "filter" else 1, -1)
    middle = np.sort(rows, 1)[:, (rows.shape[1] - 1) // 2] if regulariser == "r1" else rows.mean(1)
    np.testing.assert_allclose(plus.alpha.detach(), np.maximum(middle, 1e-4))

    plus.alpha.data = torch.from_numpy(0.3 + np.arange(len(rows)) / 7)
    alpha = over_filters(plus.alpha.detach().numpy(), w)
    assert_weight(plus, w, alpha * signs(w), alpha * g * (np.abs(w) <= 1), g)
    assert plus.alpha.grad is not None
    np.testing.assert_allclose(plus.alpha.grad, (g * signs(w)).reshape(len(rows), -1).sum(1))
    assert_activation(plus, "swish-sign")

    plus.alpha.grad = None
    distance = np.abs(w) - alpha
    by_distance = np.sign(distance) if regulariser == "r1" else 2 * distance
    size = np.abs(distance).sum() if regulariser == "r1" else (distance**2).sum()
    value, gradient = forward_and_gradient(plus.penalty, w, np.array(1.0))
    assert float(value) == pytest.approx(0.25 * size)
    np.testing.assert_allclose(gradient, 0.25 * by_distance * np.sign(w), atol=1e-12)
    np.testing.assert_allclose(plus.alpha.grad, -0.25 * by_distance.reshape(len(rows), -1).sum(1), atol=1e-12)


def test_bnn_plus_keeps_its_scale_positive_and_its_weights_without_decay() -> None:
    w = numbers(3, 4)
    plus = made("bnn+", w)
    plus.alpha.data[:] = torch.tensor([-1.0, 0.0, 2.0])
    latent = torch.from_numpy(5 * w)
    plus.after_step(latent)
    assert plus.alpha.tolist() == [1e-4, 1e-4, 2.0]
    assert float(latent.abs().max()) == 1.0
    assert plus.decay_factors()["layer.weight"] == 0.0


# Bi-Real


@shapes
def test_bi_real(shape: tuple[int, ...]) -> None:
    w, g = numbers(*shape), numbers(*shape, seed=1)
    value, inside = filter_means(w) * signs(w), (np.abs(w) <= 1) * 1.0
    paper = made("bi-real", w)
    assert_weight(paper, w, value, filter_means(w) * inside * g, g)
    assert_weight(made("bi-real", w, gradient="release"), w, value, inside * g, g)
    assert_weight(made("bi-real", w, gradient="release", weight_estimator="identity"), w, value, g, g)
    assert_activation(paper, "ppf")


# IR-Net


@shapes
@pytest.mark.parametrize("progress", [0.0, 0.5, 1.0])
def test_ir_net(shape: tuple[int, ...], progress: float) -> None:
    w, g = numbers(*shape) + 0.3, numbers(*shape, seed=1)
    net = made("ir-net", w, progress)
    assert_activation(net, "ede", progress, low=-3.0)
    n = w[0].size
    if n == 1:  # a filter of one value has no deviation: its sign is used, and its gradient is 0
        assert_weight(net, w, signs(w), 0 * w, g)
        return
    flat, gradient = w.reshape(len(w), n), g.reshape(len(w), n)
    std = flat.std(1, ddof=1, keepdims=True)
    standard = (flat - flat.mean(1, keepdims=True)) / std
    scale = 2.0 ** np.round(np.log2(np.abs(standard).mean(1, keepdims=True)))
    inner = gradient * scale * slope("ede", standard, progress, low=-3.0)
    # Through ŵ = (w − mean)/std, std unbiased.
    outer = (inner - inner.mean(1, keepdims=True) - standard * (inner * standard).sum(1, keepdims=True) / (n - 1)) / std
    assert_weight(net, w, (scale * signs(standard)).reshape(shape), outer.reshape(shape), g)


def test_ir_nets_scale_is_a_power_of_two_of_the_standardised_weight() -> None:
    w = np.zeros((2, 200))
    w[0, :2] = 10.0, -10.0  # two peaks: mean|ŵ| = 2·√(199/200)·√(200/2)/200 ≈ 0.1
    w[1] = np.where(np.arange(200) % 2, 1e-3, -1e-3)
    found = as_tensor(made("ir-net", w).weight(torch.from_numpy(w)))
    assert found.abs().unique(dim=1).flatten().tolist() == [0.125, 1.0]


def test_ir_net_starts_at_the_exponent_that_is_asked_for() -> None:
    w = numbers(3, 5, 3, 2)
    assert_activation(made("ir-net", w, 0.5, t_min=-1.0, t_max=0.5), "ede", 0.5, low=-1.0, high=0.5)
