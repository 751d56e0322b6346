"""Layers whose class has its own forward: what that forward makes of other parameters."""

from torch import Tensor, nn


def forward_of(kind: type[nn.Module], layer: nn.Module, x: Tensor, **parameters: Tensor | None) -> Tensor:
    """What the forward of ``kind`` makes of ``x`` with these parameters and the other attributes of ``layer``."""
    stand_in = kind.__new__(kind)
    vars(stand_in).update(vars(layer) | {"_parameters": layer._parameters | parameters})
    made: Tensor = kind.forward(stand_in, x)
    return made


def try_forward(kind: type[nn.Module], layer: nn.Module, x: Tensor, **parameters: Tensor | None) -> Tensor:
    """``forward_of`` for numbers that mean nothing: a forward that updates buffers, such as running statistics, does
    not change those of the layer."""
    apart = kind.__new__(kind)
    buffers = {name: None if each is None else each.clone() for name, each in layer._buffers.items()}
    vars(apart).update(vars(layer) | {"_buffers": buffers})
    return forward_of(kind, apart, x, **parameters)
