"""Networks with batch norms that are hard to export: negative, zero and tiny gammas."""

from typing import Any

import torch
from torch import Tensor, nn

import rbnn
from rbnn.models import RPReLU

VARIANTS: dict[str, dict[str, Any]] = {
    "xnor-net with K": {"k_map": True},
    "xnor++ case 1": {"case": 1},
    "xnor++ case 2": {"case": 2},
    "xnor++ case 3": {"case": 3},
    "dorefa 1/2": {"activation_bits": 2},
    "abc-net 3x2": {"weight_bases": 3, "activation_bases": 2},
    "rbnn not standardised": {"standardise": False},
    "rbnn scaled": {"standardise": False, "scaled": True},
    "rbnn ede": {"estimator": "ede"},
}
"""Options that change what inference needs, each on one network."""


def random_norms(model: nn.Module) -> nn.Module:
    """Random statistics and gammas; each norm has one gamma of 0, one of 1e-8, one of −1e-8, and half are negative."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias, std=0.5)
            nn.init.normal_(module.running_mean, std=0.5)
            nn.init.uniform_(module.running_var, 0.5, 4)
            with torch.no_grad():
                module.weight[:3] = torch.tensor([0.0, 1e-8, -1e-8])
    return model


def network(name: str, method: str, size: int, **options: Any) -> nn.Module:
    return random_activations(random_norms(rbnn.create_model(name, method, image_size=size, **options))).eval()


def random_activations(model: nn.Module) -> nn.Module:
    """Random slopes and shifts, as after training: every second slope is negative."""
    for module in model.modules():
        if isinstance(module, nn.PReLU | RPReLU):
            nn.init.normal_(module.weight, std=0.5)
        if isinstance(module, RPReLU):
            nn.init.normal_(module.shift_in, std=0.5)
            nn.init.normal_(module.shift_out, std=0.5)
    return model


def pictures(count: int, size: int) -> Tensor:
    """Smooth images: noise at a quarter of the size, enlarged, plus a little noise."""
    coarse = nn.functional.interpolate(torch.randn(count, 3, max(size // 4, 1), max(size // 4, 1)), size=(size, size))
    return coarse + 0.3 * torch.randn(count, 3, size, size)
