"""A binarized weight, with its signs and their scale kept separate for kernels that compute with bits."""

from dataclasses import dataclass

from torch import Tensor

from rbnn.functional.binarize import straight_through
from rbnn.functional.filters import per_filter


@dataclass(frozen=True)
class ScaledSigns:
    """The weight ``scale · signs``.  Both parts are differentiable, and get the gradient of the weight by the product
    rule.  With ``soft``, the gradient goes unchanged to ``soft``, and the two parts are constants."""

    signs: Tensor
    """±1, in the shape of the weight."""
    scale: Tensor | None = None
    """One number per filter, or one for all; None is 1."""
    soft: Tensor | None = None
    """In the shape of the weight; its values do not matter."""

    def product(self) -> Tensor:
        """The weight as one tensor."""
        made = self.signs if self.scale is None else self.signs * per_filter(self.scale, self.signs)
        return made if self.soft is None else straight_through(made, self.soft)

    def of_height_one(self) -> "ScaledSigns":
        """The weight for signals (O, C, L) as a weight for images (O, C, 1, L)."""
        return ScaledSigns(self.signs[:, :, None], self.scale, None if self.soft is None else self.soft[:, :, None])


def as_tensor(weight: ScaledSigns | Tensor) -> Tensor:
    """The result of ``Method.weight`` as one tensor."""
    return weight.product() if isinstance(weight, ScaledSigns) else weight
