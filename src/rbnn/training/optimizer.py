"""SGD, its parameter groups and its learning rate."""

from math import cos, pi
from typing import Any

from torch import nn
from torch.optim import SGD

from rbnn.nn import binary_layers
from rbnn.training.config import TrainConfig


def parameter_groups(
    model: nn.Module, weight_decay: float, decay: str = "all", binary_lr: float = 1.0, binary_decay: float = 1.0
) -> list[dict[str, Any]]:
    """Parameters grouped by weight decay and learning rate.  With ``weights``, the weights of convolutions and linear
    layers get decay.  Batch norms, biases and the methods' scales do not, and parameters in a method's
    ``decay_factors`` (β) get their own.  With ``all``, every parameter gets decay.  The weights of binary layers have
    ``binary_lr`` times the learning rate and ``binary_decay`` times the decay of the others."""
    factors: dict[int, float] = {}
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
            factors[id(module.weight)] = 1.0
    binary = set()
    for _, layer in binary_layers(model):
        binary.add(id(layer.weight))
        own = layer.method.decay_factors()
        factors[id(layer.weight)] = own.get("layer.weight", 1.0) * binary_decay
        factors |= {id(p): own[name] for name, p in layer.method.named_parameters() if name in own}
    default = 1.0 if decay == "all" else 0.0
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        speed = binary_lr if id(parameter) in binary else 1.0
        groups.setdefault((weight_decay * factors.get(id(parameter), default), speed), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": value, "speed": speed} for (value, speed), parameters in groups.items()
    ]


def create_optimizer(model: nn.Module, config: TrainConfig) -> SGD:
    groups = parameter_groups(model, config.weight_decay, config.decay, config.binary_lr, config.binary_decay)
    optimizer = SGD(groups, config.lr, momentum=config.momentum, fused=True)
    set_learning_rate(optimizer, config.lr)
    return optimizer


def set_learning_rate(optimizer: SGD, rate: float) -> None:
    """Set ``rate`` for all parameters, and its multiple for those that learn faster."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["speed"]


def warmup_epochs(config: TrainConfig) -> float:
    """Epochs of warm-up: at most a tenth of the run."""
    return min(float(config.warmup), config.epochs / 10)


def learning_rate(config: TrainConfig, epoch: float) -> float:
    """Linear warm-up, then cosine to 0, at ``epoch`` (a fraction inside an epoch)."""
    warmup = warmup_epochs(config)
    if epoch < warmup:
        return config.lr * epoch / warmup
    return config.lr * (1 + cos(pi * (epoch - warmup) / (config.epochs - warmup))) / 2
