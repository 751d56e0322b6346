"""What binarization does to a weight: angle, quantisation error, flips.

With the optimal scale ``λ* = wᵀb / bᵀb`` the error is ``‖w − λ* b‖² = ‖w‖² sin²θ``, θ the angle between the
weight w and its binarization b (eq. 2 of the paper).  Each function sees its first argument as one vector.
"""

import torch
from torch import Tensor


def _vector(values: Tensor) -> Tensor:
    """In float64, and therefore on the CPU, because Apple's GPU does not support float64."""
    return values.cpu().double().flatten()


def cosine(w: Tensor, b: Tensor) -> float:
    """``cos θ = wᵀb / (‖w‖ ‖b‖)``; 0 if one of them is zero."""
    w, b = _vector(w), _vector(b)
    norms = w.norm() * b.norm()
    return float(w @ b / norms) if norms > 0 else 0.0


def angle(w: Tensor, b: Tensor) -> float:
    """θ in degrees."""
    return float(torch.rad2deg(torch.acos(torch.tensor(cosine(w, b), dtype=torch.float64).clamp(-1, 1))))


def optimal_scale(w: Tensor, b: Tensor) -> float:
    """``λ* = wᵀb / bᵀb``; for signs b of w it is mean|w|."""
    w, b = _vector(w), _vector(b)
    return float(w @ b / (b @ b))


def quantisation_error(w: Tensor, b: Tensor) -> float:
    """Absolute error ``‖w − λ* b‖²``."""
    return float((_vector(w) - optimal_scale(w, b) * _vector(b)).square().sum())


def relative_quantisation_error(w: Tensor, b: Tensor) -> float:
    """``‖w − λ* b‖² / ‖w‖² = sin²θ``: between 0 (w is already binary) and 1."""
    return 1.0 - cosine(w, b) ** 2


def flip_rate(before: Tensor, after: Tensor) -> float:
    """Share of signs that differ."""
    return float(_vector(before != after).mean())
