"""XNOR-Net++ (Bulat and Tzimiropoulos, BMVC 2019)."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from rbnn.errors import ConfigError, NotBinary
from rbnn.functional import ScaledSigns, binarize, mean_magnitude
from rbnn.methods._form import BinaryForm
from rbnn.methods._method import Method, SignInputs
from rbnn.methods._options import estimators, one_of
from rbnn.methods._registry import register_method

CASES = (1, 2, 3, 4)


@register_method("xnor++")
class XNORPlusPlus(SignInputs):
    """A learned scale for each output channel and position, instead of XNOR-Net's computed scales.

        forward   Γ ⊙ (sign(w) ⊛ sign(x))
        backward  1[|·| ≤ 1] for both signs; Γ by ordinary backpropagation

        case 1    Γ_ohw = α_o                  any image size
        case 2    Γ_ohw dense                  H×W of the output, fixed by the first forward pass
        case 3    Γ_ohw = α_o β_hw
        case 4    Γ_ohw = α_o β_h γ_w          the published one

    α starts at mean|w_o|, β and γ at 1, so at first the layer is XNOR-Net without K.  Γ has no weight decay.  A signal
    has one dimension, so case 4 equals case 3.  A linear layer has no positions, so all cases are case 1.

    Named networks know their image size.  Run one batch through your own network before you create its optimizer;
    after that, other sizes raise an error.

    case         see above
    estimator    gradient estimator for both signs
    """

    def __init__(self, weight: Tensor, *, case: int = 4, estimator: str = "ste") -> None:
        super().__init__()
        one_of("xnor++", "case", case, CASES)
        estimators("xnor++", estimator=estimator)
        self.estimator = estimator
        self.case = case if weight.dim() > 2 else 1
        alpha = mean_magnitude(weight.detach())
        # Case 2 needs α too, until the number of positions is known.
        self.alpha = nn.Parameter(alpha) if self.case != 2 else None
        self.register_buffer("start", alpha if self.case == 2 else None, persistent=False)
        self.dense: nn.Parameter | None = None
        self.beta: nn.Parameter | None = None
        self.gamma: nn.Parameter | None = None

    start: Tensor | None

    @property
    def size(self) -> tuple[int, ...] | None:
        """The size of the outputs that Γ was made for: height and width of an image, or the length of a signal.  None
        if there is no such restriction yet."""
        return _size(self.dense, self.beta, self.gamma)

    @property
    def needs_example(self) -> bool:  # type: ignore[override]
        return self.case > 1 and self.size is None

    def _set_size(self, size: tuple[int, ...]) -> None:
        if self.case == 2:
            assert self.start is not None
            self.dense = nn.Parameter(self.start.reshape(-1, *[1] * len(size)).repeat(1, *size))
            return
        assert self.alpha is not None
        apart = self.case == 4 and len(size) == 2
        self.beta = nn.Parameter(self.alpha.new_ones(size[:1] if apart else size))
        self.gamma = nn.Parameter(self.alpha.new_ones(size[1])) if apart else None

    def weight(self, w: Tensor) -> ScaledSigns:
        return ScaledSigns(binarize(w, self.derivative(self.estimator)), self.alpha)

    def output(self, y: Tensor, x: Tensor) -> Tensor:
        if self.case == 1:
            return y
        size = tuple(y.shape[2:])
        if self.size is None:
            self._set_size(size)
        elif self.size != size:
            known, given = ("×".join(map(str, each)) for each in (self.size, size))
            raise ConfigError(
                f"method 'xnor++' learned a factor for each of {known} positions, but this image gives {given}: "
                "resize it, or train with case = 1, which takes any size"
            )
        return y * self.position_factors()

    def position_factors(self) -> Tensor:
        """Γ without α: (O, H, W) in case 2, otherwise (H, W); for signals (O, L) and (L)."""
        if self.dense is not None:
            return self.dense
        assert self.beta is not None
        return self.beta if self.gamma is None else self.beta[:, None] * self.gamma

    def binary_form(self, w: Tensor) -> BinaryForm:
        form = super().binary_form(w)
        if self.case == 1:
            return form
        if self.size is None:
            raise NotBinary("xnor++ does not know its factors per position yet: run one batch through the network")
        return replace(form, positions=self.position_factors().detach().cpu().double().numpy())

    def inherit(self, before: Method) -> None:
        if self.needs_example and isinstance(before, XNORPlusPlus) and before.size is not None:
            self._set_size(before.size)

    def decay_factors(self) -> dict[str, float]:
        return {name: 0.0 for name, _ in self.named_parameters()}

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """A method that has not seen an image takes the size from the file."""
        size = _size(*(state_dict.get(prefix + name) for name in ("dense", "beta", "gamma")))
        if self.needs_example and size is not None:
            self._set_size(size)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _size(dense: Tensor | None, beta: Tensor | None, gamma: Tensor | None) -> tuple[int, ...] | None:
    if dense is not None:
        return tuple(dense.shape[1:])
    if beta is None:
        return None
    return tuple(beta.shape) if gamma is None else (len(beta), len(gamma))
