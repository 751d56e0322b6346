"""ResNet-18 and ResNet-34 for 224×224 images, with Bi-Real structure."""

from functools import partial

from torch import Tensor, nn

from rbnn.models._initial_weights import initialise_weights
from rbnn.models._registry import Bricks, register_model
from rbnn.models._shortcuts import create_shortcut
from rbnn.models.cifar_resnet import BiRealBlock, branch_norms, make_stages


class ImageNetResNet(nn.Module):
    """A 7×7 stem with pooling, four stages of Bi-Real blocks with float 1×1 shortcuts, average pooling, batch norm,
    linear."""

    def __init__(self, bricks: Bricks, blocks: tuple[int, int, int, int]) -> None:
        super().__init__()
        channels = [bricks.channels(each) for each in (64, 128, 256, 512)]
        self.conv1 = nn.Conv2d(bricks.in_channels, channels[0], 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        self.activation = bricks.activation(channels[0])
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        counts = dict(zip(channels, blocks, strict=True))
        self.layers = make_stages(bricks, BiRealBlock, counts, partial(create_shortcut, "conv"))
        self.bn2 = nn.BatchNorm1d(channels[-1])
        self.fc = nn.Linear(channels[-1], bricks.num_classes)
        initialise_weights(self, branch_norms(self) if bricks.binary else ())

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.activation(self.bn1(self.conv1(x))))
        return self.fc(self.bn2(self.layers(x).mean((2, 3))))  # type: ignore[no-any-return]


@register_model(image_size=224)
def resnet18(bricks: Bricks) -> nn.Module:
    """ResNet-18 for ImageNet with Bi-Real structure and float 1×1 shortcuts."""
    return ImageNetResNet(bricks, (2, 2, 2, 2))


@register_model(image_size=224)
def resnet34(bricks: Bricks) -> nn.Module:
    """ResNet-34 for ImageNet with Bi-Real structure and float 1×1 shortcuts."""
    return ImageNetResNet(bricks, (3, 4, 6, 3))
