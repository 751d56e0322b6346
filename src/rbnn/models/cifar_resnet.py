"""ResNets for 32×32 images: ResNet-20 in both structures, and ResNet-18."""

from collections.abc import Callable, Iterator
from functools import partial

from torch import Tensor, nn

from rbnn.models._initial_weights import initialise_weights
from rbnn.models._registry import Bricks, register_model
from rbnn.models._shortcuts import OptionA, projection


class BasicBlock(nn.Module):
    """conv → norm → activation → conv → norm, and one shortcut around both."""

    def __init__(self, bricks: Bricks, in_channels: int, out_channels: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = bricks.conv(in_channels, out_channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.activation = bricks.activation(out_channels)
        self.conv2 = bricks.conv(out_channels, out_channels, 3)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = shortcut
        self.join = bricks.join(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.bn1(self.conv1(x)))
        return self.join.after(self.conv2, self.bn2, y, self.shortcut(x))


class BiRealBlock(nn.Module):
    """conv → norm, and a shortcut around every convolution (Bi-Real Net)."""

    def __init__(self, bricks: Bricks, in_channels: int, out_channels: int, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1 = bricks.conv(in_channels, out_channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = bricks.conv(out_channels, out_channels, 3)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.shortcut = shortcut
        self.join1, self.join2 = bricks.join(out_channels), bricks.join(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.join1.after(self.conv1, self.bn1, x, self.shortcut(x))
        return self.join2.after(self.conv2, self.bn2, y, y)


Block = type[BasicBlock] | type[BiRealBlock]


def make_stages(
    bricks: Bricks, block: Block, blocks: dict[int, int], own: Callable[[int, int, int], nn.Module]
) -> nn.Sequential:
    """Stages of ``blocks``; all but the first halve the image.  ``own`` makes the published shortcut for (in channels,
    out channels, stride)."""
    stages: list[nn.Module] = []
    first = before = next(iter(blocks))
    for channels, count in blocks.items():
        stage: list[nn.Module] = []
        for index in range(count):
            stride = 2 if channels > first and index == 0 else 1
            shortcut = bricks.shortcut(before, channels, stride, partial(own, before, channels, stride))
            stage.append(block(bricks, before, channels, stride, shortcut))
            before = channels
        stages.append(nn.Sequential(*stage))
    return nn.Sequential(*stages)


def branch_norms(model: nn.Module) -> Iterator[nn.BatchNorm2d]:
    """The batch norms at the end of the branches: after each convolution of a block, not in stem and shortcuts."""
    for module in model.modules():
        if isinstance(module, BasicBlock | BiRealBlock):
            yield module.bn1
            yield module.bn2


class CifarResNet(nn.Module):
    """A 3×3 stem, stages of blocks that halve the image, average pooling, batch norm, linear."""

    def __init__(self, bricks: Bricks, layers: nn.Sequential, stem: int, features: int, activation: nn.Module) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(bricks.in_channels, stem, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(stem)
        self.activation = activation
        self.layers = layers
        self.bn2 = nn.BatchNorm1d(features)
        self.fc = nn.Linear(features, bricks.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.activation(self.bn1(self.conv1(x))))
        return self.fc(self.bn2(x.mean((2, 3))))  # type: ignore[no-any-return]


def _resnet20(bricks: Bricks, block: Block) -> nn.Module:
    first, second, third = map(bricks.channels, (16, 32, 64))
    layers = make_stages(bricks, block, {first: 3, second: 3, third: 3}, OptionA)
    model = CifarResNet(bricks, layers, first, third, bricks.activation(first))
    initialise_weights(model, branch_norms(model) if bricks.binary else ())
    return model


@register_model(image_size=32)
def resnet20(bricks: Bricks) -> nn.Module:
    """ResNet-20 for CIFAR: one shortcut around two convolutions, no weights in the shortcuts."""
    return _resnet20(bricks, BasicBlock)


@register_model(image_size=32)
def resnet20_bireal(bricks: Bricks) -> nn.Module:
    """ResNet-20 for CIFAR with Bi-Real structure: a shortcut around every convolution."""
    return _resnet20(bricks, BiRealBlock)


@register_model(image_size=32)
def resnet18_cifar(bricks: Bricks) -> nn.Module:
    """ResNet-18 for CIFAR: 64 to 512 channels, 1×1 convolutions in the shortcuts that are binary too.

    As in the published network, no activation follows the stem of the binary network.
    """

    def binary(in_channels: int, out_channels: int, stride: int) -> nn.Module:
        return projection(bricks.conv(in_channels, out_channels, 1, stride), out_channels)

    channels = [bricks.channels(each) for each in (64, 128, 256, 512)]
    layers = make_stages(bricks, BasicBlock, dict.fromkeys(channels, 2), binary)
    activation = nn.Identity() if bricks.binary else bricks.activation(channels[0])
    model = CifarResNet(bricks, layers, channels[0], channels[-1], activation)
    initialise_weights(model)
    return model
