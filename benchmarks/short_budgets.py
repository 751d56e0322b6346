"""Train a row of the table docs/results/short-budgets.md: 20,000 images of CIFAR-10, 6 epochs.

If a row needs another one (its teacher, or its starting point), that one is trained first, unless --out has it.

python benchmarks/short_budgets.py averaged-weights --data-dir data --out runs/short
"""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from rbnn import data
from rbnn.cli.train import Watch
from rbnn.errors import RbnnError
from rbnn.training.batches import Batches
from rbnn.training.checkpoint import LAST, load_network
from rbnn.training.config import TrainConfig, from_table
from rbnn.training.distributed import processes
from rbnn.training.evaluate import evaluate
from rbnn.training.loop import train
from rbnn.training.optimizer import create_optimizer

BUDGET: dict[str, Any] = {"data": "cifar10", "limit": 20_000, "epochs": 6, "threads": 1}
ONCE: dict[str, Any] = {"rotate_until": 0.0}
"""RBNN rotates only before the first epoch, unless the row says otherwise."""
OURS: dict[str, Any] = {"batch_size": 64, "binary_lr": 10.0}
"""Settings that most rows share."""

ROWS: dict[str, dict[str, Any]] = {
    "batch-256": {"batch_size": 256},
    "batch-64": {"batch_size": 64},
    "batch-256-rate-10": {"batch_size": 256, "binary_lr": 10.0},
    "batch-128-rate-10": {"batch_size": 128, "binary_lr": 10.0},
    "ours": OURS,
    "rate-30": OURS | {"binary_lr": 30.0},
    "rate-100": OURS | {"binary_lr": 100.0},
    "lr-0.05": OURS | {"lr": 0.05},
    "lr-0.2": OURS | {"lr": 0.2},
    "more-decay": OURS | {"weight_decay": 0.0005},
    "no-warm-up": OURS | {"warmup": 0},
    "t-up-to-1": OURS | {"options": {"t_max": 0.0}},
    "averaged-weights": OURS | {"binary_lr": 30.0},
    "float": {"batch_size": 64, "method": "float"},
    "taught": OURS | {"teacher": "float"},
    "float-3": {"batch_size": 64, "method": "float", "epochs": 3},
    "after-float-3": OURS | {"epochs": 3, "start_from": "float-3"},
    "b+t": OURS | {"options": {"rotation": "none", "alpha": "none"}},
    "rotated-every-epoch": OURS | {"options": {"rotate_until": 1.0}},
    "xnor-net": {"batch_size": 64, "method": "xnor-net", "options": {"gradient": "sgd"}},
    "xnor-net-rate-10": OURS | {"method": "xnor-net", "options": {"gradient": "sgd"}},
    "ir-net": {"batch_size": 64, "method": "ir-net"},
    "ir-net-rate-10": OURS | {"method": "ir-net"},
}
"""The configuration of each row; paths are names of other rows."""

STEPS_AVERAGED = 200
IMAGES_FOR_BATCH_NORM = 10_240


def run(name: str, out: Path, **more: Any) -> dict[str, float]:
    """Train the row ``name`` in ``out/name`` and return accuracies in percent; ``more`` overrides its budget."""
    fields = BUDGET | ROWS[name] | more
    if fields.get("method", "rbnn") == "rbnn":
        fields["options"] = ONCE | fields.get("options", {})
    for key in ("teacher", "start_from"):
        if key in fields:
            learnt_from = fields[key]
            if not (out / learnt_from / LAST).exists():
                run(learnt_from, out, **more)
            fields[key] = str(out / learnt_from / LAST)
    averages: list[AveragedModel] = []
    averaged = name == "averaged-weights"
    config = replace(from_table(fields), out=out / name, resume=not averaged)
    accuracies: dict[str, float] = {}
    watch = Watch()
    with patch("rbnn.training.loop.create_optimizer", averaging(averages)) if averaged else nullcontext(), watch.bars:
        accuracies["as trained"] = train(config, watch).last["top1"]
    if averaged:
        accuracies["averaged"] = top1(config, partial(copy_values, averages[0].module))
    if name in ("rate-100", "more-decay"):
        for augmented in (True, False):
            key = f"batch norms estimated anew, images {'augmented' if augmented else 'as they are'}"
            accuracies[key] = top1(config, partial(estimate_batch_norms, config, augmented))
    return accuracies


def averaging(averages: list[AveragedModel]) -> Callable[[nn.Module, TrainConfig], SGD]:
    """``create_optimizer``, whose steps also store a running average of weights and buffers in ``averages``."""

    def create(model: nn.Module, config: TrainConfig) -> SGD:
        optimizer = create_optimizer(model, config)
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(1 - 1 / STEPS_AVERAGED), use_buffers=True)
        optimizer.register_step_post_hook(lambda *_: average.update_parameters(model))
        averages.append(average)
        return optimizer

    return create


def copy_values(source: nn.Module, target: nn.Module) -> None:
    for new, old in zip(
        chain(source.parameters(), source.buffers()), chain(target.parameters(), target.buffers()), strict=True
    ):
        old.copy_(new)


def estimate_batch_norms(config: TrainConfig, augmented: bool, model: nn.Module) -> None:
    """Re-estimate the batch-norm statistics from training images with the current weights."""
    images = data.load(config.data, config.data_dir, "train")
    limit = min(IMAGES_FOR_BATCH_NORM, len(images))
    update_bn(Batches(images, 256, train=augmented, seed=9, limit=limit).epoch(0), model)


@torch.no_grad()
def top1(config: TrainConfig, change: Callable[[nn.Module], None]) -> float:
    """Test accuracy of a run's last epoch after applying ``change`` to its network."""
    model = load_network(config.directory / LAST).model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    change(model)
    test = data.load(config.data, config.data_dir, "test")
    with processes("cpu") as those:
        return evaluate(model, Batches(test, 256, train=False, seed=0), those)["top1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--out", type=Path, default=Path("runs/short"))
    args = parser.parse_args()
    try:
        accuracies = run(args.row, args.out, data_dir=args.data_dir)
    except RbnnError as error:
        parser.error(str(error))
    for what, accuracy in accuracies.items():
        print(f"{args.row}, {what}: {accuracy:.2f} %")


if __name__ == "__main__":
    main()
