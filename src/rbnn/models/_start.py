"""How the weights of a new network start."""

from torch import nn

from rbnn.nn import binary_layers


def start_weights(model: nn.Module, tiny_gammas: bool) -> None:
    """Kaiming-normal convolutions; batch-norm gammas at 1, or at 1e-8 where ``tiny_gammas``, so that every block of a
    residual network starts as its shortcut alone.  The methods then start from these weights."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, nn.BatchNorm2d) and tiny_gammas:
            nn.init.constant_(module.weight, 1e-8)
    for _, layer in binary_layers(model):
        layer.restart_method()
