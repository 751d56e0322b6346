"""XNOR-Net against an independent float64 computation."""

import numpy as np
import pytest
import torch

from rbnn.methods import create_method


@pytest.mark.parametrize("shape", [(3, 4, 3, 3), (5, 7), (2, 1, 1, 1)])
def test_forward_and_exact_gradient(shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    w, g = random.standard_normal((2, *shape))
    w.flat[0] = 0.0
    flat, gradient = w.reshape(len(w), -1), g.reshape(len(w), -1)
    alpha = np.abs(flat).mean(1, keepdims=True)
    signs = np.where(flat > 0, 1.0, -1.0)
    # dα/dw_j = sign(w_j)/n, where |·| has derivative 0 at 0.
    through_alpha = np.sign(flat) / flat.shape[1] * (gradient * signs).sum(1, keepdims=True)
    expected = alpha * gradient * (np.abs(flat) <= 1) + through_alpha

    tensor = torch.from_numpy(w).requires_grad_()
    out = create_method("xnor-net", tensor).weight(tensor)
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
