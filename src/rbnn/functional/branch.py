"""A branch of a residual network in one kernel: binary convolution, batch norm, shortcut and activation.

    out = end(norm(scale · (signs ⊛ sign(x))) + shortcut)

A convolution of signs gives integers.  They are stored in 16 bits, forward and backward, and their mean and variance
are exact.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rbnn.functional import kernels
from rbnn.functional.batch_norm import move_statistics, norm_possible
from rbnn.functional.binarize import Binarization
from rbnn.functional.estimators import Tent
from rbnn.functional.scaled_signs import ScaledSigns
from rbnn.functional.sign_conv import Pair, sign_conv_possible

MOST_VALUES = 32767
"""Largest size of a filter, so that its sums of signs fit into 16 bits."""


@dataclass(frozen=True)
class BranchEnd:
    """What follows the sum of a branch and its shortcut: hardtanh, or ``prelu(· + before) + after`` with slopes.  Each
    parameter has one number per channel."""

    slope: Tensor | None = None
    before: Tensor | None = None
    after: Tensor | None = None


def branch_possible(
    x: Tensor,
    signs: Tensor,
    binarization: Binarization,
    stride: Pair,
    padding: Pair,
    norm: nn.Module,
    shortcut: Tensor,
) -> bool:
    """Whether :func:`branch` has kernels for a weight like ``signs``."""
    if not sign_conv_possible(x, signs, binarization, padding):
        return False
    sides = [(x.shape[i] + 2 * padding[i - 2] - signs.shape[i]) // stride[i - 2] + 1 for i in (2, 3)]
    return (
        isinstance(binarization.derivative, Tent)
        and not binarization.scaled
        and signs[0].numel() <= MOST_VALUES
        and shortcut.shape == (x.shape[0], signs.shape[0], *sides)
        and norm_possible(norm, shortcut)
        and (norm.training or not torch.is_grad_enabled())
        and kernels.channels_last(x)
    )


def branch(
    x: Tensor,
    weight: ScaledSigns,
    binarization: Binarization,
    stride: Pair,
    padding: Pair,
    norm: nn.BatchNorm2d,
    shortcut: Tensor,
    end: BranchEnd,
) -> Tensor:
    """``end(norm(conv2d(binarization(x), weight)) + shortcut)``.  Training updates the running statistics of ``norm``;
    evaluation has no gradient.  Check :func:`branch_possible` first."""
    if not norm.training:
        return kernels.evaluated_branch(
            x, weight.signs, weight.scale, norm, shortcut, end.slope, end.before, end.after, stride, padding,
            binarization.standardised,
        )  # fmt: skip
    assert isinstance(binarization.derivative, Tent)
    out, _, _, _, of_counts = kernels.branch(
        x, weight.signs, weight.scale, weight.soft, norm.weight, norm.bias, None if shortcut is x else shortcut,
        end.slope, end.before, end.after, stride, padding, binarization.standardised,
        binarization.derivative.numbers(), norm.eps,
    )  # fmt: skip
    mean, variance = of_counts
    if weight.scale is not None:
        scale = weight.scale.detach()
        mean, variance = mean * scale, variance * scale.square()
    move_statistics(norm, mean, variance, out.numel() // out.shape[1])
    return out  # type: ignore[no-any-return]
