"""Balanced bits: in every filter half of the signs are +1."""

import torch
from torch import Tensor

from rbnn.functional import Binarization, ScaledSigns, binarize, mean_magnitude, per_filter
from rbnn.methods import Method, register_method


@register_method("balanced")
class Balanced(Method):
    """Signs around the median of the filter, times the mean distance from it.

        forward   α sign(w − m) ⊛ sign(x),   m_o = median(w_o),   α_o = mean|w_o − m_o|
        backward  the estimator's derivative for both signs; m is a constant

    estimator    gradient estimator for both signs
    """

    def __init__(self, weight: Tensor, *, estimator: str = "ste") -> None:
        super().__init__()
        self.estimator = estimator

    def before_sign(self, w: Tensor) -> Tensor:
        return w - per_filter(w.detach().flatten(1).median(dim=1).values, w)

    def weight(self, w: Tensor) -> ScaledSigns:
        centred = self.before_sign(w)
        return ScaledSigns(binarize(centred, self.derivative(self.estimator)), mean_magnitude(centred))

    def binarization(self) -> Binarization:
        return Binarization(self.derivative(self.estimator))

    @torch.no_grad()
    def after_step(self, w: Tensor) -> None:
        w.clamp_(-1, 1)
