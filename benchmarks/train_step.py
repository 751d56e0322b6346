"""Time of one training step of RBNN beside its float twin, interleaved in one process, best of many.

python benchmarks/train_step.py --json
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F

from rbnn import _core
from rbnn.models import create_model
from rbnn.nn import penalty
from rbnn.schedule import BinarySchedule


def stepper(method: str, model_name: str, batch: int, options: dict):
    """A function that does one training step, in the memory format that is best for it."""
    torch.manual_seed(0)
    model = create_model(model_name, method=method, **options).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    BinarySchedule(model, optimizer, epochs=10).step(3)
    images = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels) + penalty(model)
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20-bireal")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--standardise", choices=("default", "yes", "no"), default="default")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    _core.keep_freed_memory()  # as the training loop does, for both
    options = {} if args.standardise == "default" else {"standardise": args.standardise == "yes"}
    steps = {
        "rbnn": stepper("rbnn", args.model, args.batch, options),
        "float": stepper("float", args.model, args.batch, {}),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(args.rounds + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if round_ >= 2:  # the first rounds choose algorithms and touch memory
                times[name].append(time.perf_counter() - start)
    best = {name: min(t) * 1e3 for name, t in times.items()}
    result = {
        "rbnn_ms": round(best["rbnn"], 1),
        "float_ms": round(best["float"], 1),
        "ratio": round(best["rbnn"] / best["float"], 3),
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(f"rbnn {result['rbnn_ms']} ms, float twin {result['float_ms']} ms, ratio {result['ratio']}")


if __name__ == "__main__":
    main()
