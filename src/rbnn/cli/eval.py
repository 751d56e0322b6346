"""`rbnn eval`: accuracy of a trained network on a test set."""

import json
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class Eval:
    """Top-1 and top-5 accuracy, in percent, of a trained network on a test set.

    Example: rbnn eval runs/first --data cifar10 --data-dir data --json
    """

    net: tyro.conf.Positional[Path]
    """Run directory (its best epoch) or checkpoint."""
    data: str = ""
    """Data set; by default the one that the network was trained on."""
    data_dir: Path = Path("data")
    """Where data sets live."""
    batch_size: int = 256
    """Images per forward pass."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    json: bool = False
    """Print JSON: {"top1": …, "top5": …}."""


def run(options: Eval) -> None:
    """Evaluate and print."""
    import torch

    from rbnn import data
    from rbnn.errors import DataError
    from rbnn.training.batches import Batches
    from rbnn.training.checkpoint import load_network
    from rbnn.training.distributed import Processes, choose_device
    from rbnn.training.evaluate import evaluate

    network = load_network(options.net)
    name = options.data or network.config.data
    tests = data.load(name, options.data_dir, "test")
    contract = network.contract
    if (tests.classes, tests.channels) != (contract.classes, contract.channels):
        raise DataError(
            f"{options.net} knows {len(contract.classes)} classes of {contract.channels}-channel pictures of "
            f"{network.config.data}; {name} has others: choose the data set that it was trained on"
        )
    here = Processes(0, 1, choose_device(options.device))
    batches = Batches(tests, options.batch_size, train=False, seed=0, image_size=contract.image_size, workers=2)
    model = network.model.to(here.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    result = evaluate(model, batches, here)
    if options.json:
        print(json.dumps({"top1": round(result["top1"], 4), "top5": round(result["top5"], 4)}))
    else:
        print(
            f"{options.net} on {len(tests):,} test images of {name}: "
            f"top-1 {result['top1']:.2f} %, top-5 {result['top5']:.2f} %"
        )
