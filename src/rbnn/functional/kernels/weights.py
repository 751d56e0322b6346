"""The values whose signs are binary weights, standardised filters mixed with their rotated values, and these signs."""

from typing import Any

import torch
from torch import Tensor

from rbnn import _core
from rbnn.functional.kernels._memory import dense, like, run
from rbnn.functional.kernels._operators import Four, differentiable, operator
from rbnn.functional.kernels.signs import sign_backward, tent_sign

# The values whose signs are binary weights: standardised filters, mixed with their rotated values.


@operator(lambda grad, w, r1, r2, beta, *rest: (torch.empty_like(w), w.new_empty(0 if beta is None else w.shape[0])))
def _rotated_weight_backward(
    grad: Tensor, w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool,
    turned: Tensor, statistics: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of w, and of β for each filter."""
    grad_w, grad_beta = torch.empty_like(w), w.new_empty(0 if beta is None else w.shape[0])
    run(
        _core.rotated_weight_backward, like(grad, w), w, dense(r1), dense(r2), dense(beta), rotated_gradient,
        turned, statistics, grad_w, grad_beta,
    )  # fmt: skip
    return grad_w, grad_beta


def _rotated_weight_shapes(w: Tensor, r1: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    turned = w.new_empty((0, 0) if r1 is None else (w.shape[0], w[0].numel()))
    return torch.empty_like(w), turned, w.new_empty((2, w.shape[0]))


@operator(_rotated_weight_shapes)
def rotated_weight(
    w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """w̃; Rᵀŵ; mean and 1/std of each filter.  Only for tensors that are ``fusable``, with two or more values per
    filter."""
    mixed, turned, statistics = _rotated_weight_shapes(w, r1)
    run(_core.rotated_weight, w, dense(r1), dense(r2), dense(beta), mixed, turned, statistics)
    return mixed, turned, statistics


def _keep_rotated(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    w, r1, r2, beta, ctx.rotated_gradient = inputs
    ctx.save_for_backward(w, r1, r2, beta, *output[1:])


def _through_rotation(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    w, r1, r2, beta, *kept = ctx.saved_tensors
    grad_w, grad_beta = _rotated_weight_backward(grad, w, r1, r2, beta, ctx.rotated_gradient, *kept)
    return grad_w, None, None, None if beta is None else grad_beta.sum_to_size(beta.shape), None


differentiable(rotated_weight, _keep_rotated, _through_rotation)


# Their signs.


def _rotated_signs_shapes(w: Tensor, r1: Tensor | None, *rest: Any) -> Four:
    return torch.empty_like(w), *_rotated_weight_shapes(w, r1)


@operator(lambda grad, w, r1, r2, beta, *rest: (torch.empty_like(w), w.new_empty(0 if beta is None else w.shape[0])))
def _rotated_signs_backward(
    grad: Tensor, w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool,
    tent: Tensor, mixed: Tensor, turned: Tensor, statistics: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of w, and of β for each filter."""
    through = sign_backward.function(grad, mixed, tent)
    return _rotated_weight_backward.function(through, w, r1, r2, beta, rotated_gradient, turned, statistics)  # type: ignore[no-any-return]


@operator(_rotated_signs_shapes)
def rotated_signs(
    w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool, tent: Tensor
) -> Four:
    """The signs of w̃; then the results of ``rotated_weight``, for the same tensors."""
    mixed, turned, statistics = rotated_weight.function(w, r1, r2, beta, rotated_gradient)
    return tent_sign.function(mixed, tent), mixed, turned, statistics


def _keep_rotated_signs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    w, r1, r2, beta, ctx.rotated_gradient, tent = inputs
    ctx.save_for_backward(w, r1, r2, beta, tent, *output[1:])


def _through_rotated_signs(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    w, r1, r2, beta, *kept = ctx.saved_tensors
    grad_w, grad_beta = _rotated_signs_backward(grad, w, r1, r2, beta, ctx.rotated_gradient, *kept)
    return grad_w, None, None, None if beta is None else grad_beta.sum_to_size(beta.shape), None, None


differentiable(rotated_signs, _keep_rotated_signs, _through_rotated_signs)
