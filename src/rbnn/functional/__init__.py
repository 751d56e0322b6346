"""The mathematics of binary networks, as pure functions on tensors."""

from rbnn.functional.binarize import add_hardtanh, binarize, binarize_standardised
from rbnn.functional.estimators import (
    ESTIMATORS,
    Derivative,
    estimator,
    gain,
    sharpness,
    sign,
    training_aware,
)
from rbnn.functional.measures import (
    angle,
    cosine,
    flip_rate,
    optimal_scale,
    quantisation_error,
    relative_quantisation_error,
)
from rbnn.functional.rotation import (
    adjustable_weight,
    factor_pair,
    optimise_rotation,
    polar_factor,
    polish,
    random_orthogonal,
    rotate,
    rotation_shape,
    standardise,
)
from rbnn.functional.shortcut import option_a

__all__ = [
    "ESTIMATORS",
    "Derivative",
    "add_hardtanh",
    "adjustable_weight",
    "angle",
    "binarize",
    "binarize_standardised",
    "cosine",
    "estimator",
    "factor_pair",
    "flip_rate",
    "gain",
    "optimal_scale",
    "optimise_rotation",
    "option_a",
    "polar_factor",
    "polish",
    "quantisation_error",
    "random_orthogonal",
    "relative_quantisation_error",
    "rotate",
    "rotation_shape",
    "sharpness",
    "sign",
    "standardise",
    "training_aware",
]
