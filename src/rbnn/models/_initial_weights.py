"""The initial weights of a network."""

from collections.abc import Iterable

from torch import nn

from rbnn.nn import binary_layers


def initialise_weights(model: nn.Module, tiny_gammas: Iterable[nn.BatchNorm2d] = ()) -> None:
    """Kaiming-normal convolutions; batch-norm gammas at 1, those of ``tiny_gammas`` at 1e-8.  The methods then start
    from these weights.

    With tiny norms at the end of its branches, a residual network starts as its shortcuts alone.  Norms in the main
    path must not be tiny: in ResNet-18 for ImageNet the stem's gradients then grow to 1e6 in three steps.  A method
    with a threshold near ½ (DoReFa, ABC-Net) cannot see tiny inputs, so its networks have no tiny gammas.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    blind = any(layer.method.inputs_near_one for _, layer in binary_layers(model))
    for norm in () if blind else tiny_gammas:
        nn.init.constant_(norm.weight, 1e-8)
    for _, layer in binary_layers(model):
        layer.restart_method()
