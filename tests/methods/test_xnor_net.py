"""XNOR-Net against an independent float64 computation."""

from typing import Any

import numpy as np
import pytest
import torch
from formulas import SHAPES, assert_weight, filter_means, made, numbers, signs

from rbnn.methods import create_method
from rbnn.nn import BinaryConv2d, BinaryLinear


@pytest.mark.parametrize("gradient_of", ["exact", "sgd"])
@pytest.mark.parametrize("shape", [(3, 4, 3, 3), (5, 7), (2, 1, 1, 1)])
def test_forward_and_exact_gradient(shape: tuple[int, ...], gradient_of: str) -> None:
    random = np.random.default_rng(0)
    w, g = random.standard_normal((2, *shape))
    w.flat[0] = 0.0
    flat, gradient = w.reshape(len(w), -1), g.reshape(len(w), -1)
    alpha = np.abs(flat).mean(1, keepdims=True)
    signs = np.where(flat > 0, 1.0, -1.0)
    # dα/dw_j = sign(w_j)/n, with derivative 0 of |·| at 0.
    through_alpha = np.sign(flat) / flat.shape[1] * (gradient * signs).sum(1, keepdims=True)
    expected = alpha * gradient * (np.abs(flat) <= 1) + through_alpha
    if gradient_of == "sgd":
        expected *= flat.shape[1] * {4: 3 / 4, 7: 6 / 7, 1: 1}[shape[1]]

    tensor = torch.from_numpy(w).requires_grad_()
    out = create_method("xnor-net", tensor, gradient=gradient_of).weight(tensor).product()
    out.backward(torch.from_numpy(g))
    np.testing.assert_allclose(out.detach(), (alpha * signs).reshape(shape))
    np.testing.assert_allclose(tensor.grad, expected.reshape(shape), atol=1e-12)


def test_activation_is_the_sign_with_a_straight_through_gradient() -> None:
    method = create_method("xnor-net", torch.zeros(1, 8, 1, 1))
    x = torch.tensor([[-2.0, -1, -0.5, 0, 0.5, 1, 1.5]], requires_grad=True)
    out = method.activation(x)
    out.sum().backward()
    assert out.tolist() == [[-1, -1, -1, -1, 1, 1, 1]]
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 1, 1, 1, 1, 1, 0]]


@pytest.mark.parametrize("shape", [(3, 4, 3, 3), (3, 5)])
def test_after_a_step_weights_are_centred_over_the_input_channels_and_clamped(shape: tuple[int, ...]) -> None:
    before = np.random.default_rng(0).standard_normal(shape) * 2 + 0.5
    expected = np.empty_like(before)
    for o in range(shape[0]):
        for position in np.ndindex(*shape[2:]):
            column = before[(o, slice(None), *position)]
            expected[(o, slice(None), *position)] = np.clip(column - column.mean(), -1, 1)
    w = torch.nn.Parameter(torch.from_numpy(before.copy()))
    create_method("xnor-net", w).after_step(w)
    np.testing.assert_allclose(w.detach(), expected, atol=1e-12)


def test_one_input_channel_is_clamped_alone() -> None:
    w = torch.tensor([0.5, -3.0]).reshape(2, 1, 1, 1)
    create_method("xnor-net", w).after_step(w)
    assert w.flatten().tolist() == [0.5, -1.0]


def test_a_rotation_free_method_leaves_weights_alone_at_the_start_of_an_epoch() -> None:
    w = torch.randn(2, 8, 3, 3)
    before = w.clone()
    method = create_method("xnor-net", w)
    method.begin_epoch(w, 1, 4)
    assert torch.equal(w, before)
    assert method.progress == 0.25


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_papers_gradient(shape: tuple[int, ...]) -> None:
    w, g = numbers(*shape), numbers(*shape, seed=1)
    alpha = filter_means(w)
    gradient = g * (1 / w[0].size + alpha * (np.abs(w) <= 1))
    assert_weight(made("xnor-net", w, gradient="paper"), w, alpha * signs(w), gradient, g)
    # With SGD the authors' code multiplies it by n and by what centring leaves of it; that is the default.
    factor = w[0].size * (1 - 1 / w.shape[1] if w.shape[1] > 1 else 1)
    assert_weight(made("xnor-net", w), w, alpha * signs(w), factor * gradient, g)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 1, 1, 1), (2, (0, 2), 1, 1), (1, 2, 2, 3), ((3, 1), 1, 1, 2)]
)
@pytest.mark.parametrize("bias", [False, True])
def test_the_k_map(stride: Any, padding: Any, dilation: Any, groups: int, bias: bool) -> None:
    """K by loops: mean|x| over the taps of the kernel; taps outside the image count as 0."""
    shape: tuple[Any, ...] = (12, 6, (3, 2), stride, padding, dilation, groups, bias)
    plain = BinaryConv2d(*shape, method="xnor-net", dtype=torch.float64).eval()
    mapped = BinaryConv2d(*shape, method="xnor-net", options={"k_map": True}, dtype=torch.float64).eval()
    mapped.load_state_dict(plain.state_dict(), strict=False)
    x = torch.from_numpy(numbers(2, 12, 7, 6))
    offset = np.zeros(6) if plain.bias is None else plain.bias.detach().numpy()
    binary = plain(x).detach().numpy() - offset[:, None, None]
    (sy, sx), (py, px), (dy, dx) = plain.stride, plain.padding, plain.dilation
    k, channels = np.zeros(binary.shape), 12 // groups
    for n, o, i, j in np.ndindex(*k.shape):
        first = o // (6 // groups) * channels
        for c, p, q in np.ndindex(channels, 3, 2):
            row, column = i * sy - int(py) + p * dy, j * sx - int(px) + q * dx
            if 0 <= row < 7 and 0 <= column < 6:
                k[n, o, i, j] += abs(float(x[n, first + c, row, column])) / (channels * 6)
    np.testing.assert_allclose(mapped(x).detach(), k * binary + offset[:, None, None], atol=1e-12)


def test_no_gradient_flows_through_k() -> None:
    layer = BinaryConv2d(3, 2, 1, bias=False, method="xnor-net", options={"k_map": True}, dtype=torch.float64)
    layer.method.progress = 0.0
    x = torch.tensor([0.5, -3.0, 0.25], dtype=torch.float64).reshape(1, 3, 1, 1).requires_grad_()
    layer(x).sum().backward()
    w = layer.weight.detach().flatten(1).numpy()
    through = (np.abs(w).mean(1, keepdims=True) * signs(w)).sum(0) * (0.5 + 3 + 0.25) / 3
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.flatten(), through * [1, 0, 1])


def test_the_k_map_of_a_linear_layer_is_the_mean_magnitude_of_its_input() -> None:
    layer = BinaryLinear(9, 5, False, method="xnor-net", options={"k_map": True}, dtype=torch.float64).eval()
    x, w = numbers(4, 9), layer.weight.detach().numpy()
    expected = signs(x) @ (signs(w) * np.abs(w).mean(1, keepdims=True)).T * np.abs(x).mean(1, keepdims=True)
    np.testing.assert_allclose(layer(torch.from_numpy(x)).detach(), expected)
