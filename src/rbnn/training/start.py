"""Starting from a trained network: what is kept, and what starts from scratch."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from torch import Tensor, nn

from rbnn.data import FolderSet, ImageSet
from rbnn.errors import CheckpointError
from rbnn.models import MODELS
from rbnn.nn import binary_layers
from rbnn.text import plural
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
    """Binary layers that continue as they were trained."""
    notices: list[str] = field(default_factory=list)
    """What else the user should know."""
    head: str = ""
    """A sentence about a head of another size, which starts from scratch."""


def take_over(model: nn.Module, before: nn.Module, source: object) -> Taken:
    """Give ``model`` the weights and batch norms of ``before``, the same network after training.  ``source`` names it.

    A binary layer of the same method continues as it was, with its rotation, scales and β, and keeps its signs.  A
    layer that was float, or of another method, starts its method from the weights.  So does, with a notice, a layer
    whose options give its method tensors of other shapes.  A head for another number of classes is not changed.
    """
    taken = Taken()
    weights, own = before.state_dict(), model.state_dict()
    head = _head_of_another_size(model, own, weights)
    if head:
        taken.head = (
            f"{source} has {len(weights[f'{head}.weight'])} classes and this network has "
            f"{len(own[f'{head}.weight'])}: its last layer {head!r} starts from scratch, all others are kept"
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
            f"the options of {plural(len(anew), 'layer')} (first {anew[0]}) differ from those in {source}, so that its "
            "scales and rotations do not fit: they restart from the weights, and most signs change"
        )
    return taken


def start(model: nn.Module, config: TrainConfig, network: Network, own: InputContract, batches: Batches) -> Taken:
    """``take_over`` for a run.  A network from a packed file gets batch statistics from the run's images; its outputs
    stay the same."""
    there, name, source = network.config.model, config.model, config.start_from
    if network.contract.channels != own.channels:
        raise CheckpointError(
            f"cannot start from {source}: its images have {plural(network.contract.channels, 'channel')}, and those of "
            f"{config.data} have {own.channels}: choose another data set with --data, such as image-folder"
        )
    if there != name:  # the tensors may fit anyway, as those of the two ResNet-20s do
        raise CheckpointError(
            f"cannot start from {source}: it is a {there}, but this run's network is a {name}: use --model {there}"
        )
    if flags := [f"--{part} {theirs}" for part, theirs in other_parts(network.config, config.parts)]:
        raise CheckpointError(
            f"cannot start from {source}: it is a {there} with other parts than this run's: use {' '.join(flags)}"
        )
    taken = take_over(model, network.model, source)
    if network.packed:
        refresh_statistics(model, _first_pictures(batches))
    return taken


def other_parts(trained: TrainConfig, parts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The parts of the trained network that are not as in ``parts``.  Its weights may fit other parts, but they were
    not trained for those, and learned slopes would be lost."""
    for part, wanted in parts.items():
        if trained.parts[part] != wanted:
            yield part, trained.parts[part]


def _first_pictures(batches: Batches) -> Iterator[Tensor]:
    seen = 0
    for images, _ in batches.epoch(0):
        yield images
        seen += len(images)
        if seen >= PICTURES_FOR_STATISTICS:
            return


def as_it_knows_them(dataset: Pictures, contract: InputContract | None) -> Pictures:
    """The data set, normalised as the network that a run starts from expects.  Image files also get its size."""
    if contract is None or contract.channels != dataset.channels:
        return dataset
    if isinstance(dataset, FolderSet):
        dataset = replace(dataset, image_size=contract.image_size)
    return replace(dataset, mean=contract.mean, std=contract.std)


def as_the_network_takes_them(dataset: Pictures, config: TrainConfig) -> tuple[Pictures, str]:
    """Image files in the size that the network is meant for, unless the user gives another size, and a sentence if that
    is not the default size of image files.  At 224×224, a network for 32×32 would compute 49 times as much."""
    side = MODELS[config.model].image_size
    if not isinstance(dataset, FolderSet) or config.image_size or side == dataset.image_size:
        return dataset, ""
    meant = f"the size that {config.model} is meant for"
    said = f"images are resized to {side}×{side}, {meant}; --image-size chooses another size"
    return replace(dataset, image_size=side), said


def _head_of_another_size(model: nn.Module, own: dict[str, Tensor], weights: dict[str, Tensor]) -> str | None:
    """The last float linear layer, if the networks differ only in its number of outputs."""
    heads: list[str] = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    here, there = (table.get(f"{heads[-1]}.weight") if heads else None for table in (own, weights))
    if here is None or there is None or len(here) == len(there) or here.shape[1:] != there.shape[1:]:
        return None
    return heads[-1]
