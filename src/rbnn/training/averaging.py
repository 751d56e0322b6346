"""The average of the weights over the last steps, which is often better than the weights of any single step."""

import copy

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from rbnn.functional.batch_norm import BatchNorm


class Average:
    """Exponential moving average of all parameters and of batch norm's running statistics.

        a ← d a + (1 − d) w   after each step,   d = min(decay, (1 + n)/(10 + n)),   n steps before

    The latent weights of binary layers are averaged, not their signs; so are scales and β.  Rotations and other state
    of a method are those of the trained network at the moment.  ``n`` makes the average forget the start quickly.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).requires_grad_(False)
        """The averaged network, as of the last ``refresh``."""
        self.names = _averaged(model)
        self.values = {name: tensor.detach().clone() for name, tensor in _tensors(model, self.names).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, steps: int) -> None:
        """Call it after a step of the optimiser; ``steps`` is the number of steps before."""
        move = get_ema_multi_avg_fn(min(self.decay, (1 + steps) / (10 + steps)))  # type: ignore[no-untyped-call]
        now = _tensors(model, self.names)
        move(list(self.values.values()), [now[name].detach() for name in self.values], steps)

    def refresh(self, model: nn.Module) -> nn.Module:
        """The averaged network.  Everything that is not averaged is copied from ``model``."""
        self.model.load_state_dict(model.state_dict() | self.values)
        return self.model

    def load(self, values: dict[str, Tensor]) -> None:
        """Continue with these averages."""
        for name, tensor in self.values.items():
            tensor.copy_(values[name])


def _averaged(model: nn.Module) -> list[str]:
    names = [name for name, _ in model.named_parameters()]
    for prefix, module in model.named_modules():
        if isinstance(module, BatchNorm) and module.running_mean is not None:
            names += [f"{prefix}.running_mean".lstrip("."), f"{prefix}.running_var".lstrip(".")]
    return names


def _tensors(model: nn.Module, names: list[str]) -> dict[str, Tensor]:
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: found[name] for name in names}
