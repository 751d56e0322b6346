"""The end of a branch in training, fused: batch norm, shortcut and hardtanh.

    out = hardtanh(γ (y − mean)/√(var + ε) + β + shortcut),   mean and var of each channel over the batch

Torch reads or writes the whole batch 15 times for it, forward and backward, these kernels 11 times.
"""

import torch
from torch import Tensor, nn

from rbnn.functional import kernels
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
    out, mean, variance, _ = kernels.norm_add_hardtanh(y, norm.weight, norm.bias, shortcut, norm.eps)
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
