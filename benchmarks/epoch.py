"""Time whole epochs of RBNN and its float twin: data, augmentation, steps, validation, log and checkpoint.

python benchmarks/epoch.py --data cifar10 --data-dir data --images 5120 --json
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from rbnn.training.config import TrainConfig
from rbnn.training.loop import Progress, train

NETWORKS = ("rbnn", "float")


class Clock(Progress):
    """Wall-clock and CPU seconds from the start of training to the end of the epoch's validation.  On one thread, CPU
    time is the better measure if other programs are running."""

    def begin(self, config: TrainConfig, steps: int, epoch: int, step: int) -> None:
        self.began = time.perf_counter(), time.process_time()

    def epoch(self, entry: dict) -> None:
        self.seconds = time.perf_counter() - self.began[0]
        self.processor = time.process_time() - self.began[1]


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
    clocks: dict[str, list[Clock]] = {name: [] for name in NETWORKS}
    with tempfile.TemporaryDirectory() as directory:
        for round_ in range(args.rounds):
            for name in NETWORKS:
                clock = Clock()
                config = TrainConfig(
                    model=args.model, method=name, data=args.data, data_dir=args.data_dir, epochs=1, limit=args.images,
                    batch_size=args.batch, threads=args.threads, device="cpu", out=Path(directory) / f"{name}-{round_}",
                )  # fmt: skip
                train(config, clock)
                clocks[name].append(clock)
    result = {}
    for what in ("seconds", "processor"):
        best = {name: min(getattr(clock, what) for clock in clocks[name]) for name in NETWORKS}
        result |= {f"{name}_{what}": round(value, 2) for name, value in best.items()}
        result["ratio" if what == "seconds" else "processor_ratio"] = round(best["rbnn"] / best["float"], 3)
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:36}{value}")


if __name__ == "__main__":
    main()
