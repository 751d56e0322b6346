"""Waking weights whose signs never change (OvSW, Xiang et al., ECCV 2024), for any method."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rbnn.nn import binary_layers

SMALLEST_GRADIENT, SMALLEST_WEIGHT = 1e-6, 1e-3
"""Lower limits for the norms of a filter's gradient and weight."""


class SilentWeights:
    """Rewrites the gradients of the binary layers' weights before each step of the optimiser, in this order:

    adaptive gradient scaling, per filter o
        G = max(‖g_o‖, 1e-6),  W = max(‖w_o‖, 1e-3);   g_o ← g_o · floor·W/G   where  G/W < floor

    silence-aware decay, per weight
        S ← memory·S + (1 − memory)·1[the sign changed since the last step];   g ← g + decay·w   where  S < below

    Gradients become longer, never shorter.  S starts at 0, so at first every weight is silent.  Signs are the layer's
    ±1 weights, however the method computes them.  A ``floor`` or ``decay`` of 0 turns its part off.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, *, floor: float, decay: float, memory: float, below: float
    ) -> None:
        self.layers = list(binary_layers(model))
        self.floor, self.decay, self.memory, self.below = floor, decay, memory, below
        self.changes: dict[str, Tensor] = {}
        """S of each layer."""
        self.signs: dict[str, Tensor] = {}
        """As of the last step, True for +1."""
        if decay:
            self.changes = {name: torch.zeros_like(layer.filters, requires_grad=False) for name, layer in self.layers}
            self.signs = {name: layer.method.signs(layer.filters) > 0 for name, layer in self.layers}
        optimizer.register_step_pre_hook(self._before_step)

    @torch.no_grad()
    def _before_step(self, *hook: Any) -> None:
        for name, layer in self.layers:
            if layer.weight.grad is None:
                continue
            gradient, filters = layer.as_filters(layer.weight.grad), layer.filters
            if self.floor:
                gradient.mul_(longer(gradient, filters, self.floor))
            if self.decay:
                signs = layer.method.signs(filters) > 0
                changed = (signs != self.signs[name]).to(gradient.dtype)
                seen = self.changes[name].mul_(self.memory).add_(changed, alpha=1 - self.memory)
                self.signs[name] = signs
                gradient.add_((seen < self.below) * filters, alpha=self.decay)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        return {"changes": dict(self.changes), "signs": dict(self.signs)}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        for name in self.changes:
            self.changes[name].copy_(state["changes"][name])
            self.signs[name] = state["signs"][name].to(self.signs[name])


def longer(gradient: Tensor, weight: Tensor, floor: float) -> Tensor:
    """The factor for each filter's gradient that makes its norm at least ``floor`` times the norm of its weight."""
    dims = tuple(range(1, weight.dim()))
    of_gradient = torch.linalg.vector_norm(gradient, dim=dims, keepdim=True).clamp_min(SMALLEST_GRADIENT)
    of_weight = torch.linalg.vector_norm(weight, dim=dims, keepdim=True).clamp_min(SMALLEST_WEIGHT)
    factor: Tensor = (floor * of_weight / of_gradient).clamp_min(1)
    return factor
