"""Sign, and the estimators that replace its derivative in the backward pass.

The forward pass is always the hard ``sign(x) = +1 if x > 0 else −1``.  An estimator defines ``d sign/dx``.  Those that
change over training depend on ``t`` (sharpness) and ``k`` (gain):

    identity         1
    ste              1[|x| ≤ 1]
    ppf              max(2 − 2|x|, 0)
    training-aware   max(k(√2 t − t²|x|), 0)                  (RBNN, eq. 13)
    ede              k t (1 − tanh²(t x))                      (IR-Net)
    swish-sign       β(2 − βx tanh(βx/2)) / (1 + cosh βx), β = 5       (BNN+; negative where |x| > 2.3994/β)
    annealed-tanh    β(1 − tanh²(βx)), β from 1 to 10                  (Ajanthan et al.)

All except swish-sign are tents, ``max(peak − slope·|x|, 0) (1 − tanh²(steepness·x))`` inside a support.  On a CPU one
fused kernel computes them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt

import torch
from torch import Tensor

from rbnn.errors import UnknownName


def sign(x: Tensor) -> Tensor:
    """``+1 if x > 0 else −1``.  Zero maps to −1, so there is no third value."""
    return torch.where(x > 0, 1.0, -1.0).to(x.dtype)


Number = float | Tensor
"""A number that changes over training.  In a torch.compile graph it is a tensor with one value, because a float would
be a constant and each epoch would be recompiled."""


def sharpness(progress: Number, low: float, high: float) -> Number:
    """``t = 10^(low + e/E (high − low))``, ``progress = e/E``."""
    return 10.0 ** (low + progress * (high - low))  # type: ignore[no-any-return]


def sharpness_and_gain(name: str, progress: Number, low: float, high: float) -> tuple[Number, Number]:
    """``t`` and ``k`` of the estimator ``name`` at e/E = ``progress``, with exponents of t from ``low`` to ``high``.

    ``annealed-tanh`` has its own range, ``β = 10^(e/E)``, because a larger β makes the gradients vanish."""
    t = sharpness(progress, *((0.0, 1.0) if name == "annealed-tanh" else (low, high)))
    return t, gain(t)


def gain(t: Number) -> Number:
    """``k = max(1/t, 1)``."""
    return _at_least_one(1.0 / t)


def floored(t: Number) -> tuple[Number, float]:
    """``max(t, 1)`` and ``k = 1``, as for RBNN's activations in the published runs."""
    return _at_least_one(t), 1.0


def _at_least_one(x: Number) -> Number:
    return x.clamp_min(1.0) if isinstance(x, Tensor) else max(x, 1.0)


@lru_cache(maxsize=64)
def _constant(numbers: tuple[float, ...]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@dataclass(frozen=True)
class Tent:
    """``d sign/dx = max(peak − slope·|x|, 0) (1 − tanh²(steepness·x))`` where ``|x| ≤ support``, otherwise 0."""

    peak: Number
    slope: Number
    support: float
    steepness: Number = 0.0

    def numbers(self) -> Tensor:
        """The four as one tensor, in double on the CPU."""
        numbers = self.peak, self.slope, self.support, self.steepness
        if any(isinstance(each, Tensor) for each in numbers):
            return torch.stack([torch.as_tensor(each, dtype=torch.float64) for each in numbers])
        if torch.compiler.is_compiling():
            return torch.tensor(numbers, dtype=torch.float64)
        return _constant(numbers)  # type: ignore[arg-type]

    def __call__(self, x: Tensor) -> Tensor:
        magnitude = x.abs()
        height = (self.peak - self.slope * magnitude).clamp_min(0) * (magnitude <= self.support)
        if isinstance(self.steepness, float) and self.steepness == 0:
            return height
        return height * (1 - torch.tanh(self.steepness * x).square())


def error_decay(t: Number, k: Number) -> Tent:
    """``k t (1 − tanh²(t x))``: IR-Net's error decay estimator."""
    return Tent(peak=k * t, slope=0.0, support=inf, steepness=t)


@dataclass(frozen=True)
class SwishSign:
    """``β(2 − βx tanh(βx/2)) / (1 + cosh βx)``: the derivative of ``2σ(βx)(1 + βx(1 − σ(βx))) − 1``."""

    beta: float

    def __call__(self, x: Tensor) -> Tensor:
        z = self.beta * x
        # 1/(1 + cosh z) = 2σ(z)σ(−z): cosh itself overflows float32 beyond 88.
        return 2 * self.beta * torch.sigmoid(z) * torch.sigmoid(-z) * (2 - z * torch.tanh(z / 2))


SWISH_SIGN_BETA = 5.0

Derivative = Callable[[Tensor], Tensor]

ESTIMATORS: dict[str, Callable[[Number, Number], Derivative]] = {
    "identity": lambda t, k: Tent(peak=1.0, slope=0.0, support=inf),
    "ste": lambda t, k: Tent(peak=1.0, slope=0.0, support=1.0),
    "ppf": lambda t, k: Tent(peak=2.0, slope=2.0, support=1.0),
    "training-aware": lambda t, k: Tent(peak=sqrt(2.0) * t * k, slope=t * t * k, support=inf),
    "ede": error_decay,
    "swish-sign": lambda t, k: SwishSign(SWISH_SIGN_BETA),
    "annealed-tanh": lambda t, k: error_decay(t, 1.0),
}


def estimator(name: str, t: Number, k: Number) -> Derivative:
    """The derivative of the estimator ``name`` at sharpness t and gain k."""
    if name not in ESTIMATORS:
        raise UnknownName("estimator", name, ESTIMATORS)
    return ESTIMATORS[name](t, k)


def training_aware(x: Tensor, t: float, k: float) -> Tensor:
    """``F(x) = k(−sign(x) t²x²/2 + √2 t x)`` for ``|x| < √2/t``, otherwise ``k sign(x)`` (eq. 12).  The training-aware
    estimator is its derivative.  Only figures and tests compute it, training never does."""
    inside = k * (-torch.sign(x) * (t * x).square() / 2 + sqrt(2.0) * t * x)
    return torch.where(x.abs() < sqrt(2.0) / t, inside, k * torch.sign(x))
