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
            # What torch.compile raises has no public name; imported here, since it takes a second.
            from torch._dynamo.exc import TorchDynamoException

            self.refusals = (TorchDynamoException,)
        # The graph is inside what runs in parallel: its backward pass is done when the gradients are averaged.
        network: Any = torch.compile(model, fullgraph=True) if config.compile else model
        self.network: Any = in_parallel(network) if processes.world > 1 else network

    def __call__(self, images: Tensor) -> Tensor:
        try:
            return at_least_float32(self.network(images))
        except self.refusals as error:
            first, _, rest = str(error).strip().partition("\n")
            reason = f"{first} {rest.partition(chr(10))[0]}" if first.endswith(":") else first
            raise TrainingError(f"torch.compile fails ({reason}): train with --no-compile") from error
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ConfigError(
                f"batch norm has nothing to average over one image: with batch_size {self.config.batch_size} in "
                f"{self.config.accumulate} micro-batches of {self.processes.world} processes each computes "
                f"{len(images)}; make batch_size larger"
            ) from None

    def precision(self) -> AbstractContextManager[object]:
        """Around whatever is computed of the network and its loss: all in bfloat16 that is not a binary layer."""
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.processes.device.type, torch.bfloat16)

    def keeping_gradients(self, keep: bool) -> AbstractContextManager[object]:
        """Around a micro-batch whose gradients stay in this process until those of the next ones are added."""
        return self.network.no_sync() if keep and self.processes.world > 1 else nullcontext()  # type: ignore[no-any-return]
