"""What binarization does to a weight: angle, quantisation error, flips.

With the optimal scale ``λ* = wᵀb / bᵀb`` the error is ``‖w − λ* b‖² = ‖w‖² sin²θ``, θ the angle between the
weight w and its binarization b (eq. 2 of the paper).  Each function sees its first argument as one vector.
"""

import torch
from torch import Tensor


def cosine(w: Tensor, b: Tensor) -> float:
    """``cos θ = wᵀb / (‖w‖ ‖b‖)``; 0 where one of them is zero."""
    w, b = w.double().flatten(), b.double().flatten()
    norms = w.norm() * b.norm()
    return float(w @ b / norms) if norms > 0 else 0.0


def angle(w: Tensor, b: Tensor) -> float:
    """θ in degrees."""
    return float(torch.rad2deg(torch.acos(torch.tensor(cosine(w, b), dtype=torch.float64).clamp(-1, 1))))


def optimal_scale(w: Tensor, b: Tensor) -> float:
    """``λ* = wᵀb / bᵀb``; for signs b of w it is mean|w|."""
    w, b = w.double().flatten(), b.double().flatten()
    return float(w @ b / (b @ b))


def quantisation_error(w: Tensor, b: Tensor) -> float:
    """Absolute error ``‖w − λ* b‖²``."""
    return float((w.double().flatten() - optimal_scale(w, b) * b.double().flatten()).square().sum())


def relative_quantisation_error(w: Tensor, b: Tensor) -> float:
    """``‖w − λ* b‖² / ‖w‖² = sin²θ``: between 0 (w is binary already) and 1."""
    return 1.0 - cosine(w, b) ** 2


def flip_rate(before: Tensor, after: Tensor) -> float:
    """Share of signs that differ."""
    return float((before != after).double().mean())
