"""Finds where numbers go wrong and names the place: missing norms, gradients, outputs, signs that stand still."""

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.neighbours import Neighbours, Untraceable, missing_norms
from rbnn.nn import binary_layers

STANDING_STILL_FROM = 0.01
"""Signs that do not change are worth a notice while the learning rate is at least this share of its peak."""


def gradients_finite(parameters: list[nn.Parameter]) -> bool:
    """One norm per gradient and one comparison: cheap enough for every step."""
    norms = [parameter.grad.norm() for parameter in parameters if parameter.grad is not None]
    return bool(torch.isfinite(torch.stack([norm.to(norms[0]) for norm in norms]).sum()))


def broken_gradient(model: nn.Module) -> str:
    """The parameter where the gradient first was not finite.  Gradients flow from the end of the network to its
    beginning, so this is the last such parameter."""
    norms = {name: p.grad.norm() for name, p in model.named_parameters() if p.grad is not None}
    return [name for name, norm in norms.items() if not bool(torch.isfinite(norm))][-1]


@torch.no_grad()
def broken_output(model: nn.Module, images: Tensor) -> str | None:
    """The first parameter that is not finite, otherwise the first layer output on ``images``; None if all are
    finite."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return name
    found: list[str] = []

    def look(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and not bool(torch.isfinite(output).all()):
            found.append(f"the output of {name}")

    leaves = [(name, m) for name, m in model.named_modules() if name and not any(True for _ in m.children())]
    with ExitStack() as hooks:
        for name, module in [*leaves, *binary_layers(model)]:
            hooks.enter_context(module.register_forward_hook(partial(look, name)))
        model(images)
    return found[0] if found else None


def before_training(model: nn.Module) -> list[str]:
    """One sentence about binary layers without a norm; none if the forward cannot be traced."""
    try:
        bare = Neighbours(model).without_norm([name for name, _ in binary_layers(model)])
    except Untraceable:
        return []
    return list(missing_norms(bare))


def notices(model: nn.Module, measures: dict[str, dict[str, float]], share_of_peak: float) -> list[str]:
    """One sentence for the log about each binary layer that has stopped learning.  ``share_of_peak`` is the learning
    rate divided by its peak."""
    sentences = []
    for name, layer in binary_layers(model):
        if measures[name]["epoch_flips"] == 0 and share_of_peak >= STANDING_STILL_FROM:
            sentences.append(f"no sign of {name} changed in this epoch")
        if constant := constant_filters(layer.filters):
            sentences.append(
                f"{constant} of {len(layer.filters)} filters of {name} are constant, and so are their signs"
            )
    return sentences


def constant_filters(weight: Tensor) -> int:
    """How many filters have a single value, up to rounding."""
    flat = weight.detach().flatten(1)
    if flat.shape[1] == 1:
        return 0
    spread = flat.amax(1) - flat.amin(1)
    return int((spread <= 4 * torch.finfo(flat.dtype).eps * flat.abs().amax(1)).sum())
