"""The fused end of a branch in training: batch norm, shortcut and hardtanh.

    out = hardtanh(γ (y − mean)/√(var + ε) + β + shortcut),   mean and var of each channel over the batch

torch reads or writes the whole batch 15 times for this, forward and backward; these kernels do so 11 times.
"""

import torch
from torch import Tensor, nn

from rbnn.functional import kernels
from rbnn.functional.sign_conv import LANES

BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d | nn.SyncBatchNorm


def norm_possible(norm: nn.Module, *tensors: Tensor) -> bool:
    """Whether the kernels can replace ``norm`` for tensors of this shape.  They need torch's own batch norm with
    running statistics, float32 on the CPU, channels last, a multiple of eight channels, and more than one value per
    channel in training."""
    first = tensors[0]
    return (
        type(norm) is nn.BatchNorm2d
        and norm.affine
        and norm.running_mean is not None
        and norm.momentum is not None
        and first.dim() == 4
        and first.shape[1] == norm.num_features
        and first.shape[1] % LANES == 0
        and (first.numel() > first.shape[1] or not norm.training)
        and norm.weight.dtype == torch.float32
        and all(t.shape == first.shape and kernels.channels_last(t) for t in tensors)
    )


def norm_add_hardtanh_possible(y: Tensor, norm: nn.Module, shortcut: Tensor) -> bool:
    """Whether :func:`norm_add_hardtanh` has kernels for these."""
    return norm.training and norm_possible(norm, y, shortcut)


def norm_add_hardtanh(y: Tensor, norm: nn.BatchNorm2d, shortcut: Tensor) -> Tensor:
    """``hardtanh(norm(y) + shortcut)`` in training.  Updates the running statistics of ``norm``.  Check
    :func:`norm_add_hardtanh_possible` first."""
    out, mean, variance, _ = kernels.norm_add_hardtanh(y, norm.weight, norm.bias, shortcut, norm.eps)
    move_statistics(norm, mean, variance, y.numel() // y.shape[1])
    return out  # type: ignore[no-any-return]


@torch.no_grad()
def move_statistics(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, count: int) -> None:
    """Update the running statistics of ``norm`` with those of a batch that has this many values per channel."""
    assert norm.num_batches_tracked is not None
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean.float(), norm.momentum)
    norm.running_var.lerp_((variance * (count / (count - 1))).float(), norm.momentum)
