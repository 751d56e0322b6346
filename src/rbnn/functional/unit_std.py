"""Values divided by the standard deviation of their image, not centred.  Signs do not change; gradients of sign use z.

    z = x/σ,   σ = √(var + 1e-5),   var of all values of an image, unbiased
    dL/dx_j = dL/dz_j / σ − (x_j − mean)/((n − 1) σ³) · Σ_i dL/dz_i x_i

sign(z) equals sign(x), so inference needs no statistics of the image.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

EPSILON = 1e-5


def over_std(x: Tensor) -> Tensor:
    """``x/σ`` of each image."""
    return _OverStd.apply(x)  # type: ignore[no-untyped-call, no-any-return]


def _rows(x: Tensor) -> Tensor:
    """(images, values), in memory order if that needs no copy."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return (x.permute(0, 2, 3, 1) if last else x).flatten(1)


def _spread(numbers: Tensor, x: Tensor) -> Tensor:
    return numbers.view(-1, *[1] * (x.dim() - 1))


class _OverStd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rows = _rows(x)
        variance, mean = torch.var_mean(rows, dim=1, correction=1 if rows.shape[1] > 1 else 0)
        inverse_std = (variance + EPSILON).rsqrt()
        ctx.save_for_backward(x, mean, inverse_std)
        return x * _spread(inverse_std, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        x, mean, inverse_std = ctx.saved_tensors
        if grad.stride() != x.stride():
            grad = torch.empty_like(x).copy_(grad)
        rows = _rows(x)
        along = (_rows(grad) * rows).sum(1) * inverse_std**3 / max(rows.shape[1] - 1, 1)
        return torch.addcmul(grad * _spread(inverse_std, x), x - _spread(mean, x), _spread(along, x), value=-1)
