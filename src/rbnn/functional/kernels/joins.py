"""The end of a branch by itself: hardtanh(a + b), and hardtanh(batch_norm(y) + shortcut) in training."""

from typing import Any

import torch
from torch import Tensor

from rbnn import _core
from rbnn.functional.kernels._memory import fusable, like, pictures, run
from rbnn.functional.kernels._operators import Four, differentiable, operator

# hardtanh(a + b).


@operator(lambda grad, out: torch.empty_like(out))
def _add_hardtanh_backward(grad: Tensor, out: Tensor) -> Tensor:
    if not fusable(out):
        return grad * (out.abs() < 1)
    grad_in = torch.empty_like(out)
    run(_core.add_hardtanh_backward, like(grad, out), out, grad_in)
    return grad_in


@operator(lambda a, b: torch.empty_like(a + b))
def add_hardtanh(a: Tensor, b: Tensor) -> Tensor:
    if not fusable(a, b):
        return torch.nn.functional.hardtanh(a + b)
    out = torch.empty_like(a)
    run(_core.add_hardtanh_forward, a, b, out)
    return out


differentiable(
    add_hardtanh,
    lambda ctx, inputs, output: ctx.save_for_backward(output),
    lambda ctx, grad: (_add_hardtanh_backward(grad, *ctx.saved_tensors),) * 2,
)


# hardtanh(batch_norm(y) + shortcut) in training.


@operator(
    lambda grad, y, weight, *rest: (
        torch.empty_like(y), torch.empty_like(weight), torch.empty_like(weight), torch.empty_like(y)
    ),
)  # fmt: skip
def _norm_add_hardtanh_backward(
    grad: Tensor, y: Tensor, weight: Tensor, out: Tensor, mean: Tensor, inverse_std: Tensor
) -> Four:
    count = y.numel() // y.shape[1]
    grad_sum, grad_y = torch.empty_like(y), torch.empty_like(y)
    total, product = torch.empty(2, y.shape[1], dtype=torch.float64)
    centre = mean.float()
    run(_core.norm_add_hardtanh_backward, pictures(grad), out, y, centre, grad_sum, total, product)
    # With g = grad_sum, s = 1/std:  dy = γ s (g − Σg/n − (y − mean) s² Σ(g (y − mean))/n)
    factor = weight.detach() * inverse_std
    pull, shift = -factor * inverse_std.square() * product / count, -factor * total / count
    run(_core.norm_backward, grad_sum, y, centre, factor.float(), pull.float(), shift.float(), grad_y)
    return grad_y, (product * inverse_std).float(), total.float(), grad_sum


@operator(lambda y, *rest: (torch.empty_like(y), *(y.new_empty(y.shape[1], dtype=torch.float64) for _ in range(3))))
def norm_add_hardtanh(y: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor, eps: float) -> Four:
    """The output; mean, variance and 1/std of each channel, in double."""
    out = torch.empty_like(y)
    mean, variance = (torch.empty(y.shape[1], dtype=torch.float64) for _ in range(2))
    run(_core.batch_statistics, y, mean, variance)
    inverse_std = (variance + eps).rsqrt()
    scale = weight.detach() * inverse_std
    shift = bias.detach() - mean * scale
    run(_core.norm_add_hardtanh, y, scale.float(), shift.float(), shortcut, out)
    return out, mean, variance, inverse_std


def _keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    y, weight, *_ = inputs
    out, mean, _, inverse_std = output
    ctx.save_for_backward(y, weight, out, mean, inverse_std)


differentiable(
    norm_add_hardtanh,
    _keep_norm,
    lambda ctx, grad, *_: (*_norm_add_hardtanh_backward(grad, *ctx.saved_tensors), None),
)
