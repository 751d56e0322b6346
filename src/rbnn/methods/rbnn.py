"""RBNN: Rotated Binary Neural Network (Lin et al., NeurIPS 2020)."""

from dataclasses import replace
from math import inf, pi, sin

import torch
from torch import Tensor, nn

from rbnn.errors import ConfigError, TrainingError
from rbnn.functional import (
    Binarization,
    Number,
    ScaledSigns,
    adjustable_weight,
    binarize,
    estimator,
    floored,
    in_single,
    mean_magnitude,
    optimise_rotation,
    random_orthogonal,
    rotated_signs,
    rotated_weight,
    rotation_shape,
    sharpness_and_gain,
    standardise,
)
from rbnn.methods._form import BinaryForm
from rbnn.methods._method import T_MAX, T_MIN, Method
from rbnn.methods._options import between, estimators, one_of
from rbnn.methods._registry import register_method

GRANULARITIES = ("filter", "layer", "none")


@register_method("rbnn")
class RBNN(Method):
    """Rotate the weights towards their signs, binarize a learned mix, sharpen the gradient over training.

        w  = standardised weight (per filter)
        w̃  = w + α (Rᵀw − w),   R = R1 ⊗ R2,   α = |sin β|         (eq. 11; R fixed during an epoch)
        forward   s · sign(w̃)  ⊛  sign(x̂)                          (s learned per filter, from mean|w|)
        backward  F'(z) = max(k(√2 t − t²|z|), 0) for both signs   (eq. 13; t, k follow e/E)

    At the start of an epoch R1 and R2 get ``cycles`` rounds of alternating optimisation (eq. 8 to 10).

    The paper leaves some things open.  Each is an option.  The defaults are what the authors' runs used, except
    ``gradient``, which follows the paper:

    rotation        groups of weights that are rotated together: ``filter`` (C·kh·kw values, one rotation shared by all
                    filters), ``layer`` (all O·C·kh·kw values, the paper's text), ``none`` (R switched off)
    alpha           one β per ``filter`` or ``layer``; ``none`` fixes α at 1 (A switched off)
    beta_start      where β starts; at π/2 (α = 1) its gradient vanishes and only weight decay moves it
    beta_decay      weight decay of β, as a multiple of that of the weights
    estimator       ``training-aware`` (T), or another name of ``rbnn.functional.ESTIMATORS``; ``ste`` is T switched off
    t_max           final exponent of t, 1 in the paper; with less, the gradient narrows later and signs change longer
    floored         activations use k = 1 and t = max(t, 1), as in the published runs; otherwise the k and t of weights
    standardise     binarize activations as sign((x − mean)/std), mean and std per image, also at inference
    scaled          take the gradient of the activations' sign at x/std of the image; the sign is that of x, so
                    inference needs no statistics.  Requires standardise = false
    gradient        of w̃: ``paper``, (1 − α) I + α Rᵀ (eq. 15), or ``release``, (1 − α) I: the authors' code omits the
                    rotation, so weights get no gradient if α = 1
    cycles          rounds of B-, R1- and R2-step at the start of an epoch
    rotate_until    fraction of the training after which the rotation stays fixed; 1 rotates before every epoch, as in
                    the paper, 0 only before the first
    """

    def __init__(
        self,
        weight: Tensor,
        *,
        rotation: str = "filter",
        alpha: str = "filter",
        beta_start: float = pi / 2,
        beta_decay: float = 1.0,
        estimator: str = "training-aware",
        t_max: float = T_MAX,
        floored: bool = True,
        standardise: bool = True,
        scaled: bool = False,
        gradient: str = "paper",
        cycles: int = 3,
        rotate_until: float = 1.0,
    ) -> None:
        super().__init__()
        one_of("rbnn", "rotation", rotation, GRANULARITIES)
        one_of("rbnn", "alpha", alpha, GRANULARITIES)
        estimators("rbnn", estimator=estimator)
        between("rbnn", "beta_start", beta_start, -pi, pi)
        between("rbnn", "beta_decay", beta_decay, 0, inf)
        between("rbnn", "t_max", t_max, T_MIN, 10)
        if rotation == "none" and alpha != "none":
            raise ConfigError("alpha adjusts the rotation: with rotation = 'none', set alpha = 'none'")
        one_of("rbnn", "gradient", gradient, ("paper", "release"))
        if gradient == "release" and alpha == "none" and rotation != "none":
            raise ConfigError("gradient = 'release' gives no gradient where α = 1: set alpha to 'filter' or 'layer'")
        if scaled and standardise:
            raise ConfigError("scaled only divides activations by their std: set standardise = false")
        if cycles < 1 or not 0 <= rotate_until <= 1:
            raise ConfigError(f"expected cycles ≥ 1 and 0 ≤ rotate_until ≤ 1, got {cycles} and {rotate_until}")
        self.estimator, self.t_max, self.floored, self.standardise = estimator, float(t_max), floored, standardise
        self.scaled, self.rotated_gradient = scaled, gradient == "paper"
        self.cycles, self.rotate_until = cycles, rotate_until
        self.beta_decay = beta_decay
        filters = weight.shape[0]
        self.scale = nn.Parameter(mean_magnitude(weight.detach()))
        self.groups = filters if rotation == "filter" else 1
        self.rotates = rotation != "none"
        if self.rotates:
            n1, n2 = rotation_shape(weight.numel() // self.groups)
            generator = torch.Generator().manual_seed(_fingerprint(weight))
            self.register_buffer("R1", random_orthogonal(n1, generator).to(weight))
            self.register_buffer("R2", random_orthogonal(n2, generator).to(weight))
            self.register_buffer("rotated_at", torch.tensor(-1, dtype=torch.int64, device=weight.device))
        betas = {"filter": (filters,), "layer": (1,), "none": None}[alpha]
        self.beta = None if betas is None else nn.Parameter(weight.new_full(betas, beta_start))

    R1: Tensor
    R2: Tensor
    rotated_at: Tensor

    def alpha(self) -> Tensor | None:
        """``α = |sin β|``, one per filter or one for the layer."""
        return None if self.beta is None else self.beta.sin().abs()

    def before_sign(self, w: Tensor) -> Tensor:
        if self._by_filter(w):
            return rotated_weight(w, *self._rotation(), self.rotated_gradient)
        # The whole layer is rotated as one.  If α differs between filters, it is expanded to their values.
        flat, alpha = standardise(w).reshape(1, -1), self.alpha()
        if alpha is None:
            share = flat.new_ones(())
        else:
            share = alpha.repeat_interleave(w[0].numel() if alpha.numel() > 1 else 1)
        return adjustable_weight(flat, self.R1, self.R2, share, self.rotated_gradient).reshape(w.shape)

    def _by_filter(self, w: Tensor) -> bool:
        """Whether each filter is rotated by itself, or nothing is."""
        return not self.rotates or self.groups == len(w)

    def _rotation(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return (self.R1, self.R2, self.beta) if self.rotates else (None, None, None)

    @torch.no_grad()
    def keep_signs(self) -> None:
        """Set R = I and mark it as rotated; otherwise the first epoch would rotate the weights away from their
        signs."""
        if self.rotates:
            for rotation in (self.R1, self.R2):
                rotation.copy_(torch.eye(len(rotation)))
            self.rotated_at.zero_()

    def _sharpness(self) -> tuple[Number, Number]:
        return sharpness_and_gain(self.estimator, self.now(), T_MIN, self.t_max)

    def weight(self, w: Tensor) -> ScaledSigns:
        derivative = estimator(self.estimator, *self._sharpness())
        if self._by_filter(w):
            return ScaledSigns(rotated_signs(w, *self._rotation(), self.rotated_gradient, derivative), self.scale)
        return ScaledSigns(binarize(self.before_sign(w), derivative), self.scale)

    def binarization(self) -> Binarization:
        t, k = self._sharpness()
        if self.floored:
            t, k = floored(t)
        return Binarization(estimator(self.estimator, t, k), self.standardise, self.scaled)

    def binary_form(self, w: Tensor) -> BinaryForm:
        return replace(super().binary_form(w), centred=self.standardise)

    def continue_from(self, before: Method) -> bool:
        continued = super().continue_from(before)
        if continued and self.rotates:
            # Epoch 0 uses the existing rotation, because another one would change the trained signs.
            self.rotated_at.clamp_(max=0)
        return continued

    @torch.no_grad()
    def begin_epoch(self, w: Tensor, epoch: float, epochs: int) -> None:
        super().begin_epoch(w, epoch, epochs)
        first = self.rotates and int(self.rotated_at) < 0
        due = self.rotates and int(epoch) > int(self.rotated_at) and epoch < self.rotate_until * epochs
        if not (first or due):
            return
        if not bool(torch.isfinite(w).all()):
            raise TrainingError("a weight is not finite, so its rotation cannot be computed: lower the learning rate")
        flat = standardise(in_single(w)).reshape(self.groups, -1)
        r1, r2 = optimise_rotation(flat, in_single(self.R1), in_single(self.R2), self.cycles)
        if not bool(torch.isfinite(r1).all() and torch.isfinite(r2).all()):
            raise TrainingError("its rotation is not finite: lower the learning rate")
        self.R1.copy_(r1)
        self.R2.copy_(r2)
        self.rotated_at.fill_(int(epoch))

    def measures(self) -> dict[str, float]:
        if self.beta is None:
            return {}
        return {"alpha": sum(abs(sin(b)) for b in self.beta.tolist()) / self.beta.numel()}

    def decay_factors(self) -> dict[str, float]:
        return {"beta": self.beta_decay}


def _fingerprint(weight: Tensor) -> int:
    """A number derived from the weight's bits.  It seeds the first rotation instead of torch's generator, so that
    networks that differ only in their method start with the same weights."""
    if weight.is_meta:
        return 0
    return int(weight.detach().float().contiguous().view(torch.int32).long().sum()) % 2**63
