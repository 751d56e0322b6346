"""Measures the running statistics of batch norms again without changing what the network computes."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.errors import CheckpointError
from rbnn.functional.batch_norm import BatchNorm
from rbnn.nn import evaluation_mode


@torch.no_grad()
def refresh_statistics(model: nn.Module, images: Iterable[Tensor]) -> None:
    """Give every batch norm of ``model`` the mean and variance of its inputs for ``images``, and a weight and bias with
    which its output stays the same:

        a = γ/√(var + ε),  c = β − mean·a     stay;     γ = a √(var' + ε),  β = c + mean'·a     follow

    This is for a network whose statistics are guesses, or those of other images.  In training mode a batch norm uses
    the statistics of the batch, so the network would compute something else there.
    """
    seen = {norm: _Moments() for norm in _norms(model)}
    with ExitStack() as hooks, evaluation_mode(model):
        for norm, moments in seen.items():
            hooks.enter_context(norm.register_forward_pre_hook(moments.add))
        for batch in images:
            model(batch)
    for norm, moments in seen.items():
        if moments.count > 1:
            _set_statistics(norm, moments.mean, moments.variance)


@torch.no_grad()
def set_statistics(model: nn.Module, means: Tensor, variances: Tensor) -> None:
    """The same with known statistics of all batch norms, concatenated as ``get_statistics`` returned them."""
    sizes = [norm.num_features for norm in _norms(model)]
    if not means.shape == variances.shape == (sum(sizes),):
        raise CheckpointError(f"expected statistics of {sum(sizes)} channels, got {means.numel()}")
    parts = zip(_norms(model), torch.split(means, sizes), torch.split(variances, sizes), strict=True)
    for norm, mean, variance in parts:
        _set_statistics(norm, mean, variance)


def get_statistics(model: nn.Module) -> tuple[Tensor, Tensor]:
    """The concatenated running means and variances of all batch norms."""
    kept = [(norm.running_mean, norm.running_var) for norm in _norms(model)]
    return torch.cat([mean for mean, _ in kept if mean is not None]), torch.cat([v for _, v in kept if v is not None])


def _norms(model: nn.Module) -> Iterator[BatchNorm]:
    """The batch norms that have statistics, and a weight that can compensate for new ones."""
    for norm in model.modules():
        if isinstance(norm, BatchNorm) and norm.running_mean is not None and norm.affine:
            yield norm


class _Moments:
    """Sums over all inputs of one batch norm, in double precision."""

    def __init__(self) -> None:
        self.count = 0
        self.total: Tensor | float = 0.0
        self.squares: Tensor | float = 0.0

    def add(self, norm: nn.Module, inputs: tuple[Any, ...]) -> None:
        values = inputs[0].detach().double()
        over = [dim for dim in range(values.dim()) if dim != 1]
        self.count += values.numel() // values.shape[1]
        self.total = self.total + values.sum(over)
        self.squares = self.squares + values.square().sum(over)

    @property
    def mean(self) -> Tensor:
        return torch.as_tensor(self.total / self.count)

    @property
    def variance(self) -> Tensor:
        """Unbiased, like torch's running variance."""
        spread = torch.as_tensor(self.squares / self.count) - self.mean.square()
        return spread.clamp_min(0) * (self.count / (self.count - 1))


def _set_statistics(norm: BatchNorm, mean: Tensor, variance: Tensor) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    shift = norm.bias.double() - norm.running_mean.double() * factor
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    # Computed from the stored values, to compensate for their rounding.
    norm.weight.copy_(factor * (norm.running_var.double() + norm.eps).sqrt())
    norm.bias.copy_(shift + norm.running_mean.double() * factor)
