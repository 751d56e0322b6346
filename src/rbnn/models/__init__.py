"""Networks by name, one file per family.  Each has a float twin: ``create_model(name, method="float")``."""

from rbnn.models import cifar_resnet, imagenet_resnet, vgg  # noqa: F401  (registers the networks)
from rbnn.models._after_add import ACTIVATIONS, Join, RPReLU
from rbnn.models._registry import (
    MODELS,
    OWN,
    Bricks,
    check_width,
    create_model,
    model_names,
    register_model,
)
from rbnn.models._shortcuts import SHORTCUTS, OptionA

__all__ = [
    "ACTIVATIONS",
    "MODELS",
    "OWN",
    "SHORTCUTS",
    "Bricks",
    "Join",
    "OptionA",
    "RPReLU",
    "check_width",
    "create_model",
    "model_names",
    "register_model",
]
