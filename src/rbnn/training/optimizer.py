"""SGD, its parameter groups and its learning rate."""

from math import cos, pi
from typing import Any

from torch import nn
from torch.optim import SGD

from rbnn.nn import binary_layers
from rbnn.training.config import TrainConfig


def parameter_groups(model: nn.Module, weight_decay: float, decay: str = "all") -> list[dict[str, Any]]:
    """Parameters by weight decay.  ``weights``: those of convolutions and linear layers get it, batch norm, biases and
    the methods' scales do not, and what a method names in ``decay_factors`` (β) gets its own.  ``all``: every one."""
    factors: dict[int, float] = {}
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            factors[id(module.weight)] = 1.0
    for _, layer in binary_layers(model):
        own = layer.method.decay_factors()
        factors[id(layer.weight)] = own.get("layer.weight", 1.0)
        factors |= {id(p): own[name] for name, p in layer.method.named_parameters() if name in own}
    default = 1.0 if decay == "all" else 0.0
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        groups.setdefault(weight_decay * factors.get(id(parameter), default), []).append(parameter)
    return [{"params": parameters, "weight_decay": value} for value, parameters in groups.items()]


def create_optimizer(model: nn.Module, config: TrainConfig) -> SGD:
    groups = parameter_groups(model, config.weight_decay, config.decay)
    return SGD(groups, config.lr, momentum=config.momentum, foreach=True)


def warmup_epochs(config: TrainConfig) -> float:
    """Epochs of warm-up: at most a tenth of the run."""
    return min(float(config.warmup), config.epochs / 10)


def learning_rate(config: TrainConfig, epoch: float) -> float:
    """Linear warm-up, then cosine to 0, at ``epoch`` (a fraction inside an epoch)."""
    warmup = warmup_epochs(config)
    if epoch < warmup:
        return config.lr * epoch / warmup
    return config.lr * (1 + cos(pi * (epoch - warmup) / (config.epochs - warmup))) / 2
