"""VGG-small for 32×32 images."""

from torch import Tensor, nn

from rbnn.errors import ConfigError
from rbnn.models._initial_weights import initialise_weights
from rbnn.models._registry import Bricks, register_model


class VGGSmall(nn.Module):
    """128-128-M-256-256-M-512-512-M and one linear layer; a pool M comes before the batch norm of its layer."""

    def __init__(self, bricks: Bricks) -> None:
        super().__init__()
        if bricks.image_size < 8:
            raise ConfigError(
                f"vgg-small halves the image three times: image_size must be at least 8, got {bricks.image_size}"
            )
        layers: list[nn.Module] = []
        before = bricks.in_channels
        for index, channels in enumerate(map(bricks.channels, (128, 128, 256, 256, 512, 512))):
            layers.append(
                nn.Conv2d(before, channels, 3, 1, 1, bias=False) if index == 0 else bricks.conv(before, channels, 3)
            )
            if index % 2:
                layers.append(nn.MaxPool2d(2))
            layers += [nn.BatchNorm2d(channels), bricks.activation(channels)]
            before = channels
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(before * (bricks.image_size // 8) ** 2, bricks.num_classes)
        initialise_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x).flatten(1))  # type: ignore[no-any-return]


@register_model(image_size=32)
def vgg_small(bricks: Bricks) -> nn.Module:
    """VGG-small for CIFAR: six 3×3 convolutions, 128 to 512 channels."""
    return VGGSmall(bricks)
