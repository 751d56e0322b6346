"""Time of one training step of RBNN beside its float twin, interleaved in one process, best of many.

The twin runs in channels-last memory, its best, and once more in torch's default order (NCHW).  Times are by the clock;
those of the processor, on one thread, are the better measure where other programs run.

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


def stepper(method: str, model_name: str, batch: int, options: dict, memory_format=torch.channels_last):
    """A function that does one training step."""
    torch.manual_seed(0)
    model = create_model(model_name, method=method, **options).to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    BinarySchedule(model, optimizer, epochs=10).step(3)
    images = torch.randn(batch, 3, 32, 32).to(memory_format=memory_format)
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
        "float_nchw": stepper("float", args.model, args.batch, {}, torch.contiguous_format),
    }
    clocks = {"ms": time.perf_counter, "processor_ms": time.process_time}
    best = {f"{name}_{kind}": float("inf") for kind in clocks for name in steps}
    for round_ in range(args.rounds + 2):
        for name, step in steps.items():
            began = {kind: clock() for kind, clock in clocks.items()}
            step()
            if round_ >= 2:  # the first rounds choose algorithms and touch memory
                for kind, clock in clocks.items():
                    best[f"{name}_{kind}"] = min(best[f"{name}_{kind}"], (clock() - began[kind]) * 1e3)
    result = {key: round(value, 1) for key, value in best.items()}
    result["ratio"] = round(best["rbnn_ms"] / best["float_ms"], 3)
    result["processor_ratio"] = round(best["rbnn_processor_ms"] / best["float_processor_ms"], 3)
    result["images_per_second_over_nchw"] = round(best["float_nchw_processor_ms"] / best["rbnn_processor_ms"], 2)
    if args.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:30}{value}")


if __name__ == "__main__":
    main()
