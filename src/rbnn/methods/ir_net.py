"""IR-Net: Forward and Backward Information Retention (Qin et al., CVPR 2020)."""

import torch
from torch import Tensor

from rbnn.functional import Binarization, Derivative, ScaledSigns, binarize, mean_magnitude, standardise
from rbnn.methods._method import Method
from rbnn.methods._options import between, estimators
from rbnn.methods._registry import register_method


@register_method("ir-net")
class IRNet(Method):
    """Signs of the standardised weight times a power of two; the gradient is an error decay estimator.

        ŵ = (w − mean)/std per filter, std unbiased; a constant filter becomes zeros
        forward   2^round(log2 mean|ŵ_o|) sign(ŵ) ⊛ sign(x)   (the scale is a constant in the backward pass)
        backward  k t (1 − tanh²(t z)) for both signs, then through mean and std
                  t = 10^(t_min + e/E (t_max − t_min)),  k = max(1/t, 1)

    t_min           initial exponent of t: −3 as in the authors' ResNet-20; their VGG-small and the paper start at −1
    t_max           final exponent of t
    estimator       gradient estimator for both signs
    """

    def __init__(self, weight: Tensor, *, t_min: float = -3.0, t_max: float = 1.0, estimator: str = "ede") -> None:
        super().__init__()
        estimators("ir-net", estimator=estimator)
        between("ir-net", "t_min", t_min, -10, 10)
        between("ir-net", "t_max", t_max, t_min, 10)
        self.t_min, self.t_max, self.estimator = float(t_min), float(t_max), estimator

    def before_sign(self, w: Tensor) -> Tensor:
        return standardise(w)

    @torch.no_grad()
    def scale(self, standard: Tensor) -> Tensor:
        """A power of two per filter; 1 for a constant filter, which has no magnitude."""
        magnitude = mean_magnitude(standard)
        return torch.exp2(torch.round(torch.log2(torch.where(magnitude > 0, magnitude, 1.0))))

    def weight(self, w: Tensor) -> ScaledSigns:
        standard = self.before_sign(w)
        return ScaledSigns(binarize(standard, self._derivative()), self.scale(standard))

    def binarization(self) -> Binarization:
        return Binarization(self._derivative())

    def _derivative(self) -> Derivative:
        return self.derivative(self.estimator, self.t_min, self.t_max)
