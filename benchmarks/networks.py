"""Time whole networks with random signs on our engine and on others, taking turns, and compare with our targets.

python benchmarks/networks.py --json        (about three minutes; run nothing else meanwhile)
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rbnn
from rbnn.bench.race import race
from rbnn.bench.rivals.compare import compare
from rbnn.bench.rivals.contenders import ENGINES, missing
from rbnn.models import MODELS
from rbnn.packed import file as packfile
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session

NETWORKS = {
    "resnet18": {},
    "resnet18, int8 stem": {"stem": "int8"},
    "resnet18, all int8": {"stem": "int8", "float_layers": "int8"},
    "resnet20-bireal": {},
    "vgg-small": {},
}
"""A model, and how it is exported."""

FLOORS = {
    "resnet18": {"openvino 1-bit": 1.0, "best float32": 6.5},
    "resnet18, int8 stem": {"openvino 1-bit": 1.35, "best int8": 2.7, "best float32": 8.0},
    "resnet18, all int8": {},
    "resnet20-bireal": {"openvino 1-bit": 1.3},
    "vgg-small": {"openvino 1-bit": 1.0},
}
"""The speed-up over a rival that each network should have at least, on a CPU with AVX-512."""


def packed(name: str, directory: Path, **options: Any) -> Path:
    """A network with random signs as a packed file.  Its batch norms have γ = 1 and the statistics of their inputs, as
    after training.  Initially γ is near 0, and int8 engines would skip layers that do nothing."""
    model_name = name.partition(",")[0]
    torch.manual_seed(0)
    size = MODELS[model_name].image_size
    classes = 1000 if size == 224 else 10
    model = rbnn.create_model(model_name, method="rbnn", num_classes=classes, **options)
    pictures = torch.randn(8, 3, size, size)
    for norm in (each for each in model.modules() if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)):
        torch.nn.init.ones_(norm.weight)
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(pictures)
    path = directory / f"{len(list(directory.iterdir()))}.rbnn"
    rbnn.export(model.eval(), path, pictures[:2], [0.5] * 3, [0.25] * 3, **NETWORKS[name])
    return path


def ratios(row: dict[str, Any]) -> dict[str, float]:
    """The rivals' times divided by ours."""
    found = {f"{each['engine']} {each['numbers']}": each["ratio"] for each in row["contenders"][1:]}
    for numbers in ("float32", "int8"):
        each = [ratio for rival, ratio in found.items() if rival.endswith(numbers)]
        if each:
            found[f"best {numbers}"] = min(each)
    return found


def inside(graph: Graph, centred: Graph, seconds: float) -> dict[str, float]:
    """Milliseconds per image of our engine alone: one image with one and two threads, 32 in a row and as a batch, a
    batch of 64 with one and two threads, bytes, and with centring.  Batches are compared with 32 images in a row,
    because on a shared machine a single image is more likely to find an undisturbed moment."""
    height, width, channels = graph.buffers[graph.input.buffer].shape
    images = np.random.default_rng(1).normal(size=(64, channels, height, width)).astype(np.float32)
    pixels = np.random.default_rng(1).integers(0, 256, (1, channels, height, width), np.uint8)
    one, two, other = Session(graph), Session(graph, 2), Session(centred)
    times = race(
        {
            "one thread": lambda: one(images[:1]),
            "two threads": lambda: two(images[:1]),
            "32 in turn": lambda: [one(images[i : i + 1]) for i in range(32)],
            "batch of 32": lambda: one(images[:32]),
            "batch of 64": lambda: one(images),
            "batch of 64, two threads": lambda: two(images),
            "uint8 picture": lambda: one(pixels),
            "centred": lambda: other(images[:1]),
        },
        seconds,
    )
    return {
        name: round(1e3 * each.best / (64 if "64" in name else 32 if "32" in name else 1), 4)
        for name, each in times.items()
    }


def loading(directory: Path) -> dict[str, float]:
    """Milliseconds to load a ResNet-18, and to `import rbnn.packed.session` after the interpreter has started."""
    path = next(iter(sorted(directory.iterdir())))
    times = []
    for _ in range(10):
        start = time.perf_counter()
        Session(path)
        times.append(time.perf_counter() - start)
    code = "import time; t = time.perf_counter(); import rbnn.packed.session; print(time.perf_counter() - t)"
    imports = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return {"load_ms": round(1e3 * min(times), 2), "import_ms": round(1e3 * min(imports), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each contender")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    engines = [name for name in ENGINES if not missing(name)]
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        for name in args.networks:
            path = packed(name, directory, standardise=False)
            graph = packfile.read(path)
            row = compare(graph, engines, args.threads, args.batch, args.seconds)
            row["ratios"] = ratios(row)
            row["floors"] = FLOORS[name]
            row["bytes"] = path.stat().st_size
            row["ours"] = inside(graph, packfile.read(packed(name, directory, standardise=True)), args.seconds)
            rows[name] = row
        load = loading(directory)
    if args.json:
        print(json.dumps({"networks": rows, **load}, indent=1))
    else:
        show(rows, load)


def show(rows: dict[str, dict[str, Any]], load: dict[str, float]) -> None:
    first = next(iter(rows.values()))
    names = [f"{each['engine']} {each['numbers']}" for each in first["contenders"]]
    print(f"{first['kernels']} kernels, {first['threads']} thread(s), batch {first['batch']}, ms, best of many\n")
    print(f"| network | {' | '.join(names)} |")
    print("|---" * (len(names) + 1) + "|")
    for name, row in rows.items():
        times = [f"{each['best_ms']:.2f}" for each in row["contenders"]]
        print(f"| {name} | {' | '.join(times)} |")
    if of_bytes := [name for name, row in rows.items() if row["contenders"][0]["pictures"] == "uint8"]:
        print(f"\nours takes pictures of bytes, the others the same ones as float32: {'; '.join(of_bytes)}")
    print("\n| network | rival | times faster | wanted | |\n|---|---|---|---|---|")
    for name, row in rows.items():
        for rival, floor in row["floors"].items():
            if rival in row["ratios"]:
                met = "✓" if row["ratios"][rival] >= floor else "–"
                print(f"| {name} | {rival} | {row['ratios'][rival]:.2f} | {floor} | {met} |")
    kinds = list(first["ours"])
    print(f"\n| ours, ms for a picture | {' | '.join(kinds)} | second thread | centring | file, bytes |")
    print("|---" * (len(kinds) + 4) + "|")
    for name, row in rows.items():
        ours = row["ours"]
        speedup, centring = ours["one thread"] / ours["two threads"], ours["centred"] / ours["one thread"] - 1
        times = " | ".join(f"{ours[kind]:.3f}" for kind in kinds)
        print(f"| {name} | {times} | {speedup:.2f}× | {centring:+.0%} | {row['bytes']:,} |")
    for name, row in rows.items():
        if binary := row["openvino_binary"]:
            print(
                f"\n{name}: OpenVINO's 1-bit sums are right in {binary['exact']} of {binary['layers']} layers", end=""
            )
    print(f"\n\nloading {load['load_ms']} ms, import rbnn.packed.session {load['import_ms']} ms")


if __name__ == "__main__":
    main()
