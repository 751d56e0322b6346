"""Compare the speed of two commits: build both, and run the rows of networks.py, layers.py and train_step.py in turns.

python benchmarks/compare_commits.py b5128c2 HEAD --json out.json

Each row's function comes from its commit's own benchmark file, so names may differ between the two.  Each row is
timed many times, alternating between the builds.  The result is the ratio of the minimum times; above 1 the second
commit is slower.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FORWARD = (16, 32), (32, 16), (64, 8)
"""Channels and side of a ResNet-20's binary layers."""


def network_rows(names: list[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    import numpy as np

    import rbnn.runtime

    networks = importlib.import_module("networks")
    with tempfile.TemporaryDirectory() as directory:
        for name in names:
            session = rbnn.runtime.Session(networks.packed(name, Path(directory), standardise=False))
            size = 224 if name.startswith(("resnet18", "resnet34")) else 32
            image = np.random.default_rng(1).normal(size=(1, 3, size, size)).astype(np.float32)
            yield f"network {name}", lambda session=session, image=image: session(image)


def layer_rows() -> Iterator[tuple[str, Callable[[], object]]]:
    import numpy as np

    import rbnn.runtime

    layers = importlib.import_module("layers")
    for channels, side in layers.SHAPES:
        session = rbnn.runtime.Session(layers.layer(channels, side))
        image = np.random.default_rng(1).normal(size=(1, channels, side, side)).astype(np.float32)
        yield f"layer {channels}@{side}", lambda session=session, image=image: session(image)


def training_rows(batch: int) -> Iterator[tuple[str, Callable[[], object]]]:
    import torch

    import rbnn
    from rbnn import _core

    _core.keep_freed_memory()
    for channels, side in FORWARD:
        torch.manual_seed(0)
        layer = rbnn.BinaryConv2d(channels, channels, 3, padding=1, bias=False, method="rbnn")
        rbnn.BinarySchedule(layer, torch.optim.SGD(layer.parameters(), 0.1), epochs=10).step(3)
        layer.to(memory_format=torch.channels_last)
        x = torch.randn(batch, channels, side, side).to(memory_format=torch.channels_last).requires_grad_()
        yield f"forward {channels}@{side}", lambda layer=layer, x=x: layer(x)
    train_step = importlib.import_module("train_step")
    yield "train step resnet20-bireal", train_step.stepper("rbnn", "resnet20-bireal", batch, {})


def work(benchmarks: str, options: dict[str, Any]) -> None:
    """The process of one commit: prepares all rows, then times the row whose number it reads."""
    import rbnn

    if not Path(rbnn.__file__).is_relative_to(Path(benchmarks).parent.parent):
        raise SystemExit(f"another rbnn is in the way: {rbnn.__file__}")
    sys.path.insert(0, benchmarks)
    rows: list[tuple[str, Callable[[], object]]] = []
    if options["training"]:
        import torch

        torch.set_num_threads(1)
        rows += training_rows(options["batch"])
    rows += network_rows(options["networks"])
    rows += layer_rows() if options["layers"] else ()
    for _, call in rows:
        call()
    print(json.dumps([name for name, _ in rows]), flush=True)
    for line in sys.stdin:
        call = rows[int(line)][1]
        best, end = float("inf"), time.perf_counter() + options["slice"]
        while time.perf_counter() < end:
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
        print(best, flush=True)


def install(commit: str, directory: Path) -> Path:
    """A commit's files, and in ``installed`` its package."""
    tree = directory / "tree"
    subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", directory / "installed", tree], check=True)
    return tree


def start(directory: Path, options: dict[str, Any]) -> subprocess.Popen[str]:
    # An editable install has its own finder, which comes first: remove it, so that the path decides.
    code = (
        "import runpy, sys;"
        "sys.meta_path[:] = [each for each in sys.meta_path if 'editable' not in type(each).__module__];"
        "sys.path.insert(0, sys.argv.pop(1)); del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    words = [directory / "installed", __file__, "--work", directory / "tree" / "benchmarks", json.dumps(options)]
    return subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process: subprocess.Popen[str], question: str = "") -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    if question:
        print(question, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"a commit's process ended with code {process.wait()}")
    return json.loads(answer)


def race(processes: list[subprocess.Popen[str]], rounds: int) -> list[dict[str, Any]]:
    names = [ask(process) for process in processes]
    if names[0] != names[1]:
        raise SystemExit(f"the commits have other rows: {set(names[0]) ^ set(names[1])}")
    best = [[float("inf")] * len(processes) for _ in names[0]]
    for round_ in range(rounds):
        for row in range(len(best)):
            # Alternate which build goes first, so that neither always finds the other's data in the cache.
            for each in (0, 1) if round_ % 2 == 0 else (1, 0):
                best[row][each] = min(best[row][each], ask(processes[each], str(row)))
    return [
        {"row": name, "before_ms": 1e3 * before, "after_ms": 1e3 * after, "ratio": after / before}
        for name, (before, after) in zip(names[0], best, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    networks = ["resnet18", "resnet18, int8 stem", "resnet18, all int8", "resnet20-bireal", "vgg-small"]
    parser.add_argument("--networks", nargs="*", choices=networks, default=networks)
    parser.add_argument("--no-layers", action="store_true")
    parser.add_argument("--no-training", action="store_true", help="without layers' forward passes and training steps")
    parser.add_argument("--batch", type=int, default=128, help="of training")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--slice", type=float, default=0.2, help="seconds for a row in one turn")
    parser.add_argument("--json", type=Path, help="writes all rows to this file")
    args = parser.parse_args()
    options = {
        "networks": args.networks, "layers": not args.no_layers, "training": not args.no_training,
        "batch": args.batch, "slice": args.slice,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        directories = [Path(temporary) / name for name in ("before", "after")]
        processes: list[subprocess.Popen[str]] = []
        try:
            for commit, directory in zip((args.before, args.after), directories, strict=True):
                install(commit, directory)
                processes.append(start(directory, options))
            rows = race(processes, args.rounds)
        finally:
            for process in processes:
                process.kill()
                process.wait()
            for directory in directories:
                if (directory / "tree").exists():
                    remove = ["git", "-C", ROOT, "worktree", "remove", "--force", directory / "tree"]
                    subprocess.run(remove, check=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(f"| row | {args.before}, ms | {args.after}, ms | ratio |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row['row']} | {row['before_ms']:.3f} | {row['after_ms']:.3f} | {row['ratio']:.3f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main()
