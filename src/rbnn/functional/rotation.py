"""The bi-rotation of RBNN (sections 3.2 and 3.3 of the paper) as pure functions of tensors.

A group of ``n`` standardised weights is reshaped to a matrix ``W`` (n1×n2, row-major) and rotated from both sides,

    Rᵀw  =  Vec(R1ᵀ W R2),        R = R1 ⊗ R2,        n = n1·n2,

so that two small orthogonal matrices replace one of n×n.  They maximise ``tr(B R2ᵀ Wᵀ R1)``, which is
``√n ‖w‖ cos φ`` with φ the angle between the rotated weights and their signs ``B`` (eq. 6).

``w`` has the shape (F, n), with F groups that share one pair of rotations.  ``filter`` granularity has one group per
filter, ``layer`` granularity one group for the whole weight.  The last ``n − n1·n2`` values of a group are not rotated,
which keeps the whole map orthogonal: diag(R1 ⊗ R2, I).
"""

from math import isqrt

import torch
from torch import Tensor

from rbnn.functional import kernels
from rbnn.functional.binarize import binarize
from rbnn.functional.estimators import Derivative, Tent, sign

LARGEST_SIDE = 2048
"""Largest size of R1 and R2; otherwise a prime n = 4099 would need a 4099×4099 matrix."""


def factor_pair(n: int) -> tuple[int, int]:
    """``(n1, n2)`` with ``n1·n2 = n``, ``n1 ≤ n2`` and n1 as close to √n as possible."""
    n1 = next(d for d in range(isqrt(n), 0, -1) if n % d == 0)
    return n1, n // n1


def rotation_shape(n: int) -> tuple[int, int]:
    """Sizes of R1 and R2 for groups of n values: the factor pair of n, or of the nearest smaller number whose factors
    are at most ``LARGEST_SIDE``."""
    for rotated in range(n, 0, -1):
        n1, n2 = factor_pair(rotated)
        if n2 <= max(LARGEST_SIDE, isqrt(n) + 1):
            return n1, n2
    raise ValueError(f"a group of weights must have at least one value, got {n}")


def random_orthogonal(n: int, generator: torch.Generator | None = None) -> Tensor:
    """A uniformly (Haar) distributed orthogonal matrix: QR of a Gaussian matrix, signs of R's diagonal fixed."""
    q: Tensor
    r: Tensor
    q, r = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))
    # Q is stored column by column; file formats take only contiguous tensors.
    return (q * torch.where(r.diagonal() < 0, -1.0, 1.0)).float().contiguous()


def polar_factor(g: Tensor) -> Tensor:
    """The orthogonal matrix ``U Vᵀ`` nearest to ``G = U S Vᵀ``; it maximises ``tr(Gᵀ X)`` at the nuclear norm of G.

    A rank-deficient or zero G has many; the SVD picks one, which is still orthogonal.
    """
    u, _, vt = torch.linalg.svd(g)
    factor: Tensor = u @ vt
    return factor


def polish(r: Tensor) -> Tensor:
    """One Newton–Schulz step ``R (3I − RᵀR)/2``.  It squares the float32 error of ``RᵀR − I``, so that the error does
    not accumulate over a thousand epochs."""
    return 1.5 * r - 0.5 * r @ (r.mT @ r)


def rotate(w: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """``Rᵀw = Vec(R1ᵀ W R2)`` for each row of ``w`` (F, n): eq. 5."""
    n = r1.shape[0] * r2.shape[0]
    turned = (r1.mT @ as_matrices(w, r1, r2) @ r2).reshape(-1, n)
    return turned if n == w.shape[1] else torch.cat([turned, w[:, n:]], dim=1)


def as_matrices(w: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """The rotated part of each row of ``w`` as ``W`` (F, n1, n2), row-major."""
    n1, n2 = r1.shape[0], r2.shape[0]
    return w[:, : n1 * n2].reshape(-1, n1, n2)


def alignment(w: Tensor, r1: Tensor, r2: Tensor, b: Tensor) -> Tensor:
    """The objective ``tr(B R2ᵀ Wᵀ R1)`` of eq. 7, summed over the groups."""
    return (b * (r1.mT @ w @ r2)).sum()


def b_step(w: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """``B = sign(R1ᵀ W R2)`` (eq. 8)."""
    return sign(r1.mT @ w @ r2)


def r1_step(w: Tensor, r2: Tensor, b: Tensor) -> Tensor:
    """``R1 = V Uᵀ`` of ``G1 = Σ B R2ᵀ Wᵀ = U S Vᵀ`` (eq. 9)."""
    n1 = b.shape[-2]
    # Σ_f B_f (W_f R2)ᵀ as one product over (filter, column).
    g1 = b.transpose(0, 1).reshape(n1, -1) @ (w @ r2).transpose(0, 1).reshape(n1, -1).mT
    return polar_factor(g1.mT)


def r2_step(w: Tensor, r1: Tensor, b: Tensor) -> Tensor:
    """``R2 = U Vᵀ`` of ``G2 = Σ Wᵀ R1 B = U S Vᵀ`` (eq. 10)."""
    n2 = b.shape[-1]
    g2 = (r1.mT @ w).reshape(-1, n2).mT @ b.reshape(-1, n2)
    return polar_factor(g2)


@torch.no_grad()
def optimise_rotation(w: Tensor, r1: Tensor, r2: Tensor, cycles: int = 3) -> tuple[Tensor, Tensor]:
    """``cycles`` rounds of B-step, R1-step and R2-step from ``(R1, R2)``; no step lowers the objective."""
    matrices = as_matrices(w, r1, r2)
    for _ in range(cycles):
        b = b_step(matrices, r1, r2)
        r1 = r1_step(matrices, r2, b)
        r2 = r2_step(matrices, r1, b)
    return polish(r1), polish(r2)


def adjustable_weight(w: Tensor, r1: Tensor, r2: Tensor, alpha: Tensor, rotated_gradient: bool = True) -> Tensor:
    """``w̃ = w + α (Rᵀw − w)`` (eq. 11), with ∂w̃/∂w = (1 − α) I + α Rᵀ.  Without ``rotated_gradient`` it is
    ∂w̃/∂w = (1 − α) I, as in the authors' release.

    ``w`` is (F, n); ``alpha`` is a scalar tensor, (F, 1), or any shape that broadcasts against it.
    """
    return torch.lerp(w, rotate(w if rotated_gradient else w.detach(), r1, r2), alpha)


def rotated_weight(
    w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool = True
) -> Tensor:
    """``w̃`` of each filter of ``w``, standardised: eq. 11 with ``α = |sin β|``, one β per filter or one for all.
    Without β, α is 1.  Without rotations, w̃ is the standardised weight.  On a CPU it is one kernel in each
    direction."""
    if kernels.fusable(w) and w[0].numel() > 1:
        mixed, _, _ = kernels.rotated_weight(w, r1, r2, beta, rotated_gradient)
        return mixed  # type: ignore[no-any-return]
    standard = _standardised(w)
    if r1 is None or r2 is None:
        return standard
    share = w.new_ones(()) if beta is None else beta.sin().abs()[:, None]
    return adjustable_weight(standard.flatten(1), r1, r2, share, rotated_gradient).reshape(w.shape)


def rotated_signs(
    w: Tensor,
    r1: Tensor | None,
    r2: Tensor | None,
    beta: Tensor | None,
    rotated_gradient: bool,
    derivative: Derivative,
) -> Tensor:
    """The signs of :func:`rotated_weight`, with ``derivative`` as d sign/dx."""
    if isinstance(derivative, Tent) and kernels.fusable(w) and w[0].numel() > 1:
        return kernels.rotated_signs(w, r1, r2, beta, rotated_gradient, derivative.numbers())[0]  # type: ignore[no-any-return]
    return binarize(rotated_weight(w, r1, r2, beta, rotated_gradient), derivative)


def standardise(w: Tensor) -> Tensor:
    """Each filter minus its mean, divided by its unbiased standard deviation.  A constant filter becomes zeros, and a
    filter with a single value is divided by its magnitude."""
    return rotated_weight(w, None, None, None)


def _standardised(w: Tensor) -> Tensor:
    flat = w.flatten(1)
    if flat.shape[1] == 1:
        return torch.sign(w)  # w/|w| with its derivative, which is 0 also where w is
    centred = flat - flat.mean(dim=1, keepdim=True)
    variance = centred.square().sum(dim=1, keepdim=True) / (flat.shape[1] - 1)
    # A constant filter leaves rounding noise of the order eps·|mean|; standardising that would make signs of it.
    floor = (4 * torch.finfo(w.dtype).eps * flat.detach().abs().amax(dim=1, keepdim=True)).square()
    alive = variance > floor
    std = torch.where(alive, variance, 1.0).sqrt()
    return torch.where(alive, centred / std, 0.0).reshape(w.shape)
