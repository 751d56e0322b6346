"""The forward pass of a training step: in float32 or bfloat16, compiled or not, in one process or in several."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.errors import ConfigError, TrainingError
from rbnn.training.config import TrainConfig
from rbnn.training.distributed import Processes, in_parallel


def at_least_float32(logits: Tensor) -> Tensor:
    """bfloat16 has too few digits for a softmax."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class Forward:
    """The logits of ``model`` in training.  Evaluation, checkpoints and export use ``model`` itself: in float32, not
    compiled, with its ordinary names."""

    def __init__(self, model: nn.Module, config: TrainConfig, processes: Processes) -> None:
        self.config, self.processes = config, processes
        self.refusals: tuple[type[Exception], ...] = ()
        if config.compile:
            # torch.compile's exception has no public name.  It is imported here because the import takes a second.
            from torch._dynamo.exc import TorchDynamoException

            self.refusals = (TorchDynamoException,)
        # The compiled graph is inside the parallel model, so its backward pass is done when gradients are averaged.
        network: Any = torch.compile(model, fullgraph=True) if config.compile else model
        self.network: Any = in_parallel(network) if processes.world > 1 else network

    def __call__(self, images: Tensor) -> Tensor:
        try:
            return at_least_float32(self.network(images))
        except self.refusals as error:
            first, _, rest = str(error).strip().partition("\n")
            reason = f"{first} {rest.partition(chr(10))[0]}" if first.endswith(":") else first
            raise TrainingError(f"torch.compile failed ({reason}): train with --no-compile") from error
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ConfigError(
                f"batch norm needs more than one image: batch_size {self.config.batch_size} divided by accumulate "
                f"{self.config.accumulate} and the number of processes {self.processes.world} leaves {len(images)}; "
                "increase batch_size"
            ) from None

    def precision(self) -> AbstractContextManager[object]:
        """A context for the network and its loss, in which everything except binary layers runs in bfloat16."""
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.processes.device.type, torch.bfloat16)

    def keeping_gradients(self, keep: bool) -> AbstractContextManager[object]:
        """A context for a micro-batch whose gradients stay in this process until those of the next ones are added."""
        return self.network.no_sync() if keep and self.processes.world > 1 else nullcontext()  # type: ignore[no-any-return]
