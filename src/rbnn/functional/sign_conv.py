"""Binarization and convolution in one: bits forward, sums of signed gradients backward.

    y = scale · (signs ⊛ sign(x)),   one scale per filter

On a CPU both operands are packed into bits and the products are counted; the signs are never stored as floats.  In the
backward pass every product has one real factor and one sign, so four products are one look-up in a table of 16 sums
(csrc/training/sign_conv.h).
"""

from dataclasses import replace
from math import inf

import torch
from torch import Tensor

from rbnn.functional import kernels
from rbnn.functional.binarize import Binarization, with_derivative
from rbnn.functional.estimators import Tent
from rbnn.functional.scaled_signs import ScaledSigns
from rbnn.functional.unit_std import over_std

Pair = tuple[int, int]
LONGEST_ROW = 64
"""Largest number of pixels of a padded row, whose bits are one word."""
LANES = 8
"""The number of channels must be a multiple of this."""
IDENTITY = Tent(peak=1.0, slope=0.0, support=inf)


def sign_conv_possible(x: Tensor, signs: Tensor, binarization: Binarization, padding: Pair) -> bool:
    """Whether :func:`sign_conv2d` has kernels for a weight like ``signs``: float32 on the CPU, channels in eights, rows
    up to 64 pixels."""
    return (
        all(t.device.type == "cpu" and t.dtype == torch.float32 and t.dim() == 4 for t in (x, signs))
        and x.numel() > 0
        and x.shape[1] == signs.shape[1]
        and x.shape[1] % LANES == 0
        and signs.shape[0] % LANES == 0
        and x.shape[3] + 2 * padding[1] <= LONGEST_ROW
        and all(x.shape[i] + 2 * padding[i - 2] >= signs.shape[i] for i in (2, 3))
        and (isinstance(binarization.derivative, Tent) or not binarization.standardised)
    )


def sign_conv2d(x: Tensor, weight: ScaledSigns, binarization: Binarization, stride: Pair, padding: Pair) -> Tensor:
    """``conv2d(binarization(x), weight)``, without bias, dilation or groups.  Check :func:`sign_conv_possible`
    first."""
    last = x.is_contiguous(memory_format=torch.channels_last)
    if binarization.scaled:
        x, binarization = over_std(x), replace(binarization, scaled=False)
    x = x.contiguous(memory_format=torch.channels_last)
    tent = binarization.derivative
    if not isinstance(tent, Tent):
        x, tent = with_derivative(x, tent, lambda x: x.view_as(x)), IDENTITY
    y, _, _, _ = kernels.sign_conv(
        x, weight.signs, weight.scale, weight.soft, stride, padding, binarization.standardised, tent.numbers()
    )
    return y if last else y.contiguous()  # type: ignore[no-any-return]
