"""Small runs, and functions that compare two of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from rbnn.training.config import TrainConfig, from_table

STEPS = 4
"""Steps per epoch of a small run."""

SMALL: dict[str, Any] = {"epochs": 2, "limit": STEPS * 64, "batch_size": 64, "lr": 0.05, "threads": 1}


def small(out: Path, **more: Any) -> TrainConfig:
    """A run of about a second."""
    return from_table(SMALL | more | {"out": str(out)})


def words(out: Path, **more: Any) -> list[str]:
    """The same run as command-line arguments."""
    flags = SMALL | more | {"out": out}
    papers = [] if "method" in more else ["--options", "rotate_until=1.0"]  # the recipe has another value
    return ["train", "digits", *papers, *(word for key, value in flags.items() for word in (f"--{key}", str(value)))]


def torchrun(script: str, *arguments: str, launcher: tuple[str, ...] = ("--standalone",)) -> list[str]:
    """The torchrun command for two processes on this machine, by default on a free port."""
    path = Path(__file__).with_name(script)
    return [sys.executable, "-m", "torch.distributed.run", *launcher, "--nproc-per-node=2", str(path), *arguments]


def done(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command with one thread per process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def log_of(run: Path) -> list[dict[str, Any]]:
    """The log without the fields that depend on the clock."""
    entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    for entry in entries:
        del entry["images_per_second"]
    return entries


def state_of(checkpoint: Path) -> dict[str, Any]:
    """A checkpoint without the path of its run."""
    state = torch.load(checkpoint, weights_only=True)
    for key in ("out", "resume"):
        state["config"].pop(key, None)
    state.get("sums", {}).pop("seconds", None)
    return state


def difference(a: Any, b: Any, where: str = "") -> str | None:
    """The first place at which two nested structures of tensors are not bit-identical, or None."""
    if type(a) is not type(b):
        return f"{where}: {type(a)} and {type(b)}"
    if isinstance(a, Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
        return None if same else f"{where}: tensors"
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return f"{where}: keys {sorted(map(str, a.keys() ^ b.keys()))}"
        return next((d for key in a if (d := difference(a[key], b[key], f"{where}.{key}"))), None)
    if isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{where}: lengths {len(a)} and {len(b)}"
        return next(
            (d for i, (x, y) in enumerate(zip(a, b, strict=True)) if (d := difference(x, y, f"{where}[{i}]"))), None
        )
    return None if a == b else f"{where}: {a!r} and {b!r}"


def assert_same_run(a: Path, b: Path) -> None:
    """Bit for bit: weights, momenta, rotations, best epoch, initial signs, and a log with every epoch once."""
    for name in ("last.pt", "best.pt"):
        assert difference(state_of(a / name), state_of(b / name), name) is None
    assert (a / "initial.safetensors").read_bytes() == (b / "initial.safetensors").read_bytes()
    assert log_of(a) == log_of(b)


def events(run: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(run))
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}
