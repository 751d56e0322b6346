"""LAB: Loss-Aware Binarization (Hou, Yao and Kwok, ICLR 2017)."""

import torch
from torch import Tensor

from rbnn.functional import ScaledSigns, in_single, sign, whole
from rbnn.methods._method import SignInputs
from rbnn.methods._options import estimators
from rbnn.methods._registry import register_method

MEMORY = 0.999
"""Decay of the second moment, as in Adam."""

FLOOR = 1e-8


@register_method("lab")
class LAB(SignInputs):
    """Signs times one scale per layer, weighted by the curvature of the loss.

        forward   α sign(w) ⊛ sign(x),   α = Σ d|w| / Σ d,   d = √v + 1e-8
        backward  identity from the binarized weight to w (α is a constant)
                  1[|x| ≤ 1] for the activation
        v         moving average (0.999) of g², g the gradient of the binarized weight

    After every step v is updated with g and the latent weight is clamped to [−1, 1].  By the identity, g is the
    gradient of w itself, so v is computed from ``w.grad``, summed over micro-batches and averaged over processes,
    with any optimiser.
    With Adam the step is the paper's proximal Newton step.  v = 0 at the start gives α = mean|w|.

    estimator    gradient estimator for the activation's sign
    """

    def __init__(self, weight: Tensor, *, estimator: str = "ste") -> None:
        super().__init__()
        estimators("lab", estimator=estimator)
        self.estimator = estimator
        self.register_buffer("moment", torch.zeros_like(weight, requires_grad=False))

    moment: Tensor

    @torch.no_grad()
    def scale(self, w: Tensor) -> Tensor:
        """α, one number."""
        curvature = in_single(self.moment).sqrt() + FLOOR
        return ((curvature * w.abs()).sum() / curvature.sum()).to(w)

    def weight(self, w: Tensor) -> ScaledSigns:
        return ScaledSigns(sign(w), self.scale(w), soft=w)

    @torch.no_grad()
    def after_step(self, w: Tensor) -> None:
        if w.grad is not None:
            self.moment.lerp_(whole(w.grad).square(), 1 - MEMORY)
        w.clamp_(-1, 1)

    def measures(self) -> dict[str, float]:
        return {"curvature": float(self.moment.sqrt().mean())}
