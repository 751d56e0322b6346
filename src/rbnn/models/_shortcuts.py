"""The shortcut where the size changes: half the height and width, more channels."""

from torch import Tensor, nn

from rbnn.functional import option_a

SHORTCUTS = ("option-a", "pool-pad", "pool-conv", "conv")


class OptionA(nn.Module):
    """The parameter-free shortcut: every ``stride``-th pixel, new channels filled with zeros on both sides."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride, self.margin = stride, (out_channels - in_channels) // 2

    def forward(self, x: Tensor) -> Tensor:
        return option_a(x, self.stride, self.margin)


def create_shortcut(name: str, in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """The shortcut ``name``; the identity if neither size nor channels change.

    option-a     every second pixel, channels of zeros on both sides
    pool-pad     the mean of 2×2 pixels, channels of zeros on both sides
    pool-conv    the mean of 2×2 pixels, a float 1×1 convolution, batch norm
    conv         a float 1×1 convolution of every second pixel, batch norm

    An image with an odd size has means of fewer pixels at its edge.
    """
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    if name == "option-a":
        return OptionA(in_channels, out_channels, stride)
    if name == "conv":
        return projection(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), out_channels)
    pool = nn.AvgPool2d(stride, ceil_mode=True)
    if name == "pool-pad":
        return nn.Sequential(pool, OptionA(in_channels, out_channels, 1))
    return nn.Sequential(pool, *projection(nn.Conv2d(in_channels, out_channels, 1, bias=False), out_channels))


def projection(conv: nn.Module, channels: int) -> nn.Sequential:
    """A convolution and its batch norm."""
    return nn.Sequential(conv, nn.BatchNorm2d(channels))
