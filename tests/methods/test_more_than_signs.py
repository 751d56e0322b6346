"""Methods whose values are not just signs times a scale, against their formulas: DoReFa, ABC-Net, DSQ."""

from math import log

import numpy as np
import pytest
import torch
from formulas import SHAPES, assert_weight, forward_and_gradient, made, numbers, signs, slope
from scipy.linalg import lstsq  # type: ignore[import-untyped]

from rbnn.nn import BinaryConv2d, BinaryLinear

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


# DoReFa


@shapes
def test_dorefa_weights(shape: tuple[int, ...]) -> None:
    w, g = numbers(*shape), numbers(*shape, seed=1)
    value = np.abs(w).mean() * signs(w)
    assert_weight(made("dorefa", w), w, value, g, g)  # E cancels: g itself, not clipped
    assert_weight(made("dorefa", w, weight_estimator="ste"), w, value, g * (np.abs(w) <= 1), g)


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_dorefa_activations(bits: int) -> None:
    steps = 2**bits - 1
    ties = np.array([(2 * i - 1) / (2 * steps) for i in range(1, steps + 1)])
    x = np.concatenate([np.linspace(-1.5, 1.5, 77), [0.0, 1.0], ties, np.nextafter(ties, 2)])
    level = np.array([sum(value > tie for tie in ties) for value in x])
    g = numbers(len(x), seed=1)
    found, gradient = forward_and_gradient(made("dorefa", numbers(2, 8), activation_bits=bits).activation, x, g)
    np.testing.assert_array_equal(found, level / steps)
    np.testing.assert_array_equal(gradient, g * ((x >= 0) & (x <= 1)))
    away = np.abs(x[:, None] - ties).min(1) > 1e-9
    np.testing.assert_array_equal(found[away], np.round(np.clip(x, 0, 1) * steps)[away] / steps)


def test_one_bit_is_zero_or_one_with_threshold_a_half() -> None:
    found = made("dorefa", numbers(2, 8)).activation(torch.tensor([-1, 0, 0.5, 0.5001, 3]))
    assert found.tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_dorefa_gradient_bits(bits: int) -> None:
    steps = 2**bits - 1
    dorefa = made("dorefa", numbers(2, 8), gradient_bits=bits)
    g = numbers(3, 4, 5, 2, scale=1e-3)
    g[1] *= 50  # each image has its own range
    g[2] = 0
    many = []
    for _ in range(300):
        y = torch.zeros(g.shape, dtype=torch.float64, requires_grad=True)
        out = dorefa.output(y, y)
        assert torch.equal(out, y)
        out.backward(torch.from_numpy(g))
        assert y.grad is not None
        many.append(y.grad.numpy())
    for picture in (0, 1):
        largest = np.abs(g[picture]).max()
        levels = (np.array(many)[:, picture] / (2 * largest) + 0.5) * steps
        np.testing.assert_allclose(levels, np.round(levels), atol=1e-9)
        assert levels.min() >= -1e-9
        assert levels.max() <= steps + 1e-9
        # Unbiased, to four standard errors; the noise is one step wide.  At the ends it is clipped on one side.
        inner = np.abs(g[picture]) < largest * (1 - 1 / steps) if steps > 1 else np.zeros(g[picture].shape, bool)
        error = np.abs(np.mean(many, 0)[picture] - g[picture])[inner]
        assert (error < 4 * 2 * largest / steps / 2 / np.sqrt(300)).all()
        assert len(np.unique(np.round(levels))) > steps // 2
    assert not np.any(np.array(many)[:, 2])


def test_gradients_stay_as_they_are_by_default() -> None:
    y = torch.zeros(2, 3)
    assert made("dorefa", numbers(2, 8)).output(y, y) is y


# ABC-Net


@shapes
@pytest.mark.parametrize("bases", [1, 2, 3, 5])
def test_abc_net_weights(shape: tuple[int, ...], bases: int) -> None:
    w, g = numbers(*shape) + 0.2, numbers(*shape, seed=1)
    shifts = [0.0] if bases == 1 else [-1 + 2 * i / (bases - 1) for i in range(bases)]
    planes = [signs(w - w.mean() + u * w.std()) for u in shifts]
    found, gradient = forward_and_gradient(made("abc-net", w, weight_bases=bases).weight, w, g)
    alpha = lstsq(np.stack([p.ravel() for p in planes], 1), w.ravel())[0]
    np.testing.assert_allclose(found, sum(a * p for a, p in zip(alpha, planes, strict=True)), atol=1e-5)
    np.testing.assert_allclose(gradient, g * alpha.sum(), atol=1e-5)


def test_abc_nets_factors_fit_the_weight_better_with_more_bases() -> None:
    w = numbers(4, 6, 3, 3)
    errors = [
        float((made("abc-net", w, weight_bases=m).weight(torch.from_numpy(w)) - torch.from_numpy(w)).square().sum())
        for m in (1, 3, 5)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[2] < 0.2 * errors[0]


@pytest.mark.parametrize("bases", [1, 2, 3])
def test_abc_net_activations(bases: int) -> None:
    net = made("abc-net", numbers(2, 8), activation_bases=bases)
    thresholds = np.arange(1, bases + 1) / (bases + 1)
    np.testing.assert_allclose(0.5 - net.shift.detach(), thresholds)
    np.testing.assert_allclose(net.factor.detach(), 1 / bases)
    net.factor.data = torch.from_numpy(np.linspace(0.4, 1.7, bases))
    v, beta = net.shift.detach().numpy(), net.factor.detach().numpy()
    x, g = numbers(2, 3, 5, 4), numbers(2, 3, 5, 4, seed=1)
    planes = [signs(np.clip(x + v_j, 0, 1) - 0.5) for v_j in v]
    inside = [(x + v_j >= 0) & (x + v_j <= 1) for v_j in v]
    found, gradient = forward_and_gradient(net.activation, x, g)
    np.testing.assert_allclose(found, sum(b * a for b, a in zip(beta, planes, strict=True)), atol=1e-12)
    np.testing.assert_allclose(gradient, sum(b * g * i for b, i in zip(beta, inside, strict=True)), atol=1e-12)
    np.testing.assert_allclose(net.factor.grad, [(g * a).sum() for a in planes])
    np.testing.assert_allclose(net.shift.grad, [b * (g * i).sum() for b, i in zip(beta, inside, strict=True)])


def test_abc_net_is_the_sum_of_its_m_n_binary_convolutions() -> None:
    options = {"weight_bases": 3, "activation_bases": 2}
    layer = BinaryConv2d(4, 3, 3, padding=1, bias=False, method="abc-net", options=options, dtype=torch.float64).eval()
    x, w = torch.from_numpy(numbers(2, 4, 5, 5)), layer.weight.detach()
    alpha = layer.method.weight_factors(w)  # type: ignore[operator]
    total = torch.zeros(2, 3, 5, 5, dtype=torch.float64)
    for a, u in zip(alpha, (-1, 0, 1), strict=True):
        for threshold in (1 / 3, 2 / 3):
            plane = torch.from_numpy(signs((w - w.mean() + u * w.std(correction=0)).numpy()))
            bits = torch.from_numpy(signs(x.numpy() - threshold))
            total += a / 2 * torch.nn.functional.conv2d(bits, plane, padding=1)
    torch.testing.assert_close(layer(x).detach(), total)


def test_another_estimator_is_taken_around_the_threshold() -> None:
    net = made("abc-net", numbers(2, 8), 0.5, estimator="ede", weight_estimator="ppf")
    x = numbers(40)
    _, gradient = forward_and_gradient(net.activation, x, np.ones(40))
    np.testing.assert_allclose(gradient, slope("ede", 2 * x - 1, 0.5), atol=1e-12)


# DSQ


def soft_step(x: torch.Tensor, c: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """The general form for the interval [l, u]: l + Δ(φ + 1)/2, φ = s tanh(k(x − m))."""
    low, high = -c, c
    delta, middle = high - low, (low + high) / 2
    k = torch.log(2 / alpha - 1) / delta
    s = 1 / torch.tanh(k * delta / 2)
    clipped = torch.where(x < low, low, torch.where(x > high, high, x))
    return low + delta * (s * torch.tanh(k * (clipped - middle)) + 1) / 2


@pytest.mark.parametrize("shape", [*SHAPES, (2, 3, 5, 4)], ids=str)
@pytest.mark.parametrize("part", ["of_weight", "of_activation"])
def test_dsq(shape: tuple[int, ...], part: str) -> None:
    x, g = numbers(*shape), numbers(*shape, seed=1)
    dsq = made("dsq", x)
    soft = getattr(dsq, part)
    assert float(soft.limit.detach()) == pytest.approx(np.abs(x).mean() if part == "of_weight" else 1.0)
    assert float(soft.alpha.detach()) == 0.2
    soft.alpha.data.fill_(0.13)
    soft.limit.data.fill_(0.8)
    found, gradient = forward_and_gradient(lambda x: soft(x).product(), x, g)
    np.testing.assert_array_equal(found, 0.8 * signs(x))
    c, alpha, v = (torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (0.8, 0.13, x))
    soft_step(v, c, alpha).backward(torch.from_numpy(g))
    np.testing.assert_allclose(gradient, v.grad, atol=1e-12)
    np.testing.assert_allclose(soft.limit.grad, c.grad, atol=1e-10)
    np.testing.assert_allclose(soft.alpha.grad, alpha.grad, atol=1e-10)


def test_dsqs_slope_by_hand() -> None:
    """For c = 1, α = 0.2: k = ln(9)/2 = 1.0986, s = 1.25, slope k·s = 1.373 at 0 and k·s·(1 − 0.8²) = 0.494 at ±1."""
    x = np.array([0.0, 1.0, -1.0, 1.001, -5.0])
    _, gradient = forward_and_gradient(made("dsq", numbers(2, 8)).activation, x, np.ones(5))
    k = log(9) / 2
    np.testing.assert_allclose(gradient[[0, 3, 4]], [1.25 * k, 0, 0])
    np.testing.assert_allclose(np.abs(gradient[[1, 2]]), 1.25 * k * 0.36)


def test_dsq_confines_what_it_learns() -> None:
    dsq = made("dsq", numbers(2, 8))
    with torch.no_grad():
        for part, alpha, limit in ((dsq.of_weight, 1.7, -3.0), (dsq.of_activation, -0.2, 2.0)):
            part.alpha.fill_(alpha)
            part.limit.fill_(limit)
    dsq.after_step(torch.zeros(2, 8))
    assert [p.item() for p in dsq.of_weight.parameters()] == [1e-4, 0.5]
    assert [p.item() for p in dsq.of_activation.parameters()] == [2.0, 1e-3]


def test_dsq_reads_files_in_which_its_ranges_are_scalars() -> None:
    layer = BinaryLinear(8, 4, method="dsq")
    state = {name: t.reshape(()) if name.endswith(("limit", "alpha")) else t for name, t in layer.state_dict().items()}
    state["method.of_weight.limit"] = torch.tensor(0.75)
    layer.load_state_dict(state)
    assert layer.method.of_weight.limit.tolist() == [0.75]
