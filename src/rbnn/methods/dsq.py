"""DSQ: Differentiable Soft Quantization (Gong et al., ICCV 2019), one bit."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.functional import ScaledSigns, sign
from rbnn.methods._form import BinaryForm
from rbnn.methods._method import Method
from rbnn.methods._registry import register_method

ALPHA_START, ALPHA_LOW, ALPHA_HIGH = 0.2, 1e-3, 0.5
SMALLEST_RANGE = 1e-4


class SoftSign(nn.Module):
    """Forward: hard ``c sign(x)``.  Backward: the derivative with respect to x, c and α of

        c tanh(k clip(x, −c, c)) / (1 − α),     k = ln(2/α − 1)/(2c)

    which is DSQ's φ for one interval [−c, c]: it reaches ±c at the ends.  The smaller α, the closer it is to a step.
    """

    def __init__(self, limit: Tensor) -> None:
        super().__init__()
        # One number each, with one dimension, because FSDP does not accept scalars.
        self.limit = nn.Parameter(limit.reshape(1).clamp_min(SMALLEST_RANGE))
        self.alpha = nn.Parameter(torch.full_like(self.limit, ALPHA_START, requires_grad=False))

    def forward(self, x: Tensor) -> ScaledSigns:
        c, alpha = self.limit, self.alpha
        k = torch.log(2 / alpha - 1) / (2 * c)
        soft = c * torch.tanh(k * torch.clamp(x, -c, c)) / (1 - alpha)
        return ScaledSigns(sign(x), c.detach(), soft)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Also loads files in which they are scalars."""
        for key in (prefix + "limit", prefix + "alpha"):
            if key in state_dict and state_dict[key].dim() == 0:
                state_dict[key] = state_dict[key].reshape(1)
        super()._load_from_state_dict(state_dict, prefix, *rest)  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def confine(self) -> None:
        """Keep c above 0 and α in (0, ½], beyond which φ is no longer a step."""
        self.limit.clamp_(min=SMALLEST_RANGE)
        self.alpha.clamp_(ALPHA_LOW, ALPHA_HIGH)


@register_method("dsq")
class DSQ(Method):
    """Signs times a learned range; the gradient is that of a soft step with learned sharpness.

        forward   c_w sign(w) ⊛ c_x sign(x)
        backward  that of c tanh(k clip(x, −c, c))/(1 − α) with respect to x, c and α
                  k = ln(2/α − 1)/(2c)

    c and α are learned, one pair per layer for the weight and one for the activation.  The range is symmetric, so that
    one bit is a sign.  c starts at mean|w| for the weight and at 1 for the activation, α at 0.2; after every step
    c ≥ 1e-4 and 0.001 ≤ α ≤ ½.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        values = weight.detach()
        self.of_weight = SoftSign(values.abs().mean())
        self.of_activation = SoftSign(values.new_ones(()))

    def weight(self, w: Tensor) -> ScaledSigns:
        return self.of_weight(w)  # type: ignore[no-any-return]

    def activation(self, x: Tensor) -> Tensor:
        return self.of_activation(x).product()  # type: ignore[no-any-return]

    def binary_form(self, w: Tensor) -> BinaryForm:
        return replace(super().binary_form(w), levels=(float(self.of_activation.limit.detach()),))

    def after_step(self, w: Tensor) -> None:
        self.of_weight.confine()
        self.of_activation.confine()

    def measures(self) -> dict[str, float]:
        return {"softness": float(self.of_weight.alpha.detach())}
