"""Sensor data and speech: a 1-bit network for signals, compared with its float twin.

    pip install --no-deps aeon          # only for its data: none of its code is imported
    python examples/signals.py
    python examples/signals.py JapaneseVowels

BasicMotions: accelerometer and gyroscope of a smartwatch, 6 channels of 100 samples; the classes are standing, running,
walking and badminton.  JapaneseVowels: 12 coefficients of speech, 25 samples; the classes are nine speakers.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn
from rbnn.runtime import Session

FILES = {"BasicMotions": "BasicMotions/BasicMotions", "JapaneseVowels": "JapaneseVowels/JapaneseVowels_eq"}


class Block(nn.Module):
    """Convolution, batch norm and a shortcut around both, which passes full-precision values on."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 5, padding=2, bias=False)
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(self.norm(self.conv(x)) + x)


def network(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(channels, 64, 5, padding=2, bias=False), nn.BatchNorm1d(64), nn.Hardtanh(),
        Block(64), Block(64), nn.MaxPool1d(2), Block(64), Block(64),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def signals(name: str, part: str) -> tuple[Tensor, list[str]]:
    """Signals (N, C, L) and the class of each."""
    package = find_spec("aeon")  # found, not imported: importing it would need pandas and numba
    if package is None or package.origin is None:
        raise SystemExit("the data is in the package aeon: pip install --no-deps aeon")
    text = (Path(package.origin).parent / "datasets" / "data" / f"{FILES[name]}_{part}.ts").read_text("utf-8")
    rows = [line.split(":") for line in text.splitlines() if line and line[0] not in "#@"]
    values = [[channel.split(",") for channel in row[:-1]] for row in rows]
    return torch.from_numpy(np.array(values, np.float32)), [row[-1] for row in rows]


def train(model: nn.Module, x: Tensor, labels: Tensor, epochs: int, float_twin: bool) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs, float_twin=float_twin)  # then it does nothing
    model.train()
    for epoch in range(epochs):
        schedule.step(epoch)
        for batch in torch.randperm(len(x)).split(32):
            loss = F.cross_entropy(model(x[batch]), labels[batch]) + rbnn.penalty(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        cosine.step()


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    return 100 * float((model.eval()(x).argmax(1) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="?", choices=FILES, default="BasicMotions")
    parser.add_argument("--epochs", type=int, default=60, help="epochs of training (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("signals.rbnn"), help="packed file (default: signals.rbnn)")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")
    if not options.out.parent.is_dir():
        parser.error(f"--out: the directory {options.out.parent} does not exist")

    (x, names), (test_x, test_names) = (signals(options.data, part) for part in ("TRAIN", "TEST"))
    classes = sorted(set(names))
    labels, test_labels = (torch.tensor([classes.index(each) for each in given]) for given in (names, test_names))
    mean, std = x.mean((0, 2), keepdim=True), x.std((0, 2), keepdim=True)
    x, test_x = (x - mean) / std, (test_x - mean) / std

    accuracies = {}
    for method in ("float", "rbnn"):
        torch.manual_seed(options.seed)
        model = network(x.shape[1], len(classes))
        if method != "float":
            rbnn.binarize_(model, method)
        train(model, x, labels, options.epochs, float_twin=method == "float")
        accuracies[method] = accuracy(model, test_x, test_labels)

    report = rbnn.export(model, options.out, test_x[:16], classes=classes)
    packed = Session(options.out)(test_x.numpy()).argmax(1)
    print(f"{options.data}: {len(x)} signals to learn from, {len(test_x)} to test, {tuple(x.shape[1:])} values each")
    print(f"float twin {accuracies['float']:.1f} %, 1-bit {accuracies['rbnn']:.1f} %")
    print(f"packed {100 * float((packed == test_labels.numpy()).mean()):.1f} %, {report.bytes:,} bytes")


if __name__ == "__main__":
    main()
