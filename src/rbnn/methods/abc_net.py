"""ABC-Net (Lin, Zhao and Pan, NeurIPS 2017)."""

import torch
from torch import Tensor, nn

from rbnn.functional import binarize, sign
from rbnn.methods._form import BinaryForm
from rbnn.methods._method import Method
from rbnn.methods._options import between, estimators
from rbnn.methods._registry import register_method

RIDGE = 1e-8
"""Regularisation, because bases can coincide.  The normal equations are divided by the number of weights, so this is
relative to 1."""

MOST_BASES = 16

REACH = 0.5
"""F' of the activations' sign is taken at x / REACH."""


@register_method("abc-net")
class ABCNet(Method):
    """Weights as a sum of M sign bases, activations as a sum of N.

        forward   Σ_i α_i B_i  ⊛  Σ_j β_j A_j
        weights   B_i = sign(w − mean(w) + u_i std(w)),   mean and std of the layer,
                  u_i = −1 + 2(i − 1)/(M − 1)   (u = 0 for M = 1),
                  α = argmin ‖w − Σ α_i B_i‖², computed in each forward pass
        inputs    A_j = sign(x + v_j − ½),  β_j and v_j learned
        backward  Σ_i α_i g for the weight (α, mean and std are constants)
                  1[0 ≤ x + v_j ≤ 1] for x and v_j

    Both sums are linear, so training needs one convolution; inference with bits needs M·N.  β_j starts at 1/N and the
    thresholds ½ − v_j at j/(N + 1), because equal thresholds would stay equal forever.  std divides by n.

    weight_bases        M
    activation_bases    N
    estimator           F' of the inputs' signs, taken at 2(x + v_j) − 1, so that ``ste`` is 1[0 ≤ x + v_j ≤ 1]
    weight_estimator    gradient estimator for the weights' signs
    """

    inputs_near_one = True

    def __init__(
        self,
        weight: Tensor,
        *,
        weight_bases: int = 1,
        activation_bases: int = 1,
        estimator: str = "ste",
        weight_estimator: str = "identity",
    ) -> None:
        super().__init__()
        between("abc-net", "weight_bases", weight_bases, 1, MOST_BASES)
        between("abc-net", "activation_bases", activation_bases, 1, MOST_BASES)
        estimators("abc-net", estimator=estimator, weight_estimator=weight_estimator)
        self.weight_bases = weight_bases
        self.estimator, self.weight_estimator = estimator, weight_estimator
        count = activation_bases
        spread = torch.arange(1, count + 1, dtype=weight.dtype, device=weight.device) / (count + 1)
        self.shift = nn.Parameter(0.5 - spread)
        self.factor = nn.Parameter(torch.full_like(spread, 1 / count))

    def before_sign(self, w: Tensor) -> Tensor:
        return w - w.detach().mean()

    def shifted(self, w: Tensor) -> list[Tensor]:
        """The M tensors whose signs are the bases."""
        centred = self.before_sign(w)
        if self.weight_bases == 1:
            return [centred]
        std = w.detach().std(correction=0)
        last = self.weight_bases - 1
        return [centred + (2 * i / last - 1) * std for i in range(last + 1)]

    @torch.no_grad()
    def weight_factors(self, w: Tensor) -> Tensor:
        """``α`` (M,), from the normal equations ``B Bᵀ α = B w``."""
        bases = torch.stack([sign(shifted).flatten() for shifted in self.shifted(w)])
        # Only a few numbers, solved in double precision on the CPU, because not every device supports double.
        gram = (bases @ bases.mT / w.numel()).cpu().double()
        target = (bases @ w.flatten() / w.numel()).cpu().double()
        solved: Tensor = torch.linalg.solve(gram + RIDGE * torch.eye(len(gram), dtype=torch.float64), target)
        return solved.to(w)

    def weight(self, w: Tensor) -> Tensor:
        derivative = self.derivative(self.weight_estimator)
        bases = torch.stack([binarize(shifted, derivative) for shifted in self.shifted(w)])
        return torch.einsum("m...,m->...", bases, self.weight_factors(w))

    @torch.no_grad()
    def binary_form(self, w: Tensor) -> BinaryForm:
        signs = torch.stack([sign(shifted) for shifted in self.shifted(w)]).to(torch.int8).cpu().numpy()
        factors = self.weight_factors(w).cpu().double()[:, None].expand(-1, w.shape[0]).numpy()
        thresholds = tuple((0.5 - self.shift.detach()).cpu().double().tolist())
        return BinaryForm(signs, factors, thresholds, tuple(self.factor.detach().cpu().double().tolist()))

    def activation(self, x: Tensor) -> Tensor:
        derivative = self.derivative(self.estimator)

        def narrowed(z: Tensor) -> Tensor:
            return derivative(z / REACH)

        return torch.stack(
            [b * binarize(x + (v - 0.5), narrowed) for b, v in zip(self.factor, self.shift, strict=True)]
        ).sum(0)
