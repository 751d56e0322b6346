"""The environment variable RBNN_KERNELS chooses the kernels of training, as it does for a session."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rbnn import _core
from rbnn.errors import ConfigError, UnknownName
from rbnn.functional.batch_norm import norm_add_hardtanh
from rbnn.functional.binarize import Binarization, add_hardtanh, binarize
from rbnn.functional.estimators import Tent
from rbnn.functional.scaled_signs import ScaledSigns
from rbnn.functional.sign_conv import sign_conv2d

SUPPORTED = [name for name, supported in _core.kernels() if supported]


def pictures(*shape: int) -> Tensor:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last).requires_grad_()


def convolution() -> tuple[Tensor, list[Tensor]]:
    x, signs = pictures(3, 16, 9, 7), torch.randn(8, 16, 3, 3).sign().requires_grad_()
    binarization = Binarization(Tent(2.0, 1.0, 2.0), standardised=True)
    return sign_conv2d(x, ScaledSigns(signs, torch.rand(8)), binarization, (1, 1), (1, 1)), [x, signs]


def signs() -> tuple[Tensor, list[Tensor]]:
    x = pictures(3, 16, 9, 7)
    return binarize(x, Tent(1.0, 0.0, 1.0)), [x]


def join() -> tuple[Tensor, list[Tensor]]:
    a, b = pictures(3, 16, 9, 7), pictures(3, 16, 9, 7)
    return add_hardtanh(a, b), [a, b]


def norm() -> tuple[Tensor, list[Tensor]]:
    y, shortcut = pictures(3, 16, 9, 7), pictures(3, 16, 9, 7)
    return norm_add_hardtanh(y, nn.BatchNorm2d(16), shortcut), [y, shortcut]


WORK = [convolution, signs, join, norm]


def values_and_gradients(work: Callable[[], tuple[Tensor, list[Tensor]]]) -> list[Tensor]:
    torch.manual_seed(0)
    y, inputs = work()
    return [y.detach(), *torch.autograd.grad(y, inputs, torch.randn_like(y))]


@pytest.mark.parametrize("work", WORK)
def test_the_environment_is_asked_forward_and_backward(
    work: Callable[[], tuple[Tensor, list[Tensor]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    y, inputs = work()
    monkeypatch.setenv("RBNN_KERNELS", "avx3")
    with pytest.raises(UnknownName, match=r"unknown kernels 'avx3': did you mean '\w+'\? available: .*portable"):
        work()
    with pytest.raises(UnknownName, match="unknown kernels 'avx3'"):
        torch.autograd.grad(y, inputs, torch.randn_like(y))


@pytest.mark.parametrize("kernels", [name for name, supported in _core.kernels() if not supported])
def test_kernels_that_this_machine_lacks(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBNN_KERNELS", kernels)
    usable = ", ".join(SUPPORTED)
    with pytest.raises(ConfigError, match=f"this machine cannot run the kernels '{kernels}': it can run {usable}$"):
        convolution()


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("kernels", SUPPORTED)
def test_all_kernels_train_alike(
    work: Callable[[], tuple[Tensor, list[Tensor]]], kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = values_and_gradients(work)
    monkeypatch.setenv("RBNN_KERNELS", kernels)
    for found, best in zip(values_and_gradients(work), wanted, strict=True):
        torch.testing.assert_close(found, best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernels", SUPPORTED)
def test_a_scale_that_is_no_number_is_seen(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBNN_KERNELS", kernels)
    scale = torch.tensor([1.0, float("nan"), -2.0, float("inf"), 0.0, 1.0, 1.0, 1.0])
    signs = ScaledSigns(torch.randn(8, 16, 3, 3).sign(), scale)
    x = torch.randn(3, 16, 9, 7)
    found = sign_conv2d(x, signs, Binarization(Tent(1.0, 0.0, 1.0), standardised=False), (1, 1), (1, 1))
    wanted = nn.functional.conv2d(torch.where(x > 0, 1.0, -1.0), signs.signs, padding=1) * scale.view(8, 1, 1)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
