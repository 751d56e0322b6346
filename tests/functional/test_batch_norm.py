"""The fused batch norm, shortcut and hardtanh against torch in float64."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rbnn.functional import norm_add_hardtanh, norm_add_hardtanh_possible

LAST = torch.channels_last


def pictures(shape: tuple[int, ...], seed: int, scale: float = 1.0, offset: float = 0.0) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale + offset
    return x.to(memory_format=LAST)


def some_norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    random = torch.Generator().manual_seed(1)
    for values in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        values.data.copy_(torch.rand(channels, generator=random) + 0.1)
    return norm


def with_gradients(out: Tensor, *inputs: Tensor) -> list[Tensor]:
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(out)
    return [out.detach(), *torch.autograd.grad(out, inputs, grad)]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9), st.sampled_from([8, 16, 24, 64]), st.integers(1, 13), st.integers(2, 13),
    st.floats(-30, 30), st.floats(0.01, 30),
)  # fmt: skip
def test_values_gradients_and_running_statistics(
    images: int, channels: int, height: int, width: int, offset: float, scale: float
) -> None:
    shape = (images, channels, height, width)
    y, shortcut = pictures(shape, 2, scale, offset).requires_grad_(), pictures(shape, 3).requires_grad_()
    norm = some_norm(channels)
    exact = copy.deepcopy(norm).double()
    assert norm_add_hardtanh_possible(y, norm, shortcut)
    out = norm_add_hardtanh(y, norm, shortcut)
    y64, shortcut64 = (t.detach().double().requires_grad_() for t in (y, shortcut))
    wanted = F.hardtanh(exact(y64) + shortcut64)
    # If rounding decides on which side of the clamp a value lies, the gradients may differ.
    clear = ((wanted.abs() == 1) == (out.abs() == 1)).all()
    found = with_gradients(out, y, shortcut, norm.weight, norm.bias)
    exactly = with_gradients(wanted, y64, shortcut64, exact.weight, exact.bias)
    for name, a, b in zip(("out", "y", "shortcut", "gamma", "beta"), found, exactly, strict=True):
        if name == "out" or clear:
            close = 1e-4 * float(b.abs().max()) + 1e-6
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=close, msg=name)
    for (name, a), b in zip(norm.named_buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=1e-5, msg=name)


def test_the_number_of_threads_changes_no_bit() -> None:
    shape = (5, 16, 40, 31)
    y, shortcut, before, found = pictures(shape, 2), pictures(shape, 3), torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            norm, given_ = some_norm(16), [t.clone(memory_format=LAST).requires_grad_() for t in (y, shortcut)]
            out = norm_add_hardtanh(given_[0], norm, given_[1])
            found.append([*with_gradients(out, *given_, norm.weight, norm.bias), *norm.buffers()])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_seen(value: float) -> None:
    y, shortcut = pictures((2, 8, 3, 3), 2), pictures((2, 8, 3, 3), 3)
    y[1, 4, 2, 2] = value
    assert norm_add_hardtanh(y, some_norm(8), shortcut)[:, 4].isnan().all()


def test_what_it_leaves_to_torch() -> None:
    y, norm = pictures((2, 8, 3, 3), 2), some_norm(8)
    assert norm_add_hardtanh_possible(y, norm, y)
    assert not norm_add_hardtanh_possible(y, some_norm(8).eval(), y)
    assert not norm_add_hardtanh_possible(y, nn.BatchNorm2d(8, affine=False), y)
    assert not norm_add_hardtanh_possible(y, nn.BatchNorm2d(8, momentum=None), y)
    assert not norm_add_hardtanh_possible(y, nn.BatchNorm2d(8, track_running_stats=False), y)
    assert not norm_add_hardtanh_possible(y, nn.InstanceNorm2d(8, affine=True), y)
    assert not norm_add_hardtanh_possible(y.contiguous(), norm, y)
    assert not norm_add_hardtanh_possible(y.double(), norm, y.double())
    assert not norm_add_hardtanh_possible(y[:, :7], some_norm(7), y[:, :7])
    assert not norm_add_hardtanh_possible(y[:1, :, :1, :1], norm, y[:1, :, :1, :1])
    assert not norm_add_hardtanh_possible(y, norm, y[:1])
