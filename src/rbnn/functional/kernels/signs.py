"""sign(x), and sign((x − mean)/std) with the mean and std of each image; a tent is their derivative."""

import torch
from torch import Tensor

from rbnn import _core
from rbnn.functional.estimators import Tent, sign
from rbnn.functional.kernels._memory import fusable, like, run
from rbnn.functional.kernels._operators import differentiable, operator

# sign(x), with a tent for its derivative.


@operator(lambda grad, x, *tent: torch.empty_like(x))
def sign_backward(grad: Tensor, x: Tensor, tent: Tensor) -> Tensor:
    if not fusable(x):
        return grad * Tent(*tent.tolist())(x)
    grad_x = torch.empty_like(x)
    run(_core.sign_backward, like(grad, x), x, grad_x, tent)
    return grad_x


@operator(lambda x, *tent: torch.empty_like(x))
def tent_sign(x: Tensor, tent: Tensor) -> Tensor:
    """``sign(x)``."""
    if not fusable(x):
        return sign(x)
    out = torch.empty_like(x)
    run(_core.sign_forward, x, out)
    return out


differentiable(
    tent_sign,
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lambda ctx, grad: (sign_backward(grad, *ctx.saved_tensors), None),
)


# sign((x − mean)/std), with the mean and std of each image.


@operator(lambda grad, x, *rest: torch.empty_like(x))
def _standardised_sign_backward(grad: Tensor, x: Tensor, mean: Tensor, inverse_std: Tensor, tent: Tensor) -> Tensor:
    grad_x = torch.empty_like(x)
    run(_core.standardised_sign_backward, like(grad, x), x, mean, inverse_std, grad_x, tent)
    return grad_x


@operator(lambda x, *tent: (torch.empty_like(x), x.new_empty(x.shape[0]), x.new_empty(x.shape[0])))
def standardised_tent_sign(x: Tensor, tent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The signs, mean and 1/std.  Only for tensors that are ``fusable``."""
    out, mean, inverse_std = torch.empty_like(x), x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
    run(_core.standardised_sign_forward, x, out, mean, inverse_std)
    return out, mean, inverse_std


differentiable(
    standardised_tent_sign,
    lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], *output[1:], inputs[1]),
    lambda ctx, grad, *_: (_standardised_sign_backward(grad, *ctx.saved_tensors), None),
)
