"""Networks by name, one file per family.  Each has a float twin: ``create_model(name, method="float")``."""

from rbnn.models import cifar_resnet, imagenet_resnet, vgg  # noqa: F401  (registers the networks)
from rbnn.models._registry import MODELS, Bricks, create_model, model_names, register_model

__all__ = ["MODELS", "Bricks", "create_model", "model_names", "register_model"]
