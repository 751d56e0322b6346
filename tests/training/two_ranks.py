"""`torchrun two_ranks.py FOLDER`: every process computes what test_distributed.py compares and writes it to FOLDER."""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from runs import small
from torch import Tensor, nn

from rbnn.errors import RbnnError
from rbnn.nn import binary_layers
from rbnn.training.batches import Batches
from rbnn.training.config import TrainConfig, with_all_options
from rbnn.training.directory import RunDirectory
from rbnn.training.distributed import AllReducedBatchNorm, Processes, all_reduce_batch_norm_, in_parallel, processes
from rbnn.training.loop import Progress, _Run
from rbnn.training.stopping import Stop


class Record(Progress):
    """After every step: a hash of everything that must be identical in all processes, and the mean loss so far."""

    def __init__(self) -> None:
        self.run: _Run | None = None
        self.hashes: list[str] = []
        self.losses: list[float] = []

    def step(self, images: int, loss: float, top1: float) -> None:
        assert self.run is not None
        digest = hashlib.sha256()
        for name, tensor in self.run.model.state_dict().items():
            if "running" not in name:  # until the end of an epoch each process has its own running statistics
                digest.update(tensor.contiguous().numpy().tobytes())
        self.hashes.append(digest.hexdigest())
        self.losses.append(loss)


class Drift(Record):
    """Flip one bit in one process."""

    def __init__(self, what: str, rank: int) -> None:
        super().__init__()
        self.what, self.rank = what, rank

    def step(self, images: int, loss: float, top1: float) -> None:
        assert self.run is not None
        layers = dict(binary_layers(self.run.model))
        if self.rank == 1 and self.what == "weight":
            weight = layers["layers.0.0.conv1"].weight
            weight.data[0, 0, 0, 0] = torch.nextafter(weight.data[0, 0, 0, 0], torch.tensor(9.0))
        elif self.rank == 1 and self.what == "rotation":
            layers["layers.0.1.conv2"].method.R1[0, 0] += 1e-6
        elif self.rank == 1 and self.what == "schedule":
            layers["layers.0.0.conv2"].method.progress = 0.25

    def epoch_begins_late(self) -> None:
        """The second process has a schedule of another length."""
        assert self.run is not None
        if self.rank == 1:
            self.run.schedule.epochs += 1


def drifted(what: str, out: Path, those: Processes) -> str:
    record = Drift(what, those.rank)
    record.run = _Run(with_all_options(small(out)), RunDirectory(out), those, record)
    if what == "schedule between epochs":
        record.epoch_begins_late()
    try:
        record.run.train(Stop())
    except RbnnError as error:
        return str(error)
    finally:
        record.run.close()
        record.run.directory.release()
    return "nothing was noticed"


def recorded(config: TrainConfig, those: Processes) -> dict[str, Any]:
    record = Record()
    record.run = _Run(with_all_options(config), RunDirectory(config.directory), those, record)
    try:
        result = record.run.train(Stop())
    finally:
        record.run.close()
        record.run.directory.release()
    return {
        "hashes": record.hashes,
        "losses": record.losses,
        "model": record.run.model.state_dict(),
        "optimizer": record.run.optimizer.state_dict(),
        "logged": len(record.run.log.epochs) if record.run.log else None,
        "top1": result.best_top1,
    }


def all_reduced(out: Path, those: Processes) -> dict[str, Any]:
    """Two steps with statistics of the whole batch; the learning rate of the first is 0."""
    return recorded(small(out, batch_norm="all-reduced", epochs=1, limit=128), those)


def all_reduced_in_double(out: Path, those: Processes) -> dict[str, Any]:
    """A whole run in float64.  In float32, rounding decides the signs of values near zero, and two runs diverge even
    if their arithmetic is equivalent."""
    epoch = Batches.epoch

    def double(self: Batches, number: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        return ((images.double(), labels) for images, labels in epoch(self, number, start))

    Batches.epoch = double  # type: ignore[method-assign]
    torch.set_default_dtype(torch.float64)
    try:
        return recorded(small(out, batch_norm="all-reduced", limit=128), those)
    finally:
        torch.set_default_dtype(torch.float32)
        Batches.epoch = epoch  # type: ignore[method-assign]


def batch_norm(x: Tensor, grad: Tensor, momentum: float | None) -> dict[str, Tensor]:
    """Two batches through an all-reduced batch norm; this process has the share ``x``."""
    norm, x = batch_norm_like(x, momentum), x.requires_grad_()
    assert isinstance(norm, AllReducedBatchNorm)
    y = norm(x)
    y.backward(grad)
    norm(x.detach() * 2 + 1)
    assert norm.weight.grad is not None
    assert norm.bias.grad is not None
    assert x.grad is not None
    found = {"y": y.detach(), "x": x.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
    return found | {f"buffer {name}": value for name, value in norm.named_buffers()}


def batch_norm_like(x: Tensor, momentum: float | None, reduced: bool = True) -> nn.Module:
    kind = nn.BatchNorm2d if x.dim() == 4 else nn.BatchNorm1d
    model = nn.Sequential(kind(x.shape[1], eps=1e-3, momentum=momentum)).to(x)
    with torch.no_grad():
        model[0].weight.copy_(torch.linspace(0.5, 2, x.shape[1]))
        model[0].bias.copy_(torch.linspace(-1, 1, x.shape[1]))
    if reduced:
        all_reduce_batch_norm_(model)
    return model[0]


def batches_of_both(dims: int) -> tuple[Tensor, Tensor]:
    """The whole batch and a gradient for it, in float64: shares of different mean and variance."""
    random = torch.Generator().manual_seed(dims)
    shape = (8, 5, 3, 4)[:dims]
    x, grad = torch.randn(2, *shape, generator=random, dtype=torch.float64)
    x[4:] = x[4:] * 3 + 7
    return x, grad


def threads_of_a_group() -> int:
    return sum("gloo" in thread.read_text() for thread in Path("/proc/self/task").glob("*/comm"))


def threads_after_an_error_in_the_network() -> int:
    class Broken(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("broken")

    os.environ["TORCHELASTIC_RESTART_COUNT"] = "a second group"
    try:
        with processes("cpu"):
            in_parallel(Broken(2, 2))(torch.ones(1, 2))
    except ValueError:
        return threads_of_a_group()
    return -1


def main(folder: Path) -> None:
    found: dict[str, Any] = {}
    with processes("cpu") as those:
        torch.set_num_threads(1)
        for dims in (2, 4):
            for momentum in (0.3, None):
                share = slice(4 * those.rank, 4 * those.rank + 4)
                x, grad = batches_of_both(dims)
                found[f"batch norm {dims} {momentum}"] = batch_norm(x[share], grad[share], momentum)
        found["local"] = recorded(small(folder / "local"), those)
        found["all-reduced"] = all_reduced(folder / "all-reduced", those)
        found["all-reduced float64"] = all_reduced_in_double(folder / "float64", those)
        found["resumed"] = recorded(small(folder / "stopped", resume=True), those)
        for what in ("weight", "rotation", "schedule", "schedule between epochs"):
            name = f"drift of {what}"
            found[name] = drifted(what, folder / name, those)
        for name, values in {"odd batch": {"batch_size": 63}, "odd limit": {"limit": 33}}.items():
            try:
                recorded(small(folder / name, **values), those)
            except RbnnError as error:
                found[name] = str(error)
        found["threads within"] = threads_of_a_group()
    found["threads after"] = threads_of_a_group()
    found["threads after an error"] = threads_after_an_error_in_the_network()
    torch.save(found, folder / f"rank{those.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
