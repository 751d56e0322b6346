"""BNN+, later called Regularized Binary Network Training (Darabi et al., 2018)."""

import torch
from torch import Tensor, nn

from rbnn.functional import ScaledSigns, binarize, mean_magnitude, per_filter
from rbnn.methods._method import SignInputs
from rbnn.methods._options import between, estimators, one_of
from rbnn.methods._registry import register_method

SMALLEST_SCALE = 1e-4


@register_method("bnn+")
class BNNPlus(SignInputs):
    """Signs times a learned scale, and a penalty that pulls the magnitudes of the weights towards it.

        forward   α sign(w) ⊛ sign(x),   α learned
        backward  SwishSign, β = 5, for the activation;  1[|w| ≤ 1] for the weight
        penalty   λ Σ | |w| − α |  (R1)   or   λ Σ (|w| − α)²  (R2), summed over the weights

    α gets gradients from both.  It starts at the best value for the penalty, median|w| (R1) or mean|w| (R2), and stays
    at or above 1e-4.  The penalty replaces weight decay on the weights, which are clamped to [−1, 1] after every step.

    regulariser         ``r1`` or ``r2``
    strength            λ
    scale               one α per ``filter`` or ``layer``
    estimator           gradient estimator for the activation's sign
    weight_estimator    gradient estimator for the weight's sign
    """

    def __init__(
        self,
        weight: Tensor,
        *,
        regulariser: str = "r1",
        strength: float = 1e-6,
        scale: str = "filter",
        estimator: str = "swish-sign",
        weight_estimator: str = "ste",
    ) -> None:
        super().__init__()
        one_of("bnn+", "regulariser", regulariser, ("r1", "r2"))
        one_of("bnn+", "scale", scale, ("filter", "layer"))
        between("bnn+", "strength", strength, 0, float("inf"))
        estimators("bnn+", estimator=estimator, weight_estimator=weight_estimator)
        self.regulariser, self.strength = regulariser, strength
        self.estimator, self.weight_estimator = estimator, weight_estimator
        groups = weight.detach().flatten(1) if scale == "filter" else weight.detach().reshape(1, -1)
        best = groups.abs().median(1).values if regulariser == "r1" else mean_magnitude(groups)
        self.alpha = nn.Parameter(best.clamp_min(SMALLEST_SCALE))

    def weight(self, w: Tensor) -> ScaledSigns:
        return ScaledSigns(binarize(w, self.derivative(self.weight_estimator)), self.alpha)

    def penalty(self, w: Tensor) -> Tensor | None:
        distance = w.abs() - per_filter(self.alpha, w)
        return self.strength * (distance.abs() if self.regulariser == "r1" else distance.square()).sum()

    @torch.no_grad()
    def after_step(self, w: Tensor) -> None:
        w.clamp_(-1, 1)
        self.alpha.clamp_(min=SMALLEST_SCALE)

    def measures(self) -> dict[str, float]:
        return {"scale": float(self.alpha.detach().mean())}

    def decay_factors(self) -> dict[str, float]:
        return {"layer.weight": 0.0, "alpha": 0.0}
