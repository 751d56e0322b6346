"""scale · (signs ⊛ sign(x)), standardised or not: bits forward, sums of signed gradients backward."""

from typing import Any

import torch
from torch import Tensor

from rbnn import _core
from rbnn.functional.filters import per_filter
from rbnn.functional.kernels._memory import dense, pictures, run
from rbnn.functional.kernels._operators import Four, Pair, differentiable, operator


@operator(lambda grad, x, *rest: torch.empty_like(x, memory_format=torch.channels_last))
def _sign_conv_grad_input(
    grad: Tensor, x: Tensor, signs: Tensor, scale: Tensor | None, mean: Tensor, inverse_std: Tensor, stride: Pair,
    padding: Pair, tent: Tensor,
) -> Tensor:  # fmt: skip
    grad_x = torch.empty_like(x, memory_format=torch.channels_last)
    run(
        _core.sign_conv_grad_input, pictures(grad), pictures(signs), dense(scale), stride, padding, x, mean,
        inverse_std, tent, grad_x,
    )  # fmt: skip
    return grad_x


@operator(lambda grad, x, signs, *rest: torch.empty_like(signs, memory_format=torch.channels_last))
def _sign_conv_grad_weight(
    grad: Tensor, x: Tensor, signs: Tensor, planes: Tensor, stride: Pair, padding: Pair
) -> Tensor:
    """The gradient of ``scale · signs``."""
    grad_weight = torch.empty_like(signs, memory_format=torch.channels_last)
    run(_core.sign_conv_grad_weight, pictures(grad), planes, x.shape[2:], stride, padding, grad_weight)
    return grad_weight


def convolved_shapes(x: Tensor, signs: Tensor, stride: Pair, padding: Pair) -> tuple[Tensor, Tensor]:
    """The output, channels last; the bits of x."""
    count, channels, *sides = x.shape
    height, width = ((sides[i] + 2 * padding[i] - signs.shape[i + 2]) // stride[i] + 1 for i in (0, 1))
    shape = count, signs.shape[0], height, width
    out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    return out, x.new_empty(count * sides[0] * stride[1] * channels, dtype=torch.int64)


def _sign_conv_shapes(
    x: Tensor, signs: Tensor, scale: Any, soft: Any, stride: Pair, padding: Pair, standardised: bool, tent: Tensor
) -> Four:
    numbers = x.shape[0] if standardised else 0
    return *convolved_shapes(x, signs, stride, padding), x.new_empty(numbers), x.new_empty(numbers)


@operator(_sign_conv_shapes)
def sign_conv(
    x: Tensor, signs: Tensor, scale: Tensor | None, soft: Tensor | None, stride: Pair, padding: Pair,
    standardised: bool, tent: Tensor,
) -> Four:  # fmt: skip
    """The output; the bits of x, its mean and 1/std.  Only for what ``sign_conv_possible`` allows, with the channels of
    x last."""
    out, planes, mean, inverse_std = _sign_conv_shapes(x, signs, scale, soft, stride, padding, standardised, tent)
    run(_core.sign_conv_forward, x, pictures(signs), dense(scale), stride, padding, out, planes, mean, inverse_std)
    return out, planes, mean, inverse_std


def _keep_sign_conv(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, signs, scale, _, ctx.stride, ctx.padding, _, tent = inputs
    ctx.save_for_backward(x, signs, scale, *output[1:], tent)


def _sign_conv_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, signs, scale, planes, mean, inverse_std, tent = ctx.saved_tensors
    grad_x = grad_signs = grad_scale = grad_soft = None
    if ctx.needs_input_grad[0]:
        grad_x = _sign_conv_grad_input(grad, x, signs, scale, mean, inverse_std, ctx.stride, ctx.padding, tent)
    if any(ctx.needs_input_grad[1:4]):
        grad_weight = _sign_conv_grad_weight(grad, x, signs, planes, ctx.stride, ctx.padding)
        factor = None if scale is None else per_filter(scale, signs)
        if ctx.needs_input_grad[3]:
            grad_soft = grad_weight
        else:
            grad_signs = grad_weight if factor is None else grad_weight * factor
            if factor is not None and ctx.needs_input_grad[2]:
                grad_scale = (grad_weight * signs).sum_to_size(factor.shape).reshape(scale.shape)
    return grad_x, grad_signs, grad_scale, grad_soft, None, None, None, None


differentiable(sign_conv, _keep_sign_conv, _sign_conv_backward)
