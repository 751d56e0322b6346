"""What the examples share: images of handwritten digits, a small CNN, and its export after training."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rbnn


class Block(nn.Module):
    """Convolution, batch norm and a shortcut around both, which passes full-precision values on."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(self.norm(self.conv(x)) + x)


class DigitsCNN(nn.Sequential):
    """An ordinary torch network that knows nothing about bits."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__(
            nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.Hardtanh(),
            Block(channels), Block(channels), nn.MaxPool2d(2), Block(channels), Block(channels),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10),
        )  # fmt: skip


def digits(train: bool) -> TensorDataset:
    """1,437 images (1, 8, 8) for training, or 360 others for testing, as `rbnn train` and `rbnn eval` split them."""
    return TensorDataset(*map(torch.from_numpy, rbnn.data.load("digits", split="train" if train else "test").arrays()))


def loader(train: bool, batch_size: int = 64) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(digits(train), batch_size, shuffle=train)


def options(**more: str) -> argparse.Namespace:
    """The flags of an example: ``--epochs``, ``--method``, ``--out``, and ``more`` with their defaults."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8, help="epochs of training (default: 8)")
    methods = [name for name in rbnn.methods.method_names() if name != "float"]
    parser.add_argument("--method", choices=methods, default="rbnn", help="binarization method (default: rbnn)")
    parser.add_argument("--out", type=Path, default=Path("digits.rbnn"), help="packed file (default: digits.rbnn)")
    for name, default in more.items():
        parser.add_argument(f"--{name}", default=default, help=f"(default: {default})")
    given = parser.parse_args()
    if given.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {given.epochs}")
    if not given.out.parent.is_dir():
        parser.error(f"--out: the directory {given.out.parent} does not exist")
    return given


@torch.no_grad()
def pack(model: nn.Module, path: Path) -> None:
    """Export a trained network and print the accuracy of torch and of the packed file on the test images."""
    images, labels = digits(train=False).tensors
    known = rbnn.data.load("digits")
    report = rbnn.export(model.eval(), path, images[:32], known.mean, known.std, known.classes)
    answers = model(images).argmax(1)
    packed = torch.from_numpy(rbnn.Session(path)(images.numpy())).argmax(1)
    right = [100 * float((each == labels).float().mean()) for each in (answers, packed)]
    print(f"torch {right[0]:.1f} %, packed {right[1]:.1f} %, {report.bytes:,} bytes")
    print(f"{int((answers == packed).sum())} of {len(labels)} answers equal")
