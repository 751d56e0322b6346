"""Time one 3×3 binary layer with float input and output on our engine and on others, taking turns; minimum of many.

python benchmarks/layers.py --json
"""

import argparse
import json
from math import prod

import numpy as np

from rbnn.bench.rivals.compare import compare
from rbnn.bench.rivals.contenders import ENGINES, missing
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation

SHAPES = (64, 56), (128, 28), (256, 14), (512, 7)
"""Channels and side of the layers of ResNet-18 @224: 115.6 M multiply-adds each."""


def layer(channels: int, side: int) -> Graph:
    """A sign and a convolution, with nothing before or after."""
    signs = np.random.default_rng(0).integers(0, 2, (channels, 3, 3, channels), np.uint8)
    shape = side, side, channels
    return Graph(
        Input("x"),
        "y",
        {"x": Buffer("float", shape), "bits": Buffer("bits", shape), "y": Buffer("float", shape)},
        [
            Operation("pack", "pack", {"x": "x"}, {"bits": "bits"}),
            Operation(
                "binary_conv", "conv", {"x": "bits"}, {"float": "y"},
                {"weight": np.packbits(signs, axis=-1, bitorder="little")},
                {"kernel": [3, 3], "padding": [1, 1]},
            ),
        ],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each contender and layer")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    engines = [name for name in ENGINES if not missing(name)]
    rows = [
        {"channels": channels, "side": side, **compare(layer(channels, side), engines, args.threads, 1, args.seconds)}
        for channels, side in SHAPES
    ]
    names = [f"{each['engine']} {each['numbers']}" for each in rows[0]["contenders"]]
    ratios = {
        name: prod(row["contenders"][place]["ratio"] for row in rows) ** (1 / len(rows))
        for place, name in enumerate(names)
    }
    if args.json:
        print(json.dumps({"layers": rows, "geometric_mean_of_ratios": ratios}, indent=1))
        return
    print(f"| layer | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for row in rows:
        times = [f"{each['best_ms']:.3f}" for each in row["contenders"]]
        print(f"| {row['channels']}@{row['side']} | {' | '.join(times)} |")
    print(f"| time against ours | {' | '.join(f'{ratio:.2f}×' for ratio in ratios.values())} |")
    exact = [row["openvino_binary"]["exact"] == 1 for row in rows if row["openvino_binary"]]
    print(f"\nmilliseconds; OpenVINO's 1-bit sums are right in {sum(exact)} of {len(exact)} layers")


if __name__ == "__main__":
    main()
