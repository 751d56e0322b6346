"""Several processes that train one network, started by torchrun.  A single process is a world of size one."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from traceback import clear_frames
from typing import Any, cast

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: its functions keep the one they find as a default argument
from torch import Tensor, nn
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from rbnn.errors import ConfigError, TrainingError


@dataclass(frozen=True)
class Processes:
    """This process's place among those that train together, and the device it computes on."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Each value summed over all processes, in double."""
        if self.world == 1:
            return values
        kind = torch.float32 if self.device.type == "mps" else torch.float64
        total = torch.tensor(values, dtype=kind, device=self.device)
        dist.all_reduce(total)
        return cast(list[float], total.tolist())

    def any(self, value: bool) -> bool:
        """Whether ``value`` is true in any of the processes.  All processes get the same result."""
        return self.sum([float(value)])[0] > 0

    def require_same(self, values: Mapping[str, Tensor | float], when: str) -> None:
        """Raises, in all processes, unless each of ``values`` is the same everywhere, bit for bit."""
        if self.world == 1:
            return
        least = torch.tensor([_fingerprint(value) for value in values.values()], device=self.device)
        most = least.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        drifted = [name for name, same in zip(values, (least == most).tolist(), strict=True) if not same]
        if drifted:
            raise TrainingError(
                f"{drifted[0]} and {len(drifted) - 1} others of {len(values)} differ between the processes {when}: "
                "the processes no longer train the same network; check the machines, then continue from the last "
                "checkpoint with --resume"
            )

    def share_from_first(self, model: nn.Module) -> None:
        """Send the parameters and buffers (rotations, running statistics) of the first process to all.  Hardware may
        compute a singular value decomposition differently, so this keeps the rotations bit-identical everywhere."""
        if self.world > 1:
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor.detach(), src=0)


def _fingerprint(value: Tensor | float) -> int:
    """64 bits of a hash of its bytes."""
    tensor = torch.as_tensor(value).detach().cpu().contiguous()
    return int.from_bytes(hashlib.blake2b(tensor.view(-1).numpy().tobytes(), digest_size=8).digest(), signed=True)


def in_parallel(model: nn.Module) -> DistributedDataParallel:
    """``model`` with gradients averaged over all processes.  Only ``share_from_first`` shares buffers.

    Delete it before the group ends.  The last holder of a group waits for its threads.  This one would wait while it
    holds Python's lock, for which those threads may be waiting in turn, and the process would hang or abort at exit.
    """
    # torch 2.13 renamed the switch and warns about the old name.
    new = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    switch: dict[str, Any] = {"forward_sync_buffers" if new else "broadcast_buffers": False}
    return DistributedDataParallel(model, **switch)


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """``auto`` is CUDA, otherwise Apple's GPU, otherwise the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError
        if name == "cuda":
            device = torch.device("cuda", local_rank)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise ConfigError(f"device {name!r} is not available: use cpu, cuda, cuda:N, mps or auto") from None
    return device


@contextmanager
def processes(device: str) -> Iterator[Processes]:
    """Join the group that torchrun set up in the environment, or form a world of size one without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local_rank)
    if world == 1:
        yield Processes(0, 1, chosen)
        return
    store, rank, world = next(rendezvous("env://"))
    # After a restart the launcher's store still holds what earlier processes wrote.  Each attempt uses its own names;
    # otherwise the new processes would wait for the old ones.
    store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "nccl" if chosen.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        yield Processes(rank, world, chosen)
        dist.barrier()  # nobody closes its connections while another still uses them
    except BaseException as error:
        # The frames of an exception hold the parallel model, which must be deleted before the group (see in_parallel).
        clear_frames(error.__traceback__)
        if not isinstance(error, dist.DistError) and not (isinstance(error, RuntimeError) and "gloo" in str(error)):
            raise
        raise TrainingError(
            f"process {rank} lost contact with another of the {world} processes: see why it ended, then continue from "
            "the last checkpoint with --resume (torchrun --max-restarts=N does this automatically)"
        ) from None
    finally:
        dist.destroy_process_group()


class _SumOverProcesses(torch.autograd.Function):
    """All-reduce in both directions: the gradient of a sum that all processes use is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        total = grad.clone()
        dist.all_reduce(total)
        return total


class AllReducedBatchNorm(nn.BatchNorm2d):
    """Batch norm whose training statistics are those of the batch of all processes, on any device and for any number
    of dimensions.  (torch's SyncBatchNorm needs a GPU.)

        mean = Σ x / n,   var = Σ (x − mean)² / n,   both sums over all processes
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ConfigError(f"batch norm expects a tensor with at least 2 dimensions, got {input.dim()}")

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and dist.is_initialized()):
            return super().forward(x)
        dims = [0, *range(2, x.dim())]
        shape = [1, -1, *[1] * (x.dim() - 2)]
        # Every process has an equal share of the batch, so the count needs no message.
        count = x.numel() // x.shape[1] * dist.get_world_size()
        mean = _sum(x.sum(dims)) / count
        centred = x - mean.view(shape)
        variance = _sum(centred.square().sum(dims)) / count
        if self.track_running_stats and self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                assert self.num_batches_tracked is not None
                self.num_batches_tracked.add_(1)
                # No momentum: the plain average of all batches so far.
                momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, momentum)
                self.running_var.lerp_(variance * (count / max(count - 1, 1)), momentum)
        scale = (variance + self.eps).rsqrt()
        if self.affine:
            return centred * (scale * self.weight).view(shape) + self.bias.view(shape)
        return centred * scale.view(shape)


def _sum(x: Tensor) -> Tensor:
    return _SumOverProcesses.apply(x)  # type: ignore[no-untyped-call, no-any-return]


def all_reduce_batch_norm_(model: nn.Module) -> None:
    """Replace every batch norm of ``model`` by one with all-reduced statistics; parameters and names stay."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d) and not isinstance(child, AllReducedBatchNorm):
                shape = child.num_features, child.eps, child.momentum, child.affine, child.track_running_stats
                twin = AllReducedBatchNorm(*shape)
                for held in (*child.parameters(), *child.buffers()):
                    if held.is_floating_point():
                        twin.to(held)
                twin.load_state_dict(child.state_dict())
                setattr(module, name, twin.train(child.training))
