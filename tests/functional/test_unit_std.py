"""x/σ of each image against torch's autograd in float64, and in a layer that computes with bits."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from rbnn.functional import Binarization, ScaledSigns, estimator, over_std, sign_conv2d, sign_conv_possible


def plain(x: Tensor) -> Tensor:
    flat = x.flatten(1)
    variance = flat.var(1) if flat.shape[1] > 1 else torch.zeros(len(x))
    return x / (variance + 1e-5).sqrt().view(-1, *[1] * (x.dim() - 1))


@pytest.mark.parametrize("shape", [(3, 8, 5, 4), (2, 7), (4, 1), (2, 3, 6)])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_values_and_gradients(shape: tuple[int, ...], last: bool, offset: float) -> None:
    if last and len(shape) != 4:
        pytest.skip("only pictures have an order of channels")
    order = torch.channels_last if last else torch.contiguous_format
    x, grad = torch.randn(shape) * 2 + offset, torch.randn(shape)
    mine = x.clone(memory_format=order).requires_grad_()
    exact = x.double().requires_grad_()
    out = over_std(mine)
    assert out.stride() == mine.stride()
    torch.testing.assert_close(out.double(), plain(exact), rtol=1e-5, atol=1e-6)
    (found,) = torch.autograd.grad(out, mine, grad)
    (expected,) = torch.autograd.grad(plain(exact), exact, grad.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(out.sign(), x.sign())


def test_a_constant_image_has_a_finite_gradient() -> None:
    x = torch.zeros(1, 4, 3, 3, requires_grad=True)
    (found,) = torch.autograd.grad(over_std(x), x, torch.ones(1, 4, 3, 3))
    assert found.isfinite().all()


def test_on_bits_as_in_plain_torch() -> None:
    derivative = estimator("training-aware", 1.3, 1.0)
    scaled = Binarization(derivative, scaled=True)
    x = (torch.randn(3, 16, 9, 9) * 4).to(memory_format=torch.channels_last).requires_grad_()
    signs, scale = torch.randn(8, 16, 3, 3).sign(), torch.rand(8)
    w = (signs * scale[:, None, None, None]).requires_grad_()
    filters = ScaledSigns(signs, scale, soft=w)  # the gradient of the weight itself
    assert sign_conv_possible(x, filters.signs, scaled, (1, 1))
    y = sign_conv2d(x, filters, scaled, (1, 1), (1, 1))
    grad = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, w), grad)
    exact, weight = x.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    z = plain(exact)
    signs = (torch.where(z > 0, 1.0, -1.0) + (z - z.detach()) * derivative(z.detach())).double()
    expected = torch.autograd.grad(F.conv2d(signs, weight, padding=1), (exact, weight), grad.double())
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3)
