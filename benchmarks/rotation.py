"""Time the rotation update at the start of an epoch, for a whole network.

python benchmarks/rotation.py --model resnet20-bireal --rotation filter --json
python benchmarks/rotation.py --model resnet34 --rotation layer --json
"""

import argparse
import json
import time

import torch

import rbnn
from rbnn.nn import binary_layers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20-bireal")
    parser.add_argument("--rotation", choices=("filter", "layer"), default="filter")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = rbnn.create_model(args.model, method="rbnn", rotation=args.rotation, rotate_until=1.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs=args.rounds)
    times = []
    for epoch in range(args.rounds):
        start = time.perf_counter()
        schedule.step(epoch)
        times.append(time.perf_counter() - start)
    drift = max(_orthogonality(layer.method) for _, layer in binary_layers(model))
    result = {"model": args.model, "rotation": args.rotation, "seconds": round(sorted(times)[len(times) // 2], 4)}
    result["largest_entry_of_RtR_minus_I"] = drift
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{args.model}, {args.rotation}: {result['seconds']} s per epoch, max |RᵀR − I| = {drift:.1e}")


def _orthogonality(method: torch.nn.Module) -> float:
    return max(float((r.mT @ r - torch.eye(len(r))).abs().max()) for r in (method.R1, method.R2))


if __name__ == "__main__":
    main()
