"""Networks by name, one file per family.  Each has a float twin: ``create_model(name, method="float")``."""

from rbnn.models import cifar_resnet, imagenet_resnet, vgg  # noqa: F401  (registers the networks)
from rbnn.models._registry import MODELS, Bricks, Join, create_model, model_names, register_model
from rbnn.models.cifar_resnet import OptionA

__all__ = ["MODELS", "Bricks", "Join", "OptionA", "create_model", "model_names", "register_model"]
