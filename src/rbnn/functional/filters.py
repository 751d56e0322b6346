"""A filter is what makes one output channel: ``w[o]`` of a weight (O, C, kh, kw) or (O, C)."""

import torch
from torch import Tensor


def mean_magnitude(w: Tensor) -> Tensor:
    """``α_o = mean|w_o|`` (O,): the scale that minimises ``‖w_o − α_o sign(w_o)‖²``."""
    return w.abs().flatten(1).mean(1)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each process holds a part (a DTensor, as FSDP makes them); all processes must ask.
    Differentiable.  Any other tensor is whole already."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def per_filter(values: Tensor, w: Tensor) -> Tensor:
    """One value per filter, in a shape that multiplies ``w``."""
    return values.reshape(-1, *[1] * (w.dim() - 1))


def in_single(values: Tensor) -> Tensor:
    """At least float32: half precision has neither singular values nor anything as small as 1e-8."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
