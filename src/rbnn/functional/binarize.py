"""Differentiable binarization: hard sign forward, an estimator backward.

On a CPU the elementwise work runs in the fused kernels of ``rbnn._core`` on the tensors' own memory: one pass forward,
one backward, and nothing is kept for backward but the input, which the network keeps anyway.  Elsewhere, and for
estimators that are not tents, plain torch computes the same values.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from rbnn import _core
from rbnn.functional.estimators import Derivative, Tent, sign
from rbnn.functional.unit_std import over_std

SMALLEST_STD = 1e-5
"""A constant image has no scale: its gradient stays finite."""


def binarize(x: Tensor, derivative: Derivative) -> Tensor:
    """``sign(x)``, with ``derivative(x)`` for d sign/dx."""
    return _Sign.apply(x, derivative)  # type: ignore[no-untyped-call, no-any-return]


def binarize_standardised(x: Tensor, derivative: Derivative) -> Tensor:
    """``sign(x̂)`` with ``x̂ = (x − mean)/std`` per image, mean and unbiased std over all of its values."""
    if isinstance(derivative, Tent) and _fusable(x):
        return _StandardisedSign.apply(x, derivative)  # type: ignore[no-untyped-call, no-any-return]
    dims = tuple(range(1, x.dim()))
    centred = x - x.mean(dims, keepdim=True)
    variance = centred.square().sum(dims, keepdim=True) / max(prod(x.shape[1:]) - 1, 1)
    # Clamped before the root: its derivative at 0 is infinite, and infinity times 0 is NaN.
    return binarize(centred / variance.clamp_min(SMALLEST_STD**2).sqrt(), derivative)


@dataclass(frozen=True)
class Binarization:
    """How values become signs: ``sign(x)`` or, standardised, ``sign(x̂)``, with ``derivative`` for d sign/dx.  Scaled:
    ``sign(x)`` too, but the derivative is taken at ``x/σ``."""

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


def add_hardtanh(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """``hardtanh(a + b)``: where a shortcut meets its branch.  ``inplace`` writes it over ``a``, which spares a tensor
    where nobody else needs the branch."""
    return _AddHardtanh.apply(a, b, inplace)  # type: ignore[no-untyped-call, no-any-return]


def _fusable(*tensors: Tensor) -> bool:
    """Float32 on the CPU, at least one dimension beside the batch, dense, all in one memory order."""
    first = tensors[0]
    return all(
        t.device.type == "cpu"
        and t.dtype == torch.float32
        and t.dim() > 1
        and t.shape == first.shape
        and t.stride() == first.stride()
        and (t.is_contiguous() or (t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)))
        for t in tensors
    )


def _rows(x: Tensor) -> NDArray[np.float32]:
    """The memory of a dense tensor as (images, values), in the order in which it lies there."""
    x = x.detach()
    return (x if x.is_contiguous() else x.permute(0, 2, 3, 1)).flatten(1).numpy()


def _read(x: Tensor) -> Any:
    """The same for a tensor that may be a parameter, to be read alone.  It is handed over by DLPack: after ``.numpy()``
    torch could not resize its memory any more, as FSDP does between its uses."""
    x = x.detach()
    return (x if x.is_contiguous() else x.permute(0, 2, 3, 1)).flatten(1)


def _like(grad: Tensor, x: Tensor) -> Tensor:
    """``grad`` in the memory order of ``x``."""
    return grad if grad.stride() == x.stride() else torch.empty_like(x).copy_(grad)


class _Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, derivative: Derivative) -> Tensor:
        ctx.save_for_backward(x)
        ctx.derivative = derivative
        if not _fusable(x):
            return sign(x)
        out = torch.empty_like(x)
        _core.sign_forward(_read(x), _rows(out), torch.get_num_threads())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        tent = ctx.derivative
        if not (isinstance(tent, Tent) and _fusable(x)):
            return grad * tent(x), None
        grad_x = torch.empty_like(x)
        _core.sign_backward(
            _rows(_like(grad, x)), _read(x), _rows(grad_x),
            tent.peak, tent.slope, tent.support, torch.get_num_threads(),
        )  # fmt: skip
        return grad_x, None


class _StandardisedSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, tent: Tent) -> Tensor:
        out, mean, inverse_std = torch.empty_like(x), x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
        _core.standardised_sign_forward(
            _rows(x), _rows(out), mean.numpy(), inverse_std.numpy(), torch.get_num_threads()
        )
        ctx.save_for_backward(x, mean, inverse_std)
        ctx.tent = tent
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        x, mean, inverse_std = ctx.saved_tensors
        tent, grad_x = ctx.tent, torch.empty_like(x)
        _core.standardised_sign_backward(
            _rows(_like(grad, x)), _rows(x), mean.numpy(), inverse_std.numpy(), _rows(grad_x),
            tent.peak, tent.slope, tent.support, torch.get_num_threads(),
        )  # fmt: skip
        return grad_x, None


class _AddHardtanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, inplace: bool) -> Tensor:
        if inplace:
            ctx.mark_dirty(a)
        if _fusable(a, b):
            out = a if inplace else torch.empty_like(a)
            _core.add_hardtanh_forward(_rows(a), _rows(b), _rows(out), torch.get_num_threads())
        else:
            out = a.add_(b).clamp_(-1, 1) if inplace else torch.nn.functional.hardtanh(a + b)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        (out,) = ctx.saved_tensors
        if not _fusable(out):
            grad = grad * (out.abs() < 1)
            return grad, grad, None
        grad_in = torch.empty_like(out)
        _core.add_hardtanh_backward(_rows(_like(grad, out)), _rows(out), _rows(grad_in), torch.get_num_threads())
        return grad_in, grad_in, None
