"""Binarization and convolution in one: bits forward, sums of signed gradients backward.

    y = scale · (signs ⊛ sign(x)),   one scale per filter

On a CPU both operands are packed into bits and the products counted; the signs never lie in memory as floats.
Backward, the gradient of ``w`` and that of the signs have one real factor and one sign in every product, so that four
of them are one look-up in a table of 16 sums (csrc/training/sign_conv.h).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rbnn import _core
from rbnn.functional.binarize import Binarization
from rbnn.functional.estimators import Tent
from rbnn.functional.filters import per_filter
from rbnn.functional.scaled_signs import ScaledSigns
from rbnn.functional.unit_std import over_std

Pair = tuple[int, int]
LONGEST_ROW = 64
"""Pixels of a padded row: its bits are one word."""
LANES = 8
"""Channels come in whole vectors."""
KERNELS = ""
"""The instruction set by its name in ``_core.kernels()``; empty: the best that this machine has."""


def sign_conv_possible(x: Tensor, weight: ScaledSigns, binarization: Binarization, padding: Pair) -> bool:
    """Whether :func:`sign_conv2d` has kernels for these: float32 on the CPU, channels in eights, rows up to 64
    pixels."""
    signs = weight.signs
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
    """``conv2d(binarization(x), weight)``, without bias, dilation or groups.  Ask :func:`sign_conv_possible` before."""
    last = x.is_contiguous(memory_format=torch.channels_last)
    if binarization.scaled:
        x, binarization = over_std(x), replace(binarization, scaled=False)
    x = x.contiguous(memory_format=torch.channels_last)
    y: Tensor = _SignConv.apply(  # type: ignore[no-untyped-call]
        x, weight.signs, weight.scale, weight.soft, binarization, stride, padding
    )
    return y if last else y.contiguous()


def _pictures(x: Tensor) -> Any:
    """(N, C, H, W) as an array (N, H, W, C), without a copy where that is its order in memory."""
    return x.detach().permute(0, 2, 3, 1).contiguous().numpy()


class _SignConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        signs: Tensor,
        scale: Tensor | None,
        soft: Tensor | None,
        binarization: Binarization,
        stride: Pair,
        padding: Pair,
    ) -> Tensor:
        size = [(x.shape[i] + 2 * padding[i - 2] - signs.shape[i]) // stride[i - 2] + 1 for i in (2, 3)]
        out = torch.empty((x.shape[0], *size, signs.shape[0]))
        planes = torch.empty(x.shape[0] * x.shape[2] * stride[1] * x.shape[1], dtype=torch.int64)
        mean, inverse_std = torch.empty(2, x.shape[0] if binarization.standardised else 0)
        _core.sign_conv_forward(
            _pictures(x), _pictures(signs), _scales(scale, signs), stride, padding,
            out.numpy(), planes.numpy(), mean.numpy(), inverse_std.numpy(), torch.get_num_threads(), KERNELS,
        )  # fmt: skip
        ctx.save_for_backward(x, signs, scale, planes, mean, inverse_std)
        ctx.binarization, ctx.stride, ctx.padding = binarization, stride, padding
        return out.permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, signs, scale, planes, mean, inverse_std = ctx.saved_tensors
        derivative, gradients = ctx.binarization.derivative, _pictures(grad)
        grad_x = grad_signs = grad_scale = grad_soft = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.empty_like(x.permute(0, 2, 3, 1), memory_format=torch.contiguous_format)
            tent = derivative if isinstance(derivative, Tent) else None
            _core.sign_conv_grad_input(
                gradients, _pictures(signs), _scales(scale, signs), ctx.stride, ctx.padding,
                _pictures(x), mean.numpy(), inverse_std.numpy(),
                tent is not None, *((tent.peak, tent.slope, tent.support) if tent else (0.0, 0.0, 0.0)),
                grad_x.numpy(), torch.get_num_threads(), KERNELS,
            )  # fmt: skip
            grad_x = grad_x.permute(0, 3, 1, 2)
            if tent is None:
                grad_x = grad_x * derivative(x)
        if any(ctx.needs_input_grad[1:4]):
            filters, channels, *kernel = signs.shape
            grad_weight = torch.empty(filters, *kernel, channels)
            _core.sign_conv_grad_weight(
                gradients, planes.numpy(), tuple(x.shape[2:]), ctx.stride, ctx.padding,
                grad_weight.numpy(), torch.get_num_threads(), KERNELS,
            )  # fmt: skip
            grad_weight = grad_weight.permute(0, 3, 1, 2)
            factor = None if scale is None else per_filter(scale, signs)
            if ctx.needs_input_grad[3]:
                grad_soft = grad_weight
            else:
                grad_signs = grad_weight if factor is None else grad_weight * factor
                if factor is not None and ctx.needs_input_grad[2]:
                    grad_scale = (grad_weight * signs).sum_to_size(factor.shape).reshape(scale.shape)
        return grad_x, grad_signs, grad_scale, grad_soft, None, None, None


def _scales(scale: Tensor | None, signs: Tensor) -> Any:
    """One per filter; through DLPack, since after ``.numpy()`` torch could not resize a parameter's memory any more, as
    FSDP does between its uses."""
    made = signs.new_ones(()) if scale is None else scale.detach()
    return np.from_dlpack(made.expand(len(signs)).contiguous())
