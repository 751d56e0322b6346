"""BNN: Binarized Neural Networks (Hubara et al., NeurIPS 2016)."""

import torch
from torch import Tensor

from rbnn.functional import ScaledSigns, binarize
from rbnn.methods._method import SignInputs
from rbnn.methods._options import estimators
from rbnn.methods._registry import register_method


@register_method("bnn")
class BNN(SignInputs):
    """Plain signs, no scale; latent weights are kept in [−1, 1].

        forward   sign(w) ⊛ sign(x)
        backward  identity for the weight, 1[|x| ≤ 1] for the activation

    After every step the latent weight is clamped to [−1, 1].  With the clamp, identity and STE differ only in the
    momentum of weights at the border.  A weight of ±1 passes unchanged, so this is also the method for
    ``rbnn.optim.Bop``, which has no latent weights.

    estimator           gradient estimator for the activation's sign
    weight_estimator    gradient estimator for the weight's sign
    """

    def __init__(self, weight: Tensor, *, estimator: str = "ste", weight_estimator: str = "identity") -> None:
        super().__init__()
        estimators("bnn", estimator=estimator, weight_estimator=weight_estimator)
        self.estimator, self.weight_estimator = estimator, weight_estimator

    def weight(self, w: Tensor) -> ScaledSigns:
        return ScaledSigns(binarize(w, self.derivative(self.weight_estimator)))

    @torch.no_grad()
    def after_step(self, w: Tensor) -> None:
        w.clamp_(-1, 1)
