"""Filters: ``w[o]`` of a weight (O, C, kh, kw) or (O, C), which computes one output channel."""

import torch
from torch import Tensor


def mean_magnitude(w: Tensor) -> Tensor:
    """``α_o = mean|w_o|`` (O,): the scale that minimises ``‖w_o − α_o sign(w_o)‖²``."""
    return w.abs().flatten(1).mean(1)


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor that is sharded over processes (a DTensor, as in FSDP).  All processes must call it.  It is
    differentiable.  Any other tensor is returned unchanged."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def per_filter(values: Tensor, w: Tensor) -> Tensor:
    """One value per filter, in a shape that broadcasts against ``w``."""
    return values.reshape(-1, *[1] * (w.dim() - 1))


def in_single(values: Tensor) -> Tensor:
    """At least float32, because half precision supports neither singular values nor numbers as small as 1e-8."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
