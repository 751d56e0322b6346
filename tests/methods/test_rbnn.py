"""RBNN, part by part, against the formulas in float64."""

from math import pi, sqrt
from typing import Any

import numpy as np
import pytest
import torch

from rbnn.errors import RbnnError, TrainingError
from rbnn.methods import RBNN, create_method


def layer_weight(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape) * 0.1 + 0.02)


def method(w: torch.Tensor, **options: Any) -> RBNN:
    made = create_method("rbnn", w, **options)
    assert isinstance(made, RBNN)
    return made


def standard(w: np.ndarray) -> np.ndarray:
    flat = w.reshape(len(w), -1)
    return ((flat - flat.mean(1, keepdims=True)) / flat.std(1, ddof=1, keepdims=True)).reshape(w.shape)


def mixed(rbnn: RBNN, w: np.ndarray, rotation: str) -> np.ndarray:
    """w̃ = (1 − α) w + α Rᵀw with an explicit n×n matrix R."""
    flat = standard(w).reshape(len(w) if rotation == "filter" else 1, -1)
    r = np.kron(rbnn.R1.double().numpy(), rbnn.R2.double().numpy())
    turned = (flat @ r).reshape(len(w), -1)
    beta = rbnn.beta
    alpha = np.ones((1, 1)) if beta is None else np.abs(np.sin(beta.detach().double().numpy()))[:, None]
    flat = flat.reshape(len(w), -1)
    return ((1 - alpha) * flat + alpha * turned).reshape(w.shape)


@pytest.mark.parametrize("rotation", ["filter", "layer"])
@pytest.mark.parametrize(
    ("alpha", "gradient"),
    [("filter", "paper"), ("layer", "paper"), ("none", "paper"), ("filter", "release"), ("layer", "release")],
)
def test_forward_and_gradients_of_every_granularity(rotation: str, alpha: str, gradient: str) -> None:
    w = layer_weight(6, 4, 3, 3)
    rbnn = method(w, rotation=rotation, alpha=alpha, beta_start=0.7, gradient=gradient)
    if rbnn.beta is not None:
        rbnn.beta.data += torch.linspace(-0.3, 0.3, rbnn.beta.numel(), dtype=torch.float64)
    rbnn.begin_epoch(w, 5, 10)
    expected = mixed(rbnn, w.numpy(), rotation)
    np.testing.assert_allclose(rbnn.before_sign(w).detach(), expected, atol=1e-6)

    scale = np.abs(w.numpy()).reshape(6, -1).mean(1)
    np.testing.assert_allclose(rbnn.scale.detach(), scale)
    w.requires_grad_()
    out = rbnn.weight(w).product()
    signs = np.where(expected > 0, 1.0, -1.0)
    np.testing.assert_allclose(out.detach(), signs * scale[:, None, None, None], rtol=1e-12)

    # Backward: σ = scale·g·F'(w̃), then through w̃ by autograd of the explicit formula.
    g = layer_weight(6, 4, 3, 3, seed=9)
    out.backward(g)
    t = 10**-0.5
    slope = np.maximum((sqrt(2) * t - t * t * np.abs(expected)) / t, 0)
    sigma = torch.from_numpy(scale[:, None, None, None] * g.numpy() * slope)
    v = w.detach().clone().requires_grad_()
    flat = v.flatten(1)
    s = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
    r = torch.kron(rbnn.R1, rbnn.R2)
    turned = (s.reshape(6 if rotation == "filter" else 1, -1) @ r).reshape(6, -1)
    turned = turned if gradient == "paper" else turned.detach()  # ∂w̃/∂w = (1 − α) I
    beta = None if rbnn.beta is None else rbnn.beta.detach().clone().requires_grad_()
    a = torch.ones(1, 1) if beta is None else beta.sin().abs()[:, None]
    (((1 - a) * s + a * turned).reshape(w.shape) * sigma).sum().backward()
    assert w.grad is not None
    assert v.grad is not None
    np.testing.assert_allclose(w.grad, v.grad, atol=1e-6 * float(v.grad.abs().max()))
    assert rbnn.scale.grad is not None
    np.testing.assert_allclose(rbnn.scale.grad, (g.numpy() * signs).reshape(6, -1).sum(1))
    if beta is not None:
        assert rbnn.beta is not None
        assert rbnn.beta.grad is not None
        assert beta.grad is not None
        np.testing.assert_allclose(rbnn.beta.grad, beta.grad, atol=1e-6)


def test_the_releases_gradient_is_nothing_where_alpha_is_one() -> None:
    w = layer_weight(6, 4, 3, 3).requires_grad_()
    for gradient, moves in (("release", False), ("paper", True)):
        rbnn = method(w, gradient=gradient)
        rbnn.begin_epoch(w, 0, 10)
        (found,) = torch.autograd.grad(rbnn.weight(w).product().square().sum() + rbnn.weight(w).product().sum(), w)
        assert (float(found.abs().max()) > 1e-9) == moves


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gradient": "exact"}, "gradient"),
        ({"gradient": "release", "alpha": "none"}, "gives no gradient"),
        ({"scaled": True}, "set standardise = false"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(RbnnError, match=words):
        method(layer_weight(6, 4, 3, 3), **options)


@pytest.mark.parametrize("estimator", ["training-aware", "ppf", "ede"])
def test_scaled_activations_keep_their_signs_and_take_the_gradient_at_x_over_std(estimator: str) -> None:
    rbnn = method(layer_weight(8, 8, 3, 3), estimator=estimator, standardise=False, scaled=True)
    rbnn.begin_epoch(layer_weight(8, 8, 3, 3), 7, 10)
    offsets = torch.tensor([0.0, 1, -5, 100], dtype=torch.float64)[:, None, None, None]
    x = (10 * layer_weight(4, 8, 5, 5, seed=1) + offsets).requires_grad_()
    out = rbnn.activation(x)
    np.testing.assert_array_equal(out.detach(), np.where(x.detach().numpy() > 0, 1, -1))
    g = layer_weight(4, 8, 5, 5, seed=2)
    (found,) = torch.autograd.grad(out, x, g)
    z = x / (x.flatten(1).var(1) + 1e-5).sqrt()[:, None, None, None]
    (expected,) = torch.autograd.grad((z * (g * rbnn.binarization().derivative(z.detach()))).sum(), x)
    torch.testing.assert_close(found, expected)
    assert not rbnn.binary_form(layer_weight(8, 8, 3, 3)).centred


def test_without_rotation_the_standardised_weight_is_binarized() -> None:
    w = layer_weight(6, 4, 3, 3)
    rbnn = method(w, rotation="none", alpha="none")
    rbnn.begin_epoch(w, 0, 10)
    np.testing.assert_allclose(rbnn.before_sign(w), standard(w.numpy()), atol=1e-12)
    assert not hasattr(rbnn, "R1")
    assert rbnn.alpha() is None
    assert rbnn.measures() == {}


def test_without_adjustment_alpha_is_one() -> None:
    w = layer_weight(6, 4, 3, 3)
    rbnn = method(w, alpha="none")
    np.testing.assert_allclose(rbnn.before_sign(w), mixed(rbnn, w.numpy(), "filter"), atol=1e-6)
    assert rbnn.beta is None
    assert {name for name, _ in rbnn.named_parameters()} == {"scale"}


@pytest.mark.parametrize("name", ["ste", "ppf", "ede", "identity", "training-aware"])
@pytest.mark.parametrize("epoch", [0, 5, 10])
def test_the_estimator_serves_weights_and_activations(name: str, epoch: int) -> None:
    w = layer_weight(2, 3, 2, 2)
    x = layer_weight(2, 3, 5, 5, seed=1) * 10
    t = 10 ** (-2 + 3 * epoch / 10)
    k = max(1 / t, 1)

    def derivative(v: np.ndarray, t: float, k: float) -> np.ndarray:
        return {
            "ste": (np.abs(v) <= 1) * 1.0,
            "ppf": np.maximum(2 - 2 * np.abs(v), 0),
            "ede": k * t * (1 - np.tanh(t * v) ** 2),
            "identity": np.ones_like(v),
            "training-aware": np.maximum(k * (sqrt(2) * t - t * t * np.abs(v)), 0),
        }[name]

    rbnn = method(w, estimator=name, rotation="none", alpha="none", standardise=False, floored=False)
    rbnn.begin_epoch(w, epoch, 10)
    for values in (w, x):
        values.requires_grad_()
    rbnn.activation(x).sum().backward()
    np.testing.assert_allclose(x.grad, derivative(x.detach().numpy(), t, k), atol=1e-9)
    # The published runs hold activations at k = 1 and t ≥ 1.
    x.grad = None
    rbnn.floored = True
    rbnn.activation(x).sum().backward()
    np.testing.assert_allclose(x.grad, derivative(x.detach().numpy(), max(t, 1.0), 1.0), atol=1e-9)
    z = rbnn.before_sign(w)
    (sigma,) = torch.autograd.grad(rbnn.weight(w).product().sum(), w)
    slope = torch.from_numpy(derivative(z.detach().numpy(), t, k)) * rbnn.scale.detach()[:, None, None, None]
    (expected,) = torch.autograd.grad((z * slope).sum(), w)
    np.testing.assert_allclose(sigma, expected, atol=1e-9)


def test_activations_are_standardised_per_image_also_at_inference() -> None:
    rbnn = method(layer_weight(2, 3, 2, 2)).eval()
    x = layer_weight(4, 3, 5, 5, seed=1) + torch.tensor([0.0, 1, -5, 100], dtype=torch.float64)[:, None, None, None]
    mean = x.numpy().reshape(4, -1).mean(1)[:, None, None, None]
    np.testing.assert_array_equal(rbnn.activation(x), np.where(x.numpy() > mean, 1, -1))
    plain = method(layer_weight(2, 3, 2, 2), standardise=False)
    np.testing.assert_array_equal(plain.activation(x), np.where(x.numpy() > 0, 1, -1))


def test_alpha_starts_at_one_and_is_reported() -> None:
    rbnn = method(layer_weight(4, 8, 3, 3))
    alpha = rbnn.alpha()
    assert alpha is not None
    assert alpha.tolist() == pytest.approx([1.0] * 4)
    assert method(layer_weight(4, 8, 3, 3), beta_start=-pi / 6).measures() == pytest.approx({"alpha": 0.5})
    assert method(layer_weight(4, 8, 3, 3), beta_decay=0.5).decay_factors() == {"beta": 0.5}


# The start of an epoch


def rotations(rbnn: RBNN, w: torch.Tensor, steps: list[float], epochs: int) -> list[float]:
    """The steps at which the rotation changed."""
    changed = []
    for epoch in steps:
        before = rbnn.R1.clone()
        rbnn.begin_epoch(w, epoch, epochs)
        w += 0.01 * torch.randn_like(w)
        if not torch.equal(before, rbnn.R1):
            changed.append(epoch)
    return changed


HALVES = [e / 2 for e in range(8)]


@pytest.mark.parametrize(
    ("until", "steps", "expected"),
    [
        (1.0, [0, 1, 2, 3], [0, 1, 2, 3]),
        (1.0, HALVES, [0, 1, 2, 3]),
        (1.0, [0.25, 0.75, 1.25, 1.5, 3.0], [0.25, 1.25, 3.0]),
        (1.0, [0, 0, 1, 1], [0, 1]),
        (0.5, HALVES, [0, 1]),
        (0.0, HALVES, [0]),
        (0.0, [2, 3], [2]),  # a schedule that starts late still rotates once
        (1.0, [3, 4], [3]),  # the end of the training is not an epoch
    ],
)
def test_when_it_rotates(until: float, steps: list[float], expected: list[float]) -> None:
    w = layer_weight(4, 8, 3, 3)
    assert rotations(method(w, rotate_until=until), w, steps, epochs=4) == expected


@pytest.mark.parametrize("cycles", [1, 4])
def test_cycles_are_counted(cycles: int) -> None:
    w = layer_weight(8, 4, 3, 3)
    many, one = method(w, cycles=cycles, rotate_until=1.0), method(w, cycles=1, rotate_until=1.0)
    one.load_state_dict(many.state_dict(), strict=False)
    many.begin_epoch(w, 0, 100)
    for epoch in range(cycles):
        one.begin_epoch(w, epoch, 100)
    np.testing.assert_allclose(many.R1, one.R1, atol=1e-9)
    np.testing.assert_allclose(many.R2, one.R2, atol=1e-9)


def test_rotation_raises_the_cosine_and_stays_orthogonal() -> None:
    w = layer_weight(16, 16, 3, 3).float()
    rbnn = method(w, rotation="layer")
    cosines = []
    for epoch in range(3):
        rbnn.begin_epoch(w, epoch, 3)
        z = rbnn.before_sign(w).detach().flatten()
        cosines.append(float(z.abs().sum() / z.norm() / sqrt(z.numel())))
    assert cosines == sorted(cosines)
    assert cosines[0] > 0.95
    for r in (rbnn.R1.double(), rbnn.R2.double()):
        assert float((r.T @ r - torch.eye(len(r))).abs().max()) < 1e-5


def test_progress_follows_fractions() -> None:
    w = layer_weight(2, 8, 1, 1)
    rbnn = method(w)
    assert rbnn.progress is None
    rbnn.begin_epoch(w, 2.5, 10)
    assert rbnn.progress == 0.25


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_stops_the_training(value: float) -> None:
    w = layer_weight(2, 8, 3, 3)
    rbnn = method(w)
    w[0, 0, 0, 0] = value
    before = rbnn.R1.clone()
    with pytest.raises(TrainingError, match="not finite"):
        rbnn.begin_epoch(w, 0, 10)
    assert torch.equal(rbnn.R1, before)


def test_a_loaded_method_goes_on_identically() -> None:
    w = layer_weight(4, 8, 3, 3).float()
    first, fresh = method(w), method(w)
    first.begin_epoch(w, 0, 4)
    first.begin_epoch(w, 1.5, 4)
    fresh.load_state_dict(first.state_dict())
    assert fresh.progress == first.progress == 1.5 / 4
    later = w + 0.1 * layer_weight(4, 8, 3, 3, seed=5).float()
    for epoch in (1.75, 2, 3):  # 1.75 must not rotate again
        for rbnn in (first, fresh):
            rbnn.begin_epoch(later, epoch, 4)
        assert torch.equal(first.R1, fresh.R1)
        assert torch.equal(first.weight(later).product(), fresh.weight(later).product())


def test_a_method_that_was_never_stepped_is_so_after_loading() -> None:
    w = layer_weight(4, 8, 3, 3)
    stepped = method(w)
    stepped.begin_epoch(w, 1, 4)
    stepped.load_state_dict(method(w).state_dict())
    assert stepped.progress is None
