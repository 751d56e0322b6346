"""Bop, the optimiser of binary weights that have no latent floats behind them (Helwegen et al., NeurIPS 2019)."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rbnn.errors import ConfigError
from rbnn.functional import sign
from rbnn.nn import binary_layers


class Bop(Optimizer):
    """Flips a binary weight when a moving average of its gradient exceeds a threshold.

        m ← (1 − γ) m + γ g          w ← −w  where  w·m > τ

    The weights are the parameters themselves: ±1, no latent values, no scale, no decay, no learning rate.  Creating the
    optimiser sets them to their signs.  Use it with method ``bnn``, which passes ±1 through unchanged, and a second
    optimiser for everything else:

        bits, rest = rbnn.optim.split(model)
        optimizer = rbnn.optim.Pair(rbnn.optim.Bop(bits), torch.optim.Adam(rest, 0.01))

    τ is absolute, in units of the gradient: use the mean loss, unscale mixed-precision gradients, do not clip them.
    """

    def __init__(self, params: Iterable[Any], threshold: float = 1e-8, gamma: float = 1e-4) -> None:
        if threshold < 0 or not 0 < gamma <= 1:
            raise ConfigError(f"Bop expects threshold ≥ 0 and 0 < gamma ≤ 1, got {threshold} and {gamma}")
        # Schedulers of learning rates need one, which has no effect here.
        super().__init__(params, {"lr": 0.0, "threshold": threshold, "gamma": gamma})
        with torch.no_grad():
            for group in self.param_groups:
                for w in group["params"]:
                    w.copy_(sign(w))

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = _evaluated(closure)
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                state = self.state[w]
                if "average" not in state:
                    # The values are near 1e-8, which half precision would round to 0.
                    kind = torch.promote_types(w.dtype, torch.float32)
                    state["average"] = torch.zeros_like(w, dtype=kind)
                average = state["average"].lerp_(w.grad.to(state["average"]), group["gamma"])
                w.copy_(torch.where(w * average > group["threshold"], -w, w))
        return loss


class Pair(Optimizer):
    """Two optimisers that step as one, so that a schedule, a loop or a checkpoint sees a single optimiser.  It has the
    parameter groups of both."""

    def __init__(self, first: Optimizer, second: Optimizer) -> None:
        self.both = first, second
        super().__init__([*first.param_groups, *second.param_groups], {})
        self._gather()

    def _gather(self) -> None:
        # These are the groups of the two optimisers themselves, so a learning rate that is set here is set there.
        self.param_groups = [group for one in self.both for group in one.param_groups]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = _evaluated(closure)
        for one in self.both:
            one.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"first": self.both[0].state_dict(), "second": self.both[1].state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.both[0].load_state_dict(state_dict["first"])
        self.both[1].load_state_dict(state_dict["second"])
        self._gather()


def _evaluated(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def split(model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
    """The weights of the binary layers, and all other parameters."""
    bits = [layer.weight for _, layer in binary_layers(model)]
    known = {id(w) for w in bits}
    return bits, [parameter for parameter in model.parameters() if id(parameter) not in known]
