"""The parameter-free shortcut of CIFAR ResNets."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def option_a(x: Tensor, stride: int, margin: int) -> Tensor:
    """Every ``stride``-th pixel, and ``margin`` channels of zeros on both sides.

    Slicing and padding would work too, but their gradients have another memory order than the rest of the network, and
    reordering a whole batch costs more than the shortcut itself.
    """
    return _OptionA.apply(x, stride, margin)  # type: ignore[no-untyped-call, no-any-return]


class _OptionA(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: int, margin: int) -> Tensor:
        ctx.stride, ctx.margin, ctx.shape, ctx.format = stride, margin, x.shape, _memory_format(x)
        kept = x[:, :, ::stride, ::stride]
        shape = (x.shape[0], x.shape[1] + 2 * margin, *kept.shape[2:])
        out = _zeros(shape, x, ctx.format)
        out[:, margin : margin + x.shape[1]] = kept
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        channels = ctx.shape[1]
        out = _zeros(ctx.shape, grad, ctx.format)
        out[:, :, :: ctx.stride, :: ctx.stride] = grad[:, ctx.margin : ctx.margin + channels]
        return out, None, None


def _zeros(shape: tuple[int, ...], like: Tensor, memory_format: torch.memory_format) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=memory_format).zero_()


def _memory_format(x: Tensor) -> torch.memory_format:
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if last else torch.contiguous_format
