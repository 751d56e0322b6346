"""Small networks that return maps: segmentation, pose, style transfer, super-resolution."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def double_conv(channels: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    """Skip connections are padded to the size of the map that they join."""

    def __init__(self, bilinear: bool) -> None:
        super().__init__()
        self.inc, self.down, self.deep = double_conv(3, 8), double_conv(8, 16), double_conv(16, 16)
        self.up = (
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            if bilinear
            else nn.ConvTranspose2d(16, 16, 2, stride=2)
        )
        self.join = double_conv(32, 8)
        self.last = nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1, groups=2)
        self.head = nn.Conv2d(16, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.inc(x)
        second = self.down(F.max_pool2d(first, 2))
        third = self.deep(F.max_pool2d(second, 2))
        up = self.up(third)
        high, wide = second.size()[2] - up.size()[2], second.size()[3] - up.size()[3]
        up = F.pad(up, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
        joined = self.last(self.join(torch.cat([second, up], dim=1)))
        if joined.shape[-2:] != first.shape[-2:]:
            joined = F.interpolate(joined, size=first.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(torch.cat([first, joined], 1))


class FCN(nn.Module):
    """Two named heads, upsampled to the image's size."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.deep = nn.Conv2d(16, 16, 3, padding=2, dilation=2)
        self.out, self.aux = nn.Conv2d(16, 4, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        size = x.shape[-2:]
        middle = self.body(x)
        answers = {}
        for name, head, features in (("out", self.out, F.relu(self.deep(middle))), ("aux", self.aux, middle)):
            answers[name] = F.interpolate(head(features), size=size, mode="bilinear", align_corners=False)
        return answers


class ASPP(nn.Module):
    """DeepLab's module: the image's mean, upsampled, next to dilated convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, stride=2, padding=1)
        self.branches = nn.ModuleList(
            [nn.Conv2d(12, 6, 1), *(nn.Conv2d(12, 6, 3, padding=d, dilation=d) for d in (2, 3))]
        )
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 6, 1), nn.ReLU())
        self.head = nn.Sequential(
            nn.Conv2d(24, 8, 1), nn.GroupNorm(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(8, 3, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.elu(self.stem(x))
        parts = [branch(y) for branch in self.branches]
        parts.append(F.interpolate(self.pooled(y), size=y.shape[2:], mode="bilinear", align_corners=True))
        y = self.head(torch.cat(parts, dim=1))
        return F.interpolate(y, scale_factor=2.0, mode="nearest").log_softmax(1)


class Hourglass(nn.Module):
    """Pose: downsampling and upsampling, with heat maps after each of two stacks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, 2, 1)
        self.downs = nn.ModuleList(nn.Conv2d(12, 12, 3, padding=1) for _ in range(4))
        self.heads = nn.ModuleList(nn.Conv2d(12, 4, 1) for _ in range(2))
        self.back = nn.Conv2d(4, 12, 1)

    def glass(self, x: Tensor, depth: int, at: int) -> Tensor:
        low = F.relu(self.downs[at + depth](F.max_pool2d(x, 2, stride=2)))
        low = self.glass(low, depth - 1, at) if depth > 0 and min(low.shape[2:]) > 2 else low
        return x + F.interpolate(low, size=(x.shape[2], x.shape[3]), mode="nearest")

    def forward(self, x: Tensor) -> list[Tensor]:
        x, maps = F.relu(self.stem(x)), []
        for stack, head in enumerate(self.heads):
            y = self.glass(x, 1, 2 * stack)
            maps.append(head(y))
            x = x + y + self.back(maps[-1])
        return maps


class AttentionGate(nn.Module):
    """Attention U-Net's gate, CBAM's two attentions, and max over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.g = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1)
        self.wx, self.wg, self.psi = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 1), nn.Conv2d(4, 1, 1)
        self.mlp, self.spatial = (
            nn.Sequential(nn.Conv2d(8, 2, 1), nn.ReLU(), nn.Conv2d(2, 8, 1)),
            nn.Conv2d(2, 1, 7, padding=3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.x(x))
        g = F.interpolate(self.g(x), size=x.shape[2:], mode="bicubic", align_corners=False)
        x = x * torch.sigmoid(self.psi(F.relu(self.wx(x) + self.wg(g))))
        x = torch.sigmoid(self.mlp(F.adaptive_avg_pool2d(x, 1)) + self.mlp(F.adaptive_max_pool2d(x, 1))) * x
        largest, _ = torch.max(x, dim=1, keepdim=True)
        return x * self.spatial(torch.cat([x.mean(1, keepdim=True), largest], dim=1)).sigmoid()


class StyleTransfer(nn.Module):
    """Reflected borders, instance norms, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.ReflectionPad2d(4), nn.Conv2d(3, 8, 9), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1, padding_mode="reflect"), nn.InstanceNorm2d(8), nn.ReLU(),
            nn.Upsample(scale_factor=2), nn.ReplicationPad2d((1, 0, 2, 1)),
            nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"),
            nn.ConstantPad2d((0, -2, 1, 1), 0.5), nn.Conv2d(8, 3, 3), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return (self.net(x) + 1) * 127.5


class SuperResolution(nn.Module):
    """Sub-pixel convolution, and space to depth before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(12, 16, 3, padding=1), nn.Conv2d(16, 3 * 4 * 4, 3, padding=1)
        self.shuffle = nn.PixelShuffle(4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.pixel_unshuffle(x[:, :, :12, :10], 2)
        return self.shuffle(self.second(F.relu(self.first(x)))).clamp(0, 1)


class SegNet(nn.Module):
    """Max-unpooling, and partial assignment to the border."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.up = (
            nn.Conv2d(3, 12, 3, padding=1),
            double_conv(12, 12),
            nn.Conv2d(12, 4, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        small, places = F.max_pool2d(F.relu(self.down(x[..., :12, :10])), 2, return_indices=True)
        y = self.up(F.max_unpool2d(self.deep(small), places, 2))
        y[:, :, 0] = 0
        return y
