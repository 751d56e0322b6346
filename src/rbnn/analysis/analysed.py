"""A run and all that is measured of it."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from rbnn.analysis.costs import Costs, costs
from rbnn.analysis.gradients import Gradient, gradients, reached
from rbnn.analysis.layers import Layer, layers
from rbnn.analysis.run import Run
from rbnn.runtime import Session

REPEATS = 30
"""Times that a packed network is run for its profile."""


@dataclass(frozen=True)
class Analysed:
    """One run of a report."""

    run: Run
    number: int
    """Its place in the report, which decides its colour."""

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def described(self) -> str:
        """Name, method and the options that differ from the method's own."""
        options = ", ".join(f"{key} = {value}" for key, value in self.run.config.options.items())
        return f"{self.run.config.method}{f' ({options})' if options else ''}"

    @cached_property
    def layers(self) -> list[Layer]:
        return layers(self.run)

    @cached_property
    def gradients(self) -> dict[str, Gradient]:
        return gradients(self.run)

    @cached_property
    def reached(self) -> float | None:
        return reached(self.run, self.layers)

    @cached_property
    def costs(self) -> Costs | None:
        """What its network costs when deployed; None without a checkpoint."""
        network = self.run.network
        if network is None:
            return None
        size = network.contract.image_size
        return costs(network.model, torch.zeros(1, network.contract.channels, size, size))

    def best(self) -> dict[str, float]:
        """The log's entry with the best test accuracy, the first of equals."""
        return max(self.run.epochs, key=lambda entry: entry["top1"])

    def over_training(self, key: str) -> list[tuple[int, list[float]]]:
        """(epoch counted from 1, the layers' values) for each epoch whose log has ``key``."""
        found = []
        for entry in self.run.epochs:
            values = [figures[key] for figures in entry["layers"].values() if key in figures]
            if values:
                found.append((entry["epoch"] + 1, values))
        return found


@dataclass(frozen=True)
class Timed:
    """A packed network and the milliseconds of each of its operations for one picture on one thread."""

    name: str
    path: Path
    bytes: int
    kernels: str
    operations: list[tuple[str, str, float]]
    """(name, kind, milliseconds)."""

    @property
    def milliseconds(self) -> float:
        return sum(time for _, _, time in self.operations)


def time_packed(path: Path, name: str) -> Timed:
    """Runs a packed network by itself, operation by operation."""
    session = Session(path)
    image = np.random.default_rng(0).standard_normal((1, *session.input_shape)).astype(np.float32)
    operations = [
        (operation.name, operation.kind, 1000 * seconds) for operation, seconds in session.profile(image, REPEATS)
    ]
    return Timed(name, path, path.stat().st_size, session.kernels, operations)


def packed_files(runs: list[Run], given: list[Path]) -> list[tuple[Path, str]]:
    """The packed networks to time with their names: those given, and those that lie in the run directories."""
    found = {path.resolve(): (path, path.name) for path in given}
    for run in runs:
        for path in sorted(run.path.glob("*.rbnn")):
            found.setdefault(path.resolve(), (path, f"{run.name}/{path.name}"))
    return list(found.values())
