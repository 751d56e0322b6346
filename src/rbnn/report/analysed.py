"""A run and its measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import realpath
from pathlib import Path

import torch

from rbnn import _core
from rbnn.costs.model import Costs, costs
from rbnn.costs.packed import OperationCosts, PackedCosts, packed_costs
from rbnn.methods import method_options
from rbnn.packed import file as packfile
from rbnn.report.gradients import Gradient, gradients, reached
from rbnn.report.layers import Layer, layers
from rbnn.report.run_directory import Run
from rbnn.training.log import evaluated_on


@dataclass(frozen=True)
class Analysed:
    """One run of a report."""

    run: Run
    number: int
    """The index of its row in the report, which decides its colour.  Runs that differ only in their seed share it."""
    row: str
    """The name of its row; its own name if no other run differs only in the seed."""

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def described(self) -> str:
        """The method and the options that differ from its defaults."""
        config = self.run.config
        own = method_options(config.method)
        changed = ((key, value) for key, value in config.options.items() if value != own[key])
        options = ", ".join(f"{key} = {f'{value:g}' if isinstance(value, float) else value}" for key, value in changed)
        return f"{config.method}{f' ({options})' if options else ''}"

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
        """The costs of its network when deployed; None without a checkpoint."""
        network = self.run.network
        if network is None:
            return None
        size = network.contract.image_size
        return costs(network.model, torch.zeros(1, network.contract.channels, size, size))

    def best(self) -> dict[str, float]:
        """The first log entry with the best accuracy."""
        return max(self.run.epochs, key=lambda entry: entry["top1"])

    def over_training(self, key: str) -> list[tuple[int, list[float]]]:
        """(epoch counted from 1, the layers' values) for each epoch whose log has ``key``."""
        found = []
        for entry in self.run.epochs:
            values = [measures[key] for measures in entry["layers"].values() if key in measures]
            if values:
                found.append((entry["epoch"] + 1, values))
        return found


@dataclass(frozen=True)
class Timed:
    """A packed network, timed on one thread of this machine."""

    name: str
    kernels: str
    costs: PackedCosts

    @property
    def milliseconds(self) -> float:
        """For one image."""
        return 1000 * float(self.costs.total("seconds"))

    def layers(self) -> dict[str, list[OperationCosts]]:
        """The operations grouped by layer: ``conv1.sign`` belongs to ``conv1``."""
        names = {operation.name for operation in self.costs.operations}
        found: dict[str, list[OperationCosts]] = {}
        for operation in self.costs.operations:
            parts = operation.name.split(".")
            above = (".".join(parts[:length]) for length in range(1, len(parts)))
            found.setdefault(next((name for name in above if name in names), operation.name), []).append(operation)
        return found


def time_packed(path: Path, name: str) -> Timed:
    """Time each operation of a packed network."""
    graph = packfile.read(path)
    return Timed(name, _core.chosen_kernels(), packed_costs(graph, path.stat().st_size))


def packed_files(runs: list[Run], given: list[Path]) -> list[tuple[Path, str]]:
    """The packed networks to time with their names: those given, and those in the run directories."""
    found = {realpath(path): (path, path.name) for path in given}
    for run in runs:
        for path in sorted(run.path.glob("*.rbnn")):
            found.setdefault(realpath(path), (path, f"{run.name}/{path.name}"))
    return list(found.values())


def judged_on(runs: Sequence[Analysed]) -> str:
    """What the accuracies were measured on."""
    return " or ".join(dict.fromkeys(evaluated_on(entry) for each in runs for entry in each.run.epochs[:1]))
