"""CNNs as users write them: each exportable operation as a module, a function and a method."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbnn import BinaryConv2d, BinaryLinear

CHANNELS, HEIGHT, WIDTH = 3, 13, 11
"""Odd on purpose."""


class Around(nn.Module):
    """A stem, a user's part, and a head that accepts any output."""

    def __init__(self, middle: Callable[[Tensor], Tensor], channels: int = 12) -> None:
        super().__init__()
        self.stem = nn.Conv2d(CHANNELS, channels, 3, padding=1)
        self.middle = middle
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.middle(self.norm(self.stem(x)))


class Attention(nn.Module):
    """Squeeze and excitation: vectors become one-pixel images and multiply the image."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(12, 5), nn.Linear(5, 12)

    def forward(self, x: Tensor) -> Tensor:
        n, c = x.size(0), x.shape[1]
        y = F.adaptive_avg_pool2d(x, 1).view(n, c)
        return x * torch.sigmoid(self.up(F.relu(self.down(y)))).view(n, c, 1, 1)


class Dense(nn.Module):
    """Concatenation, an element-wise product and a shortcut by slices and zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(12, 6, 3, padding=1, bias=False), BinaryConv2d(18, 24, 3, 2, 1, method="bnn")
        self.norm = nn.BatchNorm2d(24)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([x, F.hardtanh(self.one(x))], dim=1)
        shortcut = F.pad(x[:, 1:11, ::2, ::2], (0, 0, 0, 0, 7, 7))
        z = F.hardtanh(self.norm(self.two(y)) + shortcut)
        return z * z[:, :, :1, :1]


class Scaled(nn.Module):
    """Learned and constant factors and terms: per channel, per position, plain numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(1, 12, 1, 1))
        self.register_buffer("map", torch.randn(HEIGHT, WIDTH))
        self.register_buffer("all", torch.randn(12, HEIGHT, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale + self.scale[0]
        x = 2.0 - x / 3.0
        return (self.map * x).add(self.all, alpha=0.5) - x.mul(0.25)


class Depthwise(nn.Module):
    """Separable convolutions as in small networks, with hardswish and ReLU6."""

    def __init__(self) -> None:
        super().__init__()
        self.depth = nn.Conv2d(12, 12, 5, stride=2, padding=2, groups=12, bias=False)
        self.norm = nn.BatchNorm2d(12)
        self.point = nn.Conv2d(12, 20, 1)
        self.grouped = nn.Conv2d(20, 8, (3, 2), dilation=(2, 1), padding=(2, 3), groups=4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.norm(self.depth(x)))
        return self.grouped(F.relu6(self.point(x)))


class Vectors(nn.Module):
    """A binary multilayer perceptron behind the convolutions."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.one = BinaryLinear(12 * 6 * 5, 70, method=method)
        self.norm = nn.BatchNorm1d(70)
        self.two = BinaryLinear(70, 33, bias=False, method=method)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.hardtanh(x), 2).flatten(1)
        x = F.hardtanh(self.norm(self.one(x)))
        return self.two(x)


class Shared(nn.Module):
    """One layer called twice, one image binarized by two layers, and a module that is its own method."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = BinaryConv2d(12, 12, 3, padding=1, method="xnor-net")
        self.side = BinaryConv2d(12, 12, 1, method="xnor-net")
        self.activation = nn.Hardtanh(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.activation(self.conv(x))
        return self.activation(self.conv(y) + self.side(y)).mean((-1, -2), keepdim=True).squeeze(3).squeeze(2)


def binary(*arguments: object, method: str = "xnor-net", **more: object) -> nn.Module:
    """Binary convolution, batch norm, hardtanh and another binary convolution: only signs pass between them."""
    first = BinaryConv2d(*arguments, method=method, **more)  # type: ignore[arg-type]
    return nn.Sequential(
        first, nn.BatchNorm2d(first.out_channels), nn.Hardtanh(), BinaryConv2d(first.out_channels, 7, 2, method=method)
    )


class SumWithInput(nn.Module):
    """The input of a convolution, itself a convolution, is added to its output: the norm must not scale the input."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm = nn.Conv2d(12, 12, 1), nn.Conv2d(12, 12, 1), nn.BatchNorm2d(12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x)
        return self.norm(self.two(x) + x)


def pooled(pool: nn.Module, *between: nn.Module, method: str = "bnn") -> nn.Module:
    """A pool between two binary layers."""
    return nn.Sequential(BinaryConv2d(12, 20, 3, method=method), pool, *between, BinaryConv2d(20, 9, 1, method=method))


class Sum(nn.Module):
    """A shortcut, then a batch norm, whose factor cannot be folded into the convolution: it adds unscaled values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = BinaryConv2d(12, 12, 3, padding=1, method="bnn"), nn.BatchNorm2d(12)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(self.norm(self.conv(x) + x))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "hardtanh": lambda: nn.Hardtanh(-0.5, 2.0),
    "relu": lambda: nn.ReLU(inplace=True),
    "relu6": lambda: nn.ReLU6(),
    "zeros around": lambda: nn.ZeroPad2d((1, 2, 0, 3)),
    "prelu": lambda: nn.PReLU(12, init=-0.3),
    "prelu, one slope": lambda: nn.PReLU(),
    "leaky relu": lambda: nn.LeakyReLU(0.1),
    "sigmoid": lambda: nn.Sigmoid(),
    "hardswish": lambda: nn.Hardswish(),
    "max pool": lambda: nn.MaxPool2d((3, 2), stride=(2, 1), padding=1, ceil_mode=True),
    "dilated max pool": lambda: nn.MaxPool2d(2, stride=1, dilation=(3, 2)),
    "avg pool": lambda: nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
    "avg pool, larger than its input": lambda: nn.AvgPool2d(1280, ceil_mode=True),
    "avg pool, padding counted": lambda: nn.AvgPool2d((2, 3), padding=(0, 1)),
    "adaptive avg pool": lambda: nn.AdaptiveAvgPool2d((4, 3)),
    "adaptive max pool": lambda: nn.AdaptiveMaxPool2d((None, 5)),
    "same, odd kernel": lambda: nn.Conv2d(12, 5, (3, 5), padding="same", dilation=(2, 1)),
    "same, even kernel": lambda: nn.Conv2d(12, 5, (4, 2), padding="same"),
    "valid": lambda: nn.Conv2d(12, 5, 3, padding="valid", stride=(3, 2)),
    "depthwise": Depthwise,
    "attention": Attention,
    "dense": Dense,
    "scaled": Scaled,
    "vectors": lambda: Vectors("bi-real"),
    "vectors, centred": lambda: Vectors("rbnn"),
    "vectors, K": lambda: nn.Sequential(
        nn.Flatten(), BinaryLinear(12 * 13 * 11, 9, method="xnor-net", options={"k_map": True})
    ),
    "shared": Shared,
    "dropout": lambda: nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(), nn.Identity(), nn.Conv2d(12, 3, 1)),
    "reshape": lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (6, 13, 22)), nn.Conv2d(6, 4, 3)),
    "binary": lambda: binary(12, 30, 3, padding=1),
    "binary, stride, dilation": lambda: binary(12, 65, (3, 2), stride=(2, 1), dilation=(1, 3), padding=(2, 0)),
    "binary, wide padding": lambda: binary(12, 8, 3, padding=6),
    "binary, same, even": lambda: binary(12, 16, (2, 4), padding="same"),
    "binary, groups": lambda: binary(12, 16, 3, groups=4),
    "binary, groups, centred": lambda: binary(12, 16, 3, groups=2, method="rbnn"),
    "binary, groups, K": lambda: BinaryConv2d(12, 8, 3, groups=2, method="xnor-net", options={"k_map": True}),
    "binary, bias, positions": lambda: BinaryConv2d(12, 8, 3, method="xnor++", options={"case": 2}),
    "binary, levels, padding": lambda: binary(12, 16, 3, padding=2, method="dorefa"),
    "binary, two bits, same, even": lambda: BinaryConv2d(
        12, 8, 2, padding="same", method="dorefa", options={"activation_bits": 2}
    ),
    "binary, bases": lambda: BinaryConv2d(
        12, 8, 3, method="abc-net", options={"weight_bases": 2, "activation_bases": 3}
    ),
    "pool, norm, sign": lambda: pooled(nn.MaxPool2d(2), nn.BatchNorm2d(20), nn.Hardtanh()),
    "norm, clamp, pool, sign": lambda: pooled(nn.BatchNorm2d(20), nn.Hardtanh(), nn.MaxPool2d(3, 2, 1)),
    "pool, prelu, sign": lambda: pooled(nn.MaxPool2d(2), nn.PReLU(20)),
    "pool, falling prelu, sign": lambda: pooled(nn.MaxPool2d(2), nn.PReLU(20, init=-1.0)),
    "pool, hardswish, sign": lambda: pooled(nn.MaxPool2d(2), nn.Hardswish()),
    "dilated pool, sign": lambda: pooled(nn.MaxPool2d(2, dilation=2)),
    "average, sign": lambda: pooled(nn.AvgPool2d(2), nn.BatchNorm2d(20)),
    "relu, norm, sign": lambda: pooled(nn.ReLU(), nn.BatchNorm2d(20)),
    "sigmoid, sign": lambda: pooled(nn.Sigmoid()),
    "average, narrow clamp, sign": lambda: pooled(nn.AvgPool2d(2), nn.Hardtanh(0.5, 2.0)),
    "pool, norm, level": lambda: pooled(nn.MaxPool2d(2), nn.BatchNorm2d(20), method="dorefa"),
    "average, norm, level": lambda: pooled(nn.AvgPool2d(2), nn.BatchNorm2d(20), method="dorefa"),
    "pool, falling prelu": lambda: nn.Sequential(nn.Conv2d(12, 8, 3), nn.MaxPool2d(2), nn.PReLU(8, init=-0.5)),
    "pool, hardswish": lambda: nn.Sequential(nn.Conv2d(12, 8, 3), nn.MaxPool2d(2), nn.Hardswish()),
    "sum, norm": Sum,
    "sum of a layer and what it reads, norm": SumWithInput,
    "narrow clamp, sign": lambda: pooled(nn.Hardtanh(0.5, 2.0)),
}  # fmt: skip
