"""Bi-Real Net (Liu et al., ECCV 2018)."""

from torch import Tensor

from rbnn.functional import ScaledSigns, binarize, mean_magnitude
from rbnn.methods._method import SignInputs
from rbnn.methods._options import estimators, one_of
from rbnn.methods._registry import register_method


@register_method("bi-real")
class BiReal(SignInputs):
    """Signs times the mean magnitude of each filter; the activation's gradient is a piecewise polynomial.

        forward   α sign(w) ⊛ sign(x),   α_o = mean|w_o|, a constant in the backward pass
        backward  α·1[|w| ≤ 1] g for the weight (aware of its magnitude)
                  max(2 − 2|x|, 0) for the activation

    The other half of Bi-Real Net is its structure, a shortcut around every convolution: networks with ``bireal`` in
    their name and those for ImageNet have it.

    gradient            of the weight: ``paper`` as above; ``release``: 1[|w| ≤ 1] g without α.  The authors' Caffe
                        version is ``release`` with ``weight_estimator = "identity"``
    estimator           gradient estimator for the activation's sign
    weight_estimator    gradient estimator for the weight's sign
    """

    def __init__(
        self, weight: Tensor, *, gradient: str = "paper", estimator: str = "ppf", weight_estimator: str = "ste"
    ) -> None:
        super().__init__()
        one_of("bi-real", "gradient", gradient, ("paper", "release"))
        estimators("bi-real", estimator=estimator, weight_estimator=weight_estimator)
        self.gradient, self.estimator, self.weight_estimator = gradient, estimator, weight_estimator

    def weight(self, w: Tensor) -> ScaledSigns:
        signs, scale = binarize(w, self.derivative(self.weight_estimator)), mean_magnitude(w.detach())
        return ScaledSigns(signs, scale) if self.gradient == "paper" else ScaledSigns(signs.detach(), scale, soft=signs)
