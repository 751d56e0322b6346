"""Time of whole epochs of RBNN beside its float twin: data, augmentation, steps, validation, log and checkpoint.

python benchmarks/epoch.py --data cifar10 --data-dir data --images 5120 --json
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from rbnn.training import TrainConfig, train
from rbnn.training.loop import Progress

NETWORKS = ("rbnn", "float")


class Clock(Progress):
    """When training began and when each epoch had been validated, logged and saved."""

    def begin(self, config: TrainConfig, steps: int, epoch: int, step: int) -> None:
        self.times = [time.perf_counter()]
        self.in_steps: list[float] = []

    def epoch(self, entry: dict) -> None:
        self.times.append(time.perf_counter())
        self.in_steps.append(entry["images_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="resnet20-bireal")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--images", type=int, default=0, help="of the training set; 0: all")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in NETWORKS}
    speed: dict[str, list[float]] = {name: [] for name in NETWORKS}
    with tempfile.TemporaryDirectory() as directory:
        for round_ in range(args.rounds):
            for name in NETWORKS:
                clock = Clock()
                config = TrainConfig(
                    model=args.model, method=name, data=args.data, data_dir=args.data_dir, epochs=1, limit=args.images,
                    batch_size=args.batch, threads=args.threads, device="cpu", out=Path(directory) / f"{name}-{round_}",
                )  # fmt: skip
                train(config, clock)
                seconds[name].append(clock.times[-1] - clock.times[0])
                speed[name].append(clock.in_steps[0])
    best = {name: min(values) for name, values in seconds.items()}
    result = {f"{name}_seconds": round(value, 2) for name, value in best.items()}
    result["ratio"] = round(best["rbnn"] / best["float"], 3)
    result |= {f"{name}_images_per_second_in_steps": round(max(values), 1) for name, values in speed.items()}
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:36}{value}")


if __name__ == "__main__":
    main()
