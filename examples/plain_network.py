"""A plain network: convolutions one after the other, without shortcuts."""

from torch import nn

from rbnn.models import Bricks, register_model


@register_model(image_size=32)
def plain_three(bricks: Bricks) -> nn.Module:
    """Three convolutions of 32 channels, the last two binary."""
    return nn.Sequential(
        nn.Conv2d(bricks.in_channels, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), bricks.activation(32),
        bricks.conv(32, 32, 3, stride=2), nn.BatchNorm2d(32), bricks.activation(32),
        bricks.conv(32, 32, 3), nn.BatchNorm2d(32), bricks.activation(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, bricks.num_classes),
    )  # fmt: skip
