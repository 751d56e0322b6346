"""A network that starts from a trained one: what it takes over, and what begins anew."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from torch import Tensor, nn

from rbnn.data import FolderSet, ImageSet
from rbnn.errors import CheckpointError
from rbnn.models import MODELS
from rbnn.nn import binary_layers
from rbnn.training.batches import Batches
from rbnn.training.checkpoint import Network
from rbnn.training.config import TrainConfig
from rbnn.training.contract import InputContract
from rbnn.training.statistics import refresh_statistics

PICTURES_FOR_STATISTICS = 2048

Pictures = TypeVar("Pictures", bound=ImageSet | FolderSet)


@dataclass
class Taken:
    """What ``take_over`` did."""

    continued: set[str] = field(default_factory=set)
    """Binary layers that go on as they were trained."""
    notices: list[str] = field(default_factory=list)
    """What else the user should know."""
    head: str = ""
    """A sentence about a head of another size, which starts anew."""


def take_over(model: nn.Module, before: nn.Module, source: object) -> Taken:
    """Gives ``model`` the weights and batch norms of ``before``, the same network as trained, which ``source`` names.

    A binary layer of the same method goes on as it was, with its rotation, scales and β: its signs are those that were
    trained.  A layer that was float, or of another method, starts its method from the weights that it takes over; so
    does, with a notice, one whose method has options that give it tensors of other shapes.  A head for another number
    of classes stays as it is.
    """
    taken = Taken()
    weights, own = before.state_dict(), model.state_dict()
    head = _head_of_another_size(model, own, weights)
    if head:
        taken.head = (
            f"{source} tells {len(weights[f'{head}.weight'])} classes apart, this network "
            f"{len(own[f'{head}.weight'])}: its last layer {head!r} starts anew, all others are kept"
        )
    for name, value in own.items():
        if ".method." in name or name.rpartition(".")[0] == head:
            continue
        if name not in weights or weights[name].shape != value.shape:
            raise CheckpointError(f"cannot start from {source}: it has no {name} of shape {tuple(value.shape)}")
        own[name] = weights[name]
    model.load_state_dict(own)
    trained, anew = dict(binary_layers(before)), []
    for name, layer in binary_layers(model):
        layer.restart_method()
        if name not in trained:
            continue
        if layer.method.continue_from(trained[name].method):
            taken.continued.add(name)
        elif type(layer.method) is type(trained[name].method):
            anew.append(name)
    if anew:
        taken.notices.append(
            f"{len(anew)} layers, first {anew[0]}, have other options than in {source}, which their scales and "
            "rotations do not fit: these start anew from the weights, and most signs change"
        )
    return taken


def start(model: nn.Module, name: str, network: Network, source: object, batches: Batches) -> Taken:
    """``take_over`` for a run of the network called ``name``.  One from a packed file gets the statistics of the run's
    pictures, with which it still computes what it did."""
    there = network.config.model
    if there != name:  # tensors may fit all the same, as those of both ResNet-20s do
        raise CheckpointError(
            f"cannot start from {source}: it is a {there}, the run's network a {name}: use --model {there}"
        )
    taken = take_over(model, network.model, source)
    if network.packed:
        refresh_statistics(model, _first_pictures(batches))
    return taken


def _first_pictures(batches: Batches) -> Iterator[Tensor]:
    seen = 0
    for images, _ in batches.epoch(0):
        yield images
        seen += len(images)
        if seen >= PICTURES_FOR_STATISTICS:
            return


def as_it_knows_them(dataset: Pictures, contract: InputContract | None) -> Pictures:
    """The data set, normalised as the network that a run starts from expects it; picture files in its size too."""
    if contract is None or contract.channels != dataset.channels:
        return dataset
    if isinstance(dataset, FolderSet):
        dataset = replace(dataset, image_size=contract.image_size)
    return replace(dataset, mean=contract.mean, std=contract.std)


def as_the_network_takes_them(dataset: Pictures, config: TrainConfig) -> tuple[Pictures, str]:
    """Picture files in the size that the network is meant for, where the user does not say another one, and a sentence
    where that is not their usual size.  A network for 32×32 would compute 49 times as much at 224×224."""
    side = MODELS[config.model].image_size
    if not isinstance(dataset, FolderSet) or config.image_size or side == dataset.image_size:
        return dataset, ""
    meant = f"the size that {config.model} is meant for"
    said = f"pictures are taken at {side}×{side}, {meant}: --image-size takes another one"
    return replace(dataset, image_size=side), said


def _head_of_another_size(model: nn.Module, own: dict[str, Tensor], weights: dict[str, Tensor]) -> str | None:
    """The last float linear layer, if the two networks differ in how many answers it gives and in nothing else."""
    heads: list[str] = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    here, there = (table.get(f"{heads[-1]}.weight") if heads else None for table in (own, weights))
    if here is None or there is None or len(here) == len(there) or here.shape[1:] != there.shape[1:]:
        return None
    return heads[-1]
