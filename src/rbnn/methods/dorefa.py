"""DoReFa-Net (Zhou et al., 2016), weights of one bit."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rbnn.functional import ScaledSigns, binarize
from rbnn.functional.binarize import with_derivative
from rbnn.methods._form import BinaryForm
from rbnn.methods._method import Method
from rbnn.methods._options import between, estimators
from rbnn.methods._registry import register_method

MOST_BITS = 8


@register_method("dorefa")
class DoReFa(Method):
    """1-bit weights with one scale per layer, and k-bit activations in [0, 1].

        forward   E sign(w) ⊛ q(x),   E = mean|w| of the layer,   q(x) = level/(2^k − 1)
                  level = number of thresholds strictly below x:  (2i − 1)/(2(2^k − 1)), i = 1 … 2^k − 1
        backward  identity for the weight (E is a constant), 1[0 ≤ x ≤ 1] for the activation

    With one bit the activations are {0, 1} with threshold ½, not ±1.  The rule for levels is that of
    ``round((2^k − 1) clip(x, 0, 1))`` with ties rounded down.

    With G gradient bits the gradient r of the layer's output is quantised per image, m = max|r|:
    ``2m (q_G(clip(r/2m + ½ + N, 0, 1)) − ½)``,  ``N ~ U(−½, ½)/(2^G − 1)``,  ``q_G(z) = round((2^G − 1) z)/(2^G − 1)``.

    activation_bits     k
    gradient_bits       G; 32 leaves gradients unchanged
    weight_estimator    gradient estimator for the weight's sign
    """

    inputs_near_one = True

    def __init__(
        self, weight: Tensor, *, activation_bits: int = 1, gradient_bits: int = 32, weight_estimator: str = "identity"
    ) -> None:
        super().__init__()
        between("dorefa", "activation_bits", activation_bits, 1, MOST_BITS)
        between("dorefa", "gradient_bits", gradient_bits, 1, 32)
        estimators("dorefa", weight_estimator=weight_estimator)
        self.activation_bits, self.gradient_bits = activation_bits, gradient_bits
        self.weight_estimator = weight_estimator

    def thresholds(self) -> list[float]:
        """A value above i thresholds has level i."""
        steps = 2**self.activation_bits - 1
        return [(2 * i - 1) / (2 * steps) for i in range(1, steps + 1)]

    def weight(self, w: Tensor) -> ScaledSigns:
        signs = binarize(w, self.derivative(self.weight_estimator))
        return ScaledSigns(signs.detach(), w.detach().abs().mean(), soft=signs)

    def activation(self, x: Tensor) -> Tensor:
        return with_derivative(x, lambda x: (x >= 0) & (x <= 1), self.levels)

    def levels(self, x: Tensor) -> Tensor:
        """q(x)."""
        thresholds = self.thresholds()
        level = torch.zeros_like(x)
        for threshold in thresholds:
            level += x > threshold
        return level / len(thresholds)

    def binary_form(self, w: Tensor) -> BinaryForm:
        thresholds = self.thresholds()  # a plane s_j = ±1 for each: level/steps = Σ (s_j + 1)/2 / steps
        levels = (0.5 / len(thresholds),) * len(thresholds)
        return replace(super().binary_form(w), thresholds=tuple(thresholds), levels=levels, offset=0.5)

    def output(self, y: Tensor, x: Tensor) -> Tensor:
        if self.gradient_bits == 32:
            return y
        return _QuantisedGradient.apply(y, self.gradient_bits)  # type: ignore[no-untyped-call, no-any-return]


class _QuantisedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bits: int) -> Tensor:
        ctx.steps = 2**bits - 1
        return y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        steps = ctx.steps
        largest = grad.abs().amax(tuple(range(1, grad.dim())), keepdim=True)
        span = 2 * torch.where(largest > 0, largest, 1.0)  # a gradient of zeros stays zero
        noise = (torch.rand_like(grad) - 0.5) / steps
        level = torch.round((grad / span + 0.5 + noise).clamp(0, 1) * steps)
        return torch.where(largest > 0, span * (level / steps - 0.5), 0.0), None
