"""ReLU in front of binary layers, kept or replaced by hardtanh: test accuracy of two small networks on CIFAR-10.

python benchmarks/relu.py --data-dir data
python benchmarks/relu.py --data-dir data --networks plain --methods rbnn --images 20000 --json
"""

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn
from rbnn import _core, data
from rbnn.errors import RbnnError
from rbnn.training.batches import Batches
from rbnn.training.distributed import Processes
from rbnn.training.evaluate import evaluate

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "rbnn": ("rbnn", {}),
    "rbnn, not centred": ("rbnn", {"standardise": False}),
    "xnor-net": ("xnor-net", {}),
}
WIDTHS = 16, 32, 64


class Stage(nn.Module):
    """Two convolutions, each with batch norm and ReLU, the second one optionally with a shortcut around it."""

    def __init__(self, inputs: int, outputs: int, *, shortcut: bool) -> None:
        super().__init__()
        self.widen = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1, self.relu1 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.conv = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(outputs), nn.ReLU()
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu1(self.norm1(self.widen(x)))
        y = self.norm2(self.conv(x))
        return F.max_pool2d(self.relu2(y + x if self.shortcut else y), 2)


def network(name: str) -> nn.Module:
    """Seven convolutions and a linear layer; the first and the last layer stay float."""
    stages = [Stage(a, b, shortcut=name == "residual") for a, b in zip(WIDTHS, (*WIDTHS[1:], WIDTHS[-1]), strict=True)]
    stem = [nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10))


def accuracy(name: str, method: str, relu: str, seed: int, args: argparse.Namespace) -> float:
    """Test accuracy in percent of one run."""
    torch.manual_seed(seed)
    model = network(name)
    known, options = METHODS[method]
    rbnn.binarize_(model, known, relu=relu, **options)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = rbnn.BinarySchedule(model, optimizer, args.epochs)
    train, test = (data.load("cifar10", args.data_dir, part) for part in ("train", "test"))
    batches = Batches(train, 64, train=True, seed=seed, limit=args.images)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(batches))
    for epoch in range(args.epochs):
        schedule.step(epoch)
        model.train()
        for images, labels in batches.epoch(epoch):
            loss = F.cross_entropy(model(images), labels) + rbnn.penalty(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cosine.step()
    return evaluate(model, Batches(test, 250, train=False, seed=0), Processes(0, 1, torch.device("cpu")))["top1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=("plain", "residual"), default=["plain", "residual"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--images", type=int, default=5000, help="of the training set, always the same ones")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row as it is done, no table")
    args = parser.parse_args()
    _core.keep_freed_memory()  # as the training loop does
    lines = ["| network | method | ReLU kept | hardtanh | gain of hardtanh |", "|---|---|---|---|---|"]
    try:
        for name in args.networks:
            for method in args.methods:
                found = {
                    relu: [round(accuracy(name, method, relu, seed, args), 2) for seed in args.seeds]
                    for relu in ("keep", "hardtanh")
                }
                keep, hardtanh = mean(found["keep"]), mean(found["hardtanh"])
                if args.json:
                    gain = round(hardtanh - keep, 2)
                    print(
                        json.dumps({"network": name, "method": method, **found, "gain_of_hardtanh": gain}), flush=True
                    )
                shown = [" / ".join(f"{one:.1f}" for one in runs) for runs in found.values()]
                lines.append(f"| {name} | {method} | {shown[0]} | {shown[1]} | {hardtanh - keep:+.1f} |")
    except RbnnError as error:
        parser.error(str(error))
    if not args.json:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
