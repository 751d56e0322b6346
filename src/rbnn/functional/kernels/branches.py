"""A whole branch in training, end(norm(scale · (signs ⊛ sign(x))) + shortcut).  The end is hardtanh or, with slopes,
prelu(· + before) + after."""

from typing import Any

import torch
from torch import Tensor

from rbnn import _core
from rbnn.functional.kernels._memory import dense, memory, pictures, run
from rbnn.functional.kernels._operators import Five, Four, Pair, differentiable, operator
from rbnn.functional.kernels.convolution import convolved_shapes


def _branch_results(x: Tensor, signs: Tensor, stride: Pair, padding: Pair, standardised: bool) -> Five:
    out, planes = convolved_shapes(x, signs, stride, padding)
    of_images = x.new_empty((2, x.shape[0] if standardised else 0))
    of_counts = x.new_empty((2, signs.shape[0]), dtype=torch.float64)
    return out, torch.empty_like(out, dtype=torch.int16), planes, of_images, of_counts


def _branch_gradients(x: Tensor, signs: Tensor, x_is_shortcut: bool, out: Tensor) -> Four:
    return (
        torch.empty_like(x, memory_format=torch.channels_last),
        out.new_empty((0, 0, 0, 0)) if x_is_shortcut else torch.empty_like(out),
        torch.empty_like(signs, memory_format=torch.channels_last),
        signs.new_empty((5, signs.shape[0])),
    )


def _branch(x: Tensor, signs: Tensor, scale: Tensor | None, *rest: Any) -> tuple[Any, ...]:
    """The arguments of a branch for the kernels: after these follow stride, padding, weight, bias, eps, slope, before,
    after, shortcut, counts, planes, out and of_images."""
    return tuple(map(memory, (x, pictures(signs), dense(scale), *rest)))


@operator(lambda grad, x, signs, *rest: _branch_gradients(x, signs, rest[8], rest[13]))
def _branch_backward(
    grad: Tensor, x: Tensor, signs: Tensor, scale: Tensor | None, split: bool, weight: Tensor, bias: Tensor,
    shortcut: Tensor | None, slope: Tensor | None, before: Tensor | None, after: Tensor | None, x_is_shortcut: bool,
    stride: Pair, padding: Pair, tent: Tensor, eps: float, out: Tensor, counts: Tensor, planes: Tensor,
    of_images: Tensor, of_counts: Tensor,
) -> Four:  # fmt: skip
    """Gradients of x, shortcut and signs (or, without ``split``, of scale · signs); of the scale of each filter, weight
    and bias of the norm, slope and after.  The gradient of ``before`` is that of the bias.  The shortcut is needed only
    with slopes."""
    grads = grad_x, grad_shortcut, grad_signs, numbers = _branch_gradients(x, signs, x_is_shortcut, out)
    grad = pictures(grad)
    seen = grad if slope is None else x if shortcut is None else shortcut
    given = _branch(
        x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, seen, counts, planes, out, of_images
    )
    run(
        _core.branch_backward, grad, tent, grad_x, None if x_is_shortcut else grad_shortcut, grad_signs, numbers, split,
        given, of_counts,
    )  # fmt: skip
    return grads


@operator(lambda x, signs, *rest: _branch_results(x, signs, *rest[8:11]))
def branch(
    x: Tensor, signs: Tensor, scale: Tensor | None, soft: Tensor | None, weight: Tensor, bias: Tensor,
    shortcut: Tensor | None, slope: Tensor | None, before: Tensor | None, after: Tensor | None, stride: Pair,
    padding: Pair, standardised: bool, tent: Tensor, eps: float,
) -> Five:  # fmt: skip
    """The output; the integers before the norm; the bits of x, its mean and 1/std; mean and variance of the integers.
    Without a shortcut, x itself is the shortcut.  Only for what ``branch_possible`` allows, with the channels of x and
    shortcut last."""
    made = out, counts, planes, of_images, of_counts = _branch_results(x, signs, stride, padding, standardised)
    given = _branch(
        x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, x if shortcut is None else shortcut,
        counts, planes, out, of_images,
    )  # fmt: skip
    run(_core.branch_forward, given, of_counts, None, None)
    return made


def evaluated_branch(
    x: Tensor, signs: Tensor, scale: Tensor | None, norm: torch.nn.BatchNorm2d, shortcut: Tensor, slope: Tensor | None,
    before: Tensor | None, after: Tensor | None, stride: Pair, padding: Pair, standardised: bool,
) -> Tensor:  # fmt: skip
    """The output of ``branch`` with the running statistics of ``norm``.  It has no gradient."""
    out, counts, planes, of_images, _ = _branch_results(x, signs, stride, padding, standardised)
    given = _branch(
        x, signs, scale, stride, padding, norm.weight, norm.bias, norm.eps, slope, before, after, shortcut, counts,
        planes, out, of_images,
    )  # fmt: skip
    run(_core.branch_forward, given, None, norm.running_mean, norm.running_var)
    return out


def _keep_branch(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, signs, scale, soft, weight, bias, shortcut, *end, ctx.stride, ctx.padding, _, tent, ctx.eps = inputs
    ctx.soft, ctx.x_is_shortcut = soft is not None, shortcut is None
    seen = None if end[0] is None else shortcut  # the gradient of hardtanh follows from its output
    ctx.save_for_backward(x, signs, scale, weight, bias, tent, seen, *end, *output)


def _through_branch(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, signs, scale, weight, bias, tent, shortcut, slope, before, after, *kept = ctx.saved_tensors
    split = scale is not None and not ctx.soft
    grad_x, grad_shortcut, grad_signs, numbers = _branch_backward(
        grad, x, signs, scale, split, weight, bias, shortcut, slope, before, after, ctx.x_is_shortcut, ctx.stride,
        ctx.padding, tent, ctx.eps, *kept,
    )  # fmt: skip
    of_scale, of_weight, of_bias, of_slope, of_after = numbers.unbind()
    of_signs, of_soft = (None, grad_signs) if ctx.soft else (grad_signs, None)
    return (
        grad_x, of_signs, of_scale.sum_to_size(scale.shape) if split else None, of_soft, of_weight, of_bias,
        None if ctx.x_is_shortcut else grad_shortcut, None if slope is None else of_slope,
        None if before is None else of_bias, None if after is None else of_after, None, None, None, None, None,
    )  # fmt: skip


differentiable(branch, _keep_branch, _through_branch)
