"""Differentiable binarization: hard sign forward, an estimator backward.

On a CPU the elementwise work of tents runs in fused kernels (``kernels/``), with one pass forward and one backward.
Only the input is saved for backward, which the network keeps anyway.  Other estimators are plain torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rbnn.functional import kernels
from rbnn.functional.estimators import Derivative, Tent, sign
from rbnn.functional.unit_std import over_std

SMALLEST_STD = 1e-5
"""Keeps the gradient of a constant image finite."""


def binarize(x: Tensor, derivative: Derivative) -> Tensor:
    """``sign(x)``, with ``derivative(x)`` as d sign/dx."""
    if isinstance(derivative, Tent):
        return kernels.tent_sign(x, derivative.numbers())  # type: ignore[no-any-return]
    return with_derivative(x, derivative, sign)


def binarize_standardised(x: Tensor, derivative: Derivative) -> Tensor:
    """``sign(x̂)`` with ``x̂ = (x − mean)/std`` per image, with mean and unbiased std over all its values."""
    if isinstance(derivative, Tent) and kernels.fusable(x):
        out, _, _ = kernels.standardised_tent_sign(x, derivative.numbers())
        return out  # type: ignore[no-any-return]
    dims = tuple(range(1, x.dim()))
    centred = x - x.mean(dims, keepdim=True)
    variance = centred.square().sum(dims, keepdim=True) / max(prod(x.shape[1:]) - 1, 1)
    # Clamped before the root: its derivative at 0 is infinite, and infinity times 0 is NaN.
    return binarize(centred / variance.clamp_min(SMALLEST_STD**2).sqrt(), derivative)


@dataclass(frozen=True)
class Binarization:
    """How values become signs: ``sign(x)``, or ``sign(x̂)`` if standardised, with ``derivative`` as d sign/dx.  If
    scaled, it is ``sign(x)`` with the derivative at ``x/σ``."""

    derivative: Derivative
    standardised: bool = False
    scaled: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        if self.scaled:
            x = over_std(x)
        return binarize_standardised(x, self.derivative) if self.standardised else binarize(x, self.derivative)


def straight_through(value: Tensor, soft: Tensor) -> Tensor:
    """``value`` forward, the gradient of ``soft`` backward."""
    return value.detach() + (soft - soft.detach())  # the bracket is exactly 0


def add_hardtanh(a: Tensor, b: Tensor) -> Tensor:
    """``hardtanh(a + b)``, for the sum of a branch and its shortcut."""
    return kernels.add_hardtanh(a, b)  # type: ignore[no-any-return]


class _WithDerivative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, derivative: Derivative, value: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.derivative = derivative
        return value(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return grad * ctx.derivative(x), None, None


def with_derivative(x: Tensor, derivative: Derivative, value: Callable[[Tensor], Tensor]) -> Tensor:
    """``value(x)`` with ``derivative(x)`` as its derivative, for estimators without a kernel."""
    return _WithDerivative.apply(x, derivative, value)  # type: ignore[no-untyped-call, no-any-return]
