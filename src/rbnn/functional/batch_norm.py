"""The end of a branch in training, fused: batch norm, shortcut and hardtanh.

    out = hardtanh(γ (y − mean)/√(var + ε) + β + shortcut),   mean and var of each channel over the batch

Torch reads or writes the whole batch 15 times for it, forward and backward, these kernels 11 times.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rbnn import _core
from rbnn.functional.sign_conv import LANES


def norm_add_hardtanh_possible(y: Tensor, norm: nn.Module, shortcut: Tensor) -> bool:
    """Whether :func:`norm_add_hardtanh` has kernels for these: torch's own batch norm in training, float32 on the CPU,
    channels last and in eights, more than one value per channel."""
    return (
        type(norm) is nn.BatchNorm2d
        and norm.training
        and norm.affine
        and norm.running_mean is not None
        and norm.momentum is not None
        and y.dim() == 4
        and y.shape == shortcut.shape
        and y.shape[1] == norm.num_features
        and y.shape[1] % LANES == 0
        and y.numel() > y.shape[1]
        and norm.weight.dtype == torch.float32
        and all(
            t.device.type == "cpu" and t.dtype == torch.float32 and t.is_contiguous(memory_format=torch.channels_last)
            for t in (y, shortcut)
        )
    )


def norm_add_hardtanh(y: Tensor, norm: nn.BatchNorm2d, shortcut: Tensor) -> Tensor:
    """``hardtanh(norm(y) + shortcut)`` in training; the running statistics of ``norm`` move on.  Ask
    :func:`norm_add_hardtanh_possible` before."""
    out, mean, variance = _NormAddHardtanh.apply(y, norm.weight, norm.bias, shortcut, norm.eps)  # type: ignore[no-untyped-call]
    count = y.numel() // y.shape[1]
    with torch.no_grad():
        assert norm.num_batches_tracked is not None
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        norm.num_batches_tracked.add_(1)
        norm.running_mean.lerp_(mean.float(), norm.momentum)
        norm.running_var.lerp_((variance * (count / (count - 1))).float(), norm.momentum)
    return out  # type: ignore[no-any-return]


def _pixels(x: Tensor) -> Any:
    """(N, C, H, W) as an array (N·H·W, C), without a copy where that is its order in memory."""
    return x.detach().permute(0, 2, 3, 1).contiguous().flatten(0, 2).numpy()


class _NormAddHardtanh(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        threads, out = torch.get_num_threads(), torch.empty_like(y)
        mean, variance = torch.empty(2, y.shape[1], dtype=torch.float64)
        _core.batch_statistics(_pixels(y), mean.numpy(), variance.numpy(), threads)
        inverse_std = (variance + eps).rsqrt()
        scale = weight.detach() * inverse_std
        shift = bias.detach() - mean * scale
        _core.norm_add_hardtanh(
            _pixels(y), scale.float().numpy(), shift.float().numpy(), _pixels(shortcut), _pixels(out), threads
        )
        ctx.save_for_backward(y, weight, out, mean, inverse_std)
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        y, weight, out, mean, inverse_std = ctx.saved_tensors
        threads, count = torch.get_num_threads(), y.numel() // y.shape[1]
        grad_sum, grad_y = torch.empty_like(y), torch.empty_like(y)
        total, product = torch.empty(2, y.shape[1], dtype=torch.float64)
        centre = mean.float().numpy()
        _core.norm_add_hardtanh_backward(
            _pixels(grad), _pixels(out), _pixels(y), centre, _pixels(grad_sum), total.numpy(), product.numpy(), threads
        )
        # With g = grad_sum, s = 1/std:  dy = γ s (g − Σg/n − (y − mean) s² Σ(g (y − mean))/n)
        factor = weight.detach() * inverse_std
        pull, shift = -factor * inverse_std.square() * product / count, -factor * total / count
        _core.norm_backward(
            _pixels(grad_sum), _pixels(y), centre, factor.float().numpy(), pull.float().numpy(), shift.float().numpy(),
            _pixels(grad_y), threads,
        )  # fmt: skip
        return grad_y, (product * inverse_std).float(), total.float(), grad_sum, None
