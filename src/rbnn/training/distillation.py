"""Learning from a trained network and the labels (Hinton et al., 2015).  The RBNN paper itself uses only labels."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from rbnn.errors import ConfigError
from rbnn.training.checkpoint import load_network
from rbnn.training.contract import InputContract
from rbnn.training.forward import at_least_float32


class Teacher:
    """A trained network that gives targets and does not learn."""

    def __init__(self, path: Path, contract: InputContract, device: torch.device) -> None:
        with torch.random.fork_rng(devices=[]):  # the student's random numbers are the same with and without a teacher
            network = load_network(path)
        if different := network.contract.difference(contract):
            raise ConfigError(
                f"teacher {path} was trained on different images or classes ({different}): train one on the same data"
            )
        self.model = network.model.to(device).to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        """Its logits."""
        return at_least_float32(self.model(images))


def distillation_loss(logits: Tensor, taught: Tensor, labels: Tensor, share: float, temperature: float) -> Tensor:
    """``(1 − s) CE(z, y) + s T² KL(softmax(z') ‖ softmax(z / T))`` with ``z' = taught / T``, mean over the images.

    T² compensates for the gradient of the softened part, which is smaller by that factor.  With s = T = 1 the gradient
    is that of ``−Σ softmax(taught) log softmax(z)``, the label-free loss of ReActNet and others.  The two losses differ
    by the entropy of the teacher's outputs, which is constant.
    """
    softened = F.kl_div(
        F.log_softmax(logits / temperature, 1),
        F.log_softmax(taught / temperature, 1),
        log_target=True,
        reduction="batchmean",
    )
    taught_part = share * temperature**2 * softened
    return taught_part if share == 1 else (1 - share) * F.cross_entropy(logits, labels) + taught_part
