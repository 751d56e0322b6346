"""The mathematics of binary networks as pure functions of tensors."""

from rbnn.functional.batch_norm import norm_add_hardtanh, norm_add_hardtanh_possible
from rbnn.functional.binarize import (
    Binarization,
    add_hardtanh,
    binarize,
    binarize_standardised,
    straight_through,
)
from rbnn.functional.branch import BranchEnd, branch, branch_possible
from rbnn.functional.estimators import (
    ESTIMATORS,
    Derivative,
    Number,
    estimator,
    floored,
    gain,
    sharpness,
    sharpness_and_gain,
    sign,
    training_aware,
)
from rbnn.functional.filters import in_single, mean_magnitude, per_filter, whole
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
    rotated_signs,
    rotated_weight,
    rotation_shape,
    standardise,
)
from rbnn.functional.scaled_signs import ScaledSigns, as_tensor
from rbnn.functional.shortcut import option_a
from rbnn.functional.sign_conv import sign_conv2d, sign_conv_possible
from rbnn.functional.unit_std import over_std

__all__ = [
    "ESTIMATORS",
    "Binarization",
    "BranchEnd",
    "Derivative",
    "Number",
    "ScaledSigns",
    "add_hardtanh",
    "adjustable_weight",
    "angle",
    "as_tensor",
    "binarize",
    "binarize_standardised",
    "branch",
    "branch_possible",
    "cosine",
    "estimator",
    "factor_pair",
    "flip_rate",
    "floored",
    "gain",
    "in_single",
    "mean_magnitude",
    "norm_add_hardtanh",
    "norm_add_hardtanh_possible",
    "optimal_scale",
    "optimise_rotation",
    "option_a",
    "over_std",
    "per_filter",
    "polar_factor",
    "polish",
    "quantisation_error",
    "random_orthogonal",
    "relative_quantisation_error",
    "rotate",
    "rotated_signs",
    "rotated_weight",
    "rotation_shape",
    "sharpness",
    "sharpness_and_gain",
    "sign",
    "sign_conv2d",
    "sign_conv_possible",
    "standardise",
    "straight_through",
    "training_aware",
    "whole",
]
