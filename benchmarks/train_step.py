"""Time one training step of each method and of the float twin, alternating in one process; minimum of many.

The twin runs in channels-last memory, its fastest format, and also in torch's default order (NCHW).  Times are
wall-clock times and, on one thread, also CPU times, the better measure if other programs are running.

python benchmarks/train_step.py --batches 64 128 --threads 1 2 --json
"""

import argparse
import gc
import json
import time

import torch
import torch.nn.functional as F

from rbnn import _core
from rbnn.models import create_model
from rbnn.nn import penalty
from rbnn.schedule import BinarySchedule


def stepper(method: str, model_name: str, batch: int, options: dict, memory_format=torch.channels_last):
    """Return a function that performs one training step."""
    torch.manual_seed(0)
    model = create_model(model_name, method=method, **options).to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    BinarySchedule(model, optimizer, epochs=10, float_twin=method == "float").step(3)
    images = torch.randn(batch, 3, 32, 32).to(memory_format=memory_format)
    labels = torch.randint(0, 10, (batch,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels) + penalty(model)
        loss.backward()
        optimizer.step()

    return step


def measure(model: str, methods: list[str], batch: int, threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds per step of each, and the ratios to the twin."""
    torch.set_num_threads(threads)
    steps = {method: stepper(method, model, batch, {}) for method in (*methods, "float")}
    steps["float NCHW"] = stepper("float", model, batch, {}, torch.contiguous_format)
    clocks = {"ms": time.perf_counter, "processor_ms": time.process_time}
    best = {name: dict.fromkeys(clocks, float("inf")) for name in steps}
    for round_ in range(rounds + 2):
        for name, step in steps.items():
            began = {kind: clock() for kind, clock in clocks.items()}
            step()
            if round_ >= 2:  # the first rounds choose algorithms and touch memory
                for kind, clock in clocks.items():
                    best[name][kind] = min(best[name][kind], (clock() - began[kind]) * 1e3)
    for times in best.values():
        times["of_twin"] = times["ms"] / best["float"]["ms"]
        times["images_per_second"] = 1e3 * batch / times["ms"]
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20-bireal")
    parser.add_argument("--methods", nargs="+", default=["rbnn", "ir-net", "xnor-net"])
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    _core.keep_freed_memory()  # both as in the training loop, for all methods
    gc.freeze()
    rows = [
        {"batch": batch, "threads": threads, "method": method} | {key: round(value, 3) for key, value in times.items()}
        for batch in args.batches
        for threads in args.threads
        for method, times in measure(args.model, args.methods, batch, threads, args.rounds).items()
    ]
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print("| batch | threads | method | ms | images/s | of the twin's time |\n|---|---|---|---|---|---|")
    for row in rows:
        where = f"| {row['batch']} | {row['threads']} | {row['method']} |"
        print(f"{where} {row['ms']:.1f} | {row['images_per_second']:.0f} | {row['of_twin']:.2f} |")


if __name__ == "__main__":
    main()
