"""Small networks like those that people build: segmentation, detection, pose, shuffles, gates, every kind of norm.

They are written as users would write them, not to suit the exporter: forwards that use shapes, functions as well as
modules, tuples and dictionaries as outputs.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from zoo_of_maps import ASPP, FCN, AttentionGate, Hourglass, SegNet, StyleTransfer, SuperResolution, UNet, double_conv


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.data.size()
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).contiguous().view(n, -1, h, w)


class ShuffleUnit(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            nn.Conv2d(half, half, 1),
            nn.ReLU(),
            nn.Conv2d(half, half, 3, padding=1, groups=half),
            nn.Conv2d(half, half, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = x.chunk(2, dim=1)
        return channel_shuffle(torch.cat((kept, self.branch(changed)), 1), 2)


class ShuffleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.units = nn.Conv2d(3, 24, 3, 2, 1), nn.Sequential(ShuffleUnit(24), ShuffleUnit(24))
        self.head = nn.Linear(24, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.units(F.relu(self.stem(x)))
        return self.head(x.mean([2, 3]))


class SSD(nn.Module):
    """Boxes and classes at several scales, (N, anchors, 4) and (N, anchors, classes)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6())
        self.extras = nn.ModuleList([nn.Conv2d(16, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 2, 1)])
        self.scale = nn.Parameter(torch.full((16,), 20.0))
        self.loc = nn.ModuleList(nn.Conv2d(16, 2 * 4, 3, padding=1) for _ in range(3))
        self.conf = nn.ModuleList(nn.Conv2d(16, 2 * 3, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        norm = x.pow(2).sum(dim=1, keepdim=True).sqrt() + 1e-10
        sources = [self.scale.unsqueeze(0).unsqueeze(2).unsqueeze(3).expand_as(x) * (x / norm)]
        for extra in self.extras:
            x = F.relu(extra(x), inplace=True)
            sources.append(x)
        loc, conf = [], []
        for source, where, what in zip(sources, self.loc, self.conf, strict=True):
            loc.append(where(source).permute(0, 2, 3, 1).contiguous())
            conf.append(what(source).permute(0, 2, 3, 1).contiguous())
        boxes = torch.cat([each.view(each.size(0), -1) for each in loc], 1)
        classes = torch.cat([each.view(each.size(0), -1) for each in conf], 1)
        return boxes.view(boxes.size(0), -1, 4), F.softmax(classes.view(classes.size(0), -1, 3), dim=-1)


class YoloHead(nn.Module):
    """A list of raw five-dimensional maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.heads = nn.ModuleList([nn.Conv2d(8 + 16, 3 * 7, 1), nn.Conv2d(16, 3 * 7, 1)])

    def forward(self, x: Tensor) -> list[Tensor]:
        fine = F.mish(self.stem(x))
        coarse = F.silu(self.down(fine))
        up = F.interpolate(coarse, size=fine.shape[2:])
        answers = []
        for value, head in zip((torch.cat([fine, up], 1), coarse), self.heads, strict=True):
            y = head(value)
            n, _, high, wide = y.shape
            answers.append(y.view(n, 3, 7, high, wide).permute(0, 1, 3, 4, 2).contiguous().sigmoid())
        return answers


class SELayer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(channels, channels // 4, bias=False), nn.ReLU(inplace=True),
            nn.Linear(channels // 4, channels, bias=False), nn.Hardsigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.size()
        y = F.adaptive_avg_pool2d(x, 1).view(b, c)
        return x * self.fc(y).view(b, c, 1, 1).expand_as(x)


class MobileNetV3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish())
        self.expand, self.depth = nn.Conv2d(16, 32, 1), nn.Conv2d(32, 32, 5, padding=2, groups=32)
        self.gate, self.project = SELayer(32), nn.Conv2d(32, 16, 1)
        self.head = nn.Sequential(nn.Linear(16, 20), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(20, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = x * F.relu6(x + 3.0) / 6.0
        x = x + self.project(self.gate(F.hardswish(self.depth(self.expand(y)))))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


class DenseNet(nn.Module):
    """Features are collected in a list; a function depends on their number."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(12 + 6 * i), nn.ReLU(), nn.Conv2d(12 + 6 * i, 6, 3, padding=1))
            for i in range(3)
        )
        self.transition = nn.Sequential(nn.Conv2d(30, 16, 1), nn.AvgPool2d(2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1) if len(features) > 1 else features[0]))
        x = self.transition(torch.cat(features, 1))
        return self.head(F.avg_pool2d(x, kernel_size=(x.size(2), x.size(3))).squeeze(-1).squeeze(-1))


class GoogLeNet(nn.Module):
    """With local response norms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 5, 2, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True))
        self.norm = nn.LocalResponseNorm(5, alpha=0.01)
        self.one, self.three = nn.Conv2d(12, 6, 1), nn.Conv2d(12, 6, 3, padding=1)
        self.five = nn.Sequential(nn.Conv2d(12, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(12, 6, 1))
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        x = torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], 1)
        x = F.local_response_norm(F.relu(x), 4, alpha=0.1, beta=0.5, k=2.0)
        return self.head(F.adaptive_avg_pool2d(x, 1).reshape(x.shape[0], -1))


class Activations(nn.Module):
    """One of each, and Swish as a formula."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(12, 12, 1) for _ in range(9))
        self.stem = nn.Conv2d(3, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        bends = (
            F.elu, F.selu, F.gelu, lambda y: F.gelu(y, approximate="tanh"), F.silu, F.softplus, torch.tanh, F.mish,
            lambda y: y * torch.sigmoid(y),
        )  # fmt: skip
        for conv, bend in zip(self.convs, bends, strict=True):
            x = bend(conv(x)).clamp(min=-3) + 0.1 * x
        return F.leaky_relu(x).clamp_max(2.0)


class Norms(nn.Module):
    """Group, instance, layer norm; ConvNeXt's with the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.group = nn.Conv2d(3, 12, 3, padding=1), nn.GroupNorm(3, 12)
        self.instance, self.whole = nn.InstanceNorm2d(12, affine=True), nn.LayerNorm([12, 13, 11])
        self.depth, self.norm = nn.Conv2d(12, 12, 7, padding=3, groups=12), nn.LayerNorm(12, eps=1e-6)
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)
        self.gamma = nn.Parameter(torch.full((12,), 0.5))
        nn.init.normal_(self.whole.weight)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.group.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.whole(self.instance(F.relu(self.group(self.stem(x)))))
        y = self.depth(x).permute(0, 2, 3, 1)
        y = self.gamma * self.down(F.gelu(self.up(self.norm(y))))
        x = x + y.permute(0, 3, 1, 2)
        return F.normalize(x.mean((2, 3)), dim=1)


class NonLocal(nn.Module):
    """Self-attention over the pixels, heads side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.qkv, self.out = nn.Conv2d(3, 12, 3, 2, 1), nn.Conv2d(12, 36, 1), nn.Conv2d(12, 12, 1)
        self.theta, self.phi, self.g = (nn.Conv2d(12, 6, 1) for _ in range(3))
        self.back = nn.Conv2d(6, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, c, h, w = x.shape
        q, k, v = self.qkv(x).reshape(n, 3, 2, c // 2, h * w).unbind(1)
        attention = ((q.transpose(-2, -1) @ k) * (c // 2) ** -0.5).softmax(-1)
        x = x + self.out((v @ attention.transpose(-2, -1)).reshape(n, c, h, w))
        theta = self.theta(x).view(n, 6, -1).permute(0, 2, 1)
        score = torch.matmul(theta, self.phi(x).view(n, 6, -1)) / (h * w)
        y = torch.matmul(score, self.g(x).view(n, 6, -1).permute(0, 2, 1))
        return x + self.back(y.permute(0, 2, 1).contiguous().view(n, 6, h, w))


class ViT(nn.Module):
    """A small vision transformer, its attention written out."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.pos = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 7, 16))
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.norm, self.qkv, self.proj = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, 4, c // 4).permute(0, 2, 3, 1, 4).unbind(1)
        y = ((q @ k.transpose(-2, -1)) / math.sqrt(c // 4)).softmax(dim=-1) @ v
        y = y + F.scaled_dot_product_attention(q, k, v, scale=0.3)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, c))
        x = x + self.mlp(x)
        return self.head(x[:, 0])


class LightCNN(nn.Module):
    """Max-feature-map: the larger of two halves; and a choice between kernels as in SKNet."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (
            nn.Conv2d(3, 24, 5, 1, 2),
            nn.Conv2d(12, 12, 3, padding=1),
            nn.Conv2d(12, 12, 1),
        )
        self.fc, self.fcs = nn.Linear(12, 6), nn.ModuleList(nn.Linear(6, 12) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.split(self.one(x), 12, 1)
        x = torch.max(a, b)
        features = torch.stack([self.two(x), self.three(x)], dim=1)
        weights = self.fc(features.sum(1).mean(-1).mean(-1))
        attention = F.softmax(torch.cat([fc(weights).unsqueeze(1) for fc in self.fcs], dim=1), dim=1)
        return (features * attention.unsqueeze(-1).unsqueeze(-1)).sum(dim=1)


class Focus(nn.Module):
    """YOLOv5's slices, spatial pooling, and statistics of the picture beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(12, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> list[Any]:
        x = x[..., :12, :10]
        x = torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)
        y = F.silu(self.second(self.first(x)))
        pooled = torch.cat([F.max_pool2d(y, k, 1, k // 2) for k in (3, 5)] + [y], 1)
        spread = torch.cat([torch.std(y, dim=(2, 3)), y.var((2, 3), unbiased=False)], 1)
        return [{"maps": pooled, "mean": y.mean((-2, -1), keepdim=True)}, self.head(spread)]


class Fractal(nn.Module):
    """Branches stacked along a new first dimension, and ShuffleNet's shuffle with the batch in the second."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.branches = nn.Conv2d(3, 16, 3, padding=1), nn.ModuleList(double_conv(8, 8) for _ in range(2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, c, h, w = x.shape
        x = x.reshape(n * c // 2, 2, h * w).permute(1, 0, 2).reshape(2, -1, c // 2, h, w)
        joined = torch.stack([branch(x[1]) for branch in self.branches]).mean(dim=0)
        return self.head(torch.cat((x[0], joined), 1).mean((2, 3)))


ZOO: dict[str, Callable[[], nn.Module]] = {
    "U-Net, bilinear": lambda: UNet(True), "U-Net, transposed": lambda: UNet(False), "FCN": FCN, "ASPP": ASPP,
    "ShuffleNet": ShuffleNet, "SSD": SSD, "YOLO": YoloHead, "MobileNetV3": MobileNetV3, "DenseNet": DenseNet,
    "GoogLeNet": GoogLeNet, "activations": Activations, "norms": Norms, "hourglass": Hourglass,
    "attention gate": AttentionGate, "style transfer": StyleTransfer, "super-resolution": SuperResolution,
    "non-local": NonLocal, "ViT": ViT, "Light CNN": LightCNN, "Focus": Focus,
    "SegNet": SegNet, "fractal": Fractal,
}  # fmt: skip


def arrays(answer: Any) -> list[Any]:
    """The tensors or arrays of an output, in order."""
    if isinstance(answer, tuple | list):
        return [each for part in answer for each in arrays(part)]
    return [each for part in answer.values() for each in arrays(part)] if isinstance(answer, dict) else [answer]
