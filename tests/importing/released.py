"""Networks with the names and the arithmetic of the authors' release, and checkpoints as it writes them.

Written from the description of their format; this is a second implementation of the arithmetic, independent of ours.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RotatedConv(nn.Conv2d):
    """Their binary convolution: per-image standardised input, per-filter rotation, output scale ``alpha``."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        n = inputs * kernel**2
        a = max(i for i in range(1, int(n**0.5) + 1) if n % i == 0)
        for name, side in (("R1", a), ("R2", n // a)):
            self.register_buffer(name, torch.linalg.qr(torch.randn(side, side))[0])
        self.alpha = nn.Parameter(torch.randn(outputs, 1, 1))
        self.rotate = nn.Parameter(torch.rand(outputs, 1, 1, 1) * 3)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.weight.flatten(1)
        rows = (rows - rows.mean(1, keepdim=True)) / rows.std(1, keepdim=True)
        matrices = rows.view(len(rows), len(self.R1), len(self.R2))
        turned = (self.R1.t() @ matrices @ self.R2).flatten(1)
        share = self.rotate.sin().abs().view(-1, 1)
        mixed = (rows + share * (turned - rows)).view_as(self.weight)
        flat = x.flatten(1)
        flat = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
        signs = flat.view_as(x).sign()
        return F.conv2d(signs, mixed.sign(), None, self.stride, self.padding) * self.alpha


class Block(nn.Module):
    """Two convolutions; a Bi-Real block has a shortcut around each.  ``way`` is the shortcut if the shape changes:
    ``pad``, ``binary`` or ``float``, the last one called ``downsample``."""

    def __init__(self, inputs: int, outputs: int, stride: int, bireal: bool, way: str) -> None:
        super().__init__()
        self.conv1, self.bn1 = RotatedConv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = RotatedConv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.bireal, self.pad = bireal, (outputs - inputs) // 2 if way == "pad" and stride > 1 else None
        self.way = "downsample" if way == "float" else "shortcut"
        projected = stride > 1 and way != "pad"
        conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if way == "float" else None
        if projected:
            layers = [conv or RotatedConv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)]
            setattr(self, self.way, nn.Sequential(*layers))
        self.projected = projected

    def forward(self, x: Tensor) -> Tensor:
        around = x
        if self.pad is not None:
            around = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.pad, self.pad))
        elif self.projected:
            around = getattr(self, self.way)(x)
        y = self.bn1(self.conv1(x))
        y = F.hardtanh(y + around if self.bireal else y)
        return F.hardtanh(self.bn2(self.conv2(y)) + (y if self.bireal else around))


class ResNet(nn.Module):
    def __init__(self, widths: list[int], depths: list[int], bireal: bool, way: str, classes: int) -> None:
        super().__init__()
        self.imagenet, self.clipped = way == "float", way != "binary"
        kernel = (7, 2, 3) if self.imagenet else (3, 1, 1)
        self.conv1, self.bn1 = nn.Conv2d(3, widths[0], *kernel, bias=False), nn.BatchNorm2d(widths[0])
        before = widths[0]
        for number, (width, depth) in enumerate(zip(widths, depths, strict=True), 1):
            blocks = []
            for index in range(depth):
                stride = 2 if number > 1 and index == 0 else 1
                blocks.append(Block(before, width, stride, bireal, way))
                before = width
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.stages = len(widths)
        self.bn2 = nn.BatchNorm1d(before)
        self.head = "fc" if self.imagenet else "linear"
        setattr(self, self.head, nn.Linear(before, classes))
        if self.imagenet:
            self.bn3 = nn.BatchNorm1d(classes)  # stored but never used

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x))
        x = F.hardtanh(x) if self.clipped else x
        x = F.max_pool2d(x, 3, 2, 1) if self.imagenet else x
        for number in range(1, self.stages + 1):
            x = getattr(self, f"layer{number}")(x)
        return getattr(self, self.head)(self.bn2(x.mean((2, 3))))


class VGGSmall(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        widths = [3, 128, 128, 256, 256, 512, 512]
        for index, (inputs, outputs) in enumerate(pairwise(widths)):
            conv = RotatedConv(inputs, outputs) if index else nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            setattr(self, f"conv{index}", conv)
            setattr(self, f"bn{index}", nn.BatchNorm2d(outputs))
        self.fc = nn.Linear(512 * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        for index in range(6):
            x = getattr(self, f"conv{index}")(x)
            x = F.max_pool2d(x, 2) if index % 2 else x
            x = F.hardtanh(getattr(self, f"bn{index}")(x))
        return self.fc(x.flatten(1))


def released(name: str, classes: int) -> nn.Module:
    """One of their networks, under our name, with weights and statistics as after training."""
    widths, stages = [64, 128, 256, 512], [2, 2, 2, 2]
    model = {
        "resnet20": lambda: ResNet([16, 32, 64], [3, 3, 3], False, "pad", classes),
        "resnet20-bireal": lambda: ResNet([16, 32, 64], [3, 3, 3], True, "pad", classes),
        "resnet18-cifar": lambda: ResNet(widths, stages, False, "binary", classes),
        "resnet18": lambda: ResNet(widths, stages, True, "float", classes),
        "resnet34": lambda: ResNet(widths, [3, 4, 6, 3], True, "float", classes),
        "vgg-small": lambda: VGGSmall(classes),
    }[name]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.2)
            nn.init.normal_(module.running_mean, 0, 0.2)
            nn.init.uniform_(module.running_var, 0.5, 20.0)
    return model.eval()


THEIR_NAMES = {
    "resnet20": "resnet20_1w1a",
    "resnet20-bireal": "resnet20_bireal_1w1a",
    "resnet18-cifar": "resnet18_1w1a",
    "resnet18": "resnet18_1w1a",
    "resnet34": "resnet34_1w1a",
    "vgg-small": "vgg_small_1w1a",
}


def save(model: nn.Module, name: str, path: Path, prefix: str = "") -> None:
    """Save a checkpoint as their program does."""
    weights = {prefix + key: value for key, value in model.state_dict().items()}
    state: dict[str, Any] = {"epoch": 3, "model": THEIR_NAMES[name], "state_dict": weights}
    state |= {"best_prec1": torch.tensor(0.0), "parameters": list(model.parameters())}
    torch.save(state, path)
