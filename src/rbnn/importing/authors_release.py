"""Checkpoints of the code that the paper's authors published.

Such a file contains ``model`` (the network's name) and ``state_dict``; keys of multi-GPU runs start with ``module.``.
A binary layer has, in addition to ``weight``:

    alpha    the scale of the output, (O, 1, 1)           our ``method.scale``
    rotate   β, one per filter, (O, 1, 1, 1)              our ``method.beta``
    R1, R2   the rotation, shared by all filters          our ``method.R1``, ``method.R2``

The networks compute the same as ours, with one exception: their sign of an exact zero is 0, ours is −1.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rbnn.data.cifar10 import CIFAR10
from rbnn.data.cifar100 import CIFAR100
from rbnn.data.image_folder import MEAN, STD
from rbnn.errors import CheckpointError, ConfigError, UnknownName
from rbnn.models import MODELS
from rbnn.nn import binary_layers
from rbnn.training import checkpoint
from rbnn.training.checkpoint_schema import check_plain
from rbnn.training.config import TrainConfig, find_recipe, read_recipe
from rbnn.training.contract import InputContract

RECIPES = {
    "resnet20": "cifar10-resnet20-rbnn",
    "resnet20-bireal": "cifar10-resnet20-bireal-rbnn",
    "resnet18-cifar": "cifar10-resnet18-rbnn",
    "vgg-small": "cifar10-vgg-small-rbnn",
    "resnet18": "imagenet-resnet18-rbnn",
    "resnet34": "imagenet-resnet34-rbnn",
}
"""How the published networks were trained, by our names for them."""

PARTS = {"alpha": "method.scale", "rotate": "method.beta", "R1": "method.R1", "R2": "method.R2"}
"""What their binary layers have in addition to a weight, and where ours keep it."""

UNUSED = re.compile(r"bn3\.\w+")
"""A batch norm that their ImageNet networks contain but never apply."""


@dataclass(frozen=True)
class Imported:
    """A network of the authors as an rbnn network."""

    model: torch.nn.Module
    config: TrainConfig
    contract: InputContract

    def save(self, path: Path) -> None:
        """Save it as a checkpoint that every command reads."""
        checkpoint.save(path, self.config, self.contract, self.model)


def import_checkpoint(path: Path, model: str = "", classes: tuple[str, ...] = ()) -> Imported:
    """The network in a checkpoint of the authors.  ``model`` is our name for it, for a file that does not name it.
    ``classes`` are the names of its classes, if they are not CIFAR's.  Nothing in the file is executed."""
    if model and model not in RECIPES:
        raise UnknownName("model", model, RECIPES, "of the authors' release")
    state = checkpoint.read(path, foreign=True)
    theirs = _state_dict(path, state)
    name = model or _name(path, state, theirs)
    rename = _vgg_small if name == "vgg-small" else _resnet
    weights: dict[str, Tensor] = {}
    for key, value in theirs.items():
        if rename is _resnet and UNUSED.fullmatch(key):
            continue
        layer, _, part = key.rpartition(".")
        place = f"{rename(layer)}.{PARTS.get(part, part)}"
        weights[place] = value.reshape(-1) if part in ("alpha", "rotate") else value
    head = weights.get("fc.weight")
    if head is None or head.dim() != 2:
        raise CheckpointError(f"{path} is not a {name} of the authors' release: the last linear layer is missing")
    config, contract = _description(name, len(head), classes)
    network = checkpoint.build(config, contract)
    # Their layers do not record the epoch of the last rotation, nor e/E, which only affects gradients.
    done = state.get("epoch")
    last = max(done - 1, 0) if type(done) is int and 0 <= done < 2**31 else config.epochs
    for layer, module in binary_layers(network):
        module.method.progress = min(last / config.epochs, 1.0)
        weights[f"{layer}.method._extra_state"] = module.method.get_extra_state()
    for key, value in network.state_dict().items():
        if key.endswith(".method.rotated_at"):
            weights[key] = torch.full_like(value, last)
    checkpoint.load_weights(network, weights, path)
    return Imported(network, config, contract)


def _state_dict(path: Path, state: Any) -> dict[str, Tensor]:
    """The tensors by name, without ``module.``; a bare state dict is also accepted."""
    found = state.get("state_dict", state) if isinstance(state, dict) else None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise CheckpointError(f"{path} is not a checkpoint of the authors' release: the key 'state_dict' is missing")
    for key, value in found.items():
        check_plain(str(key), value, path)
    named = {str(key).removeprefix("module."): value for key, value in found.items()}
    if not any(key.endswith(".rotate") for key in named):
        raise CheckpointError(f"{path} is not a checkpoint of the authors' release: no layer has the key 'rotate'")
    return named


def _name(path: Path, state: Any, weights: dict[str, Tensor]) -> str:
    """Our name for the network.  The two structures of ResNet-20 have the same weights, so only the name distinguishes
    them.  ResNet-18 for CIFAR and for ImageNet share a name, but their last layers are named differently."""
    known = {
        "resnet20_1w1a": "resnet20",
        "resnet20_bireal_1w1a": "resnet20-bireal",
        "resnet18_1w1a": "resnet18" if "fc.weight" in weights else "resnet18-cifar",
        "resnet34_1w1a": "resnet34",
        "vgg_small_1w1a": "vgg-small",
    }
    name = state.get("model")
    if name is None:
        raise ConfigError(f"{path} does not name its network: add --model with one of {', '.join(RECIPES)}")
    if name not in known:
        raise UnknownName("network", str(name), known, f"in {path} (of the authors' release)")
    return known[name]


def _resnet(layer: str) -> str:
    """layer1.0.conv1 → layers.0.0.conv1, downsample → shortcut, linear → fc."""
    layer = re.sub(r"layer(\d+)\.", lambda found: f"layers.{int(found[1]) - 1}.", layer)
    return layer.replace("downsample", "shortcut").replace("linear", "fc")


def _vgg_small(layer: str) -> str:
    """conv0, bn0 … conv5, bn5 → their indices in ``features``, where odd layers have a pool before the norm."""
    found = re.fullmatch(r"(conv|bn)([0-5])", layer)
    if not found:
        return layer
    kind, index = found[1], int(found[2])
    first = 3 * index + index // 2  # convolution, norm, activation; every second layer also a pool
    return f"features.{first if kind == 'conv' else first + 1 + index % 2}"


def _description(name: str, count: int, classes: tuple[str, ...]) -> tuple[TrainConfig, InputContract]:
    """The published training setup, and images as their code prepares them."""
    config = read_recipe(find_recipe(RECIPES[name]))
    if config.data == "cifar10":
        sets = {len(known.classes): known for known in (CIFAR10, CIFAR100)}
        if count in sets and not classes:
            config, classes = replace(config, data=sets[count].name), sets[count].classes
    if classes and len(classes) != count:
        raise ConfigError(f"the network has {count} classes, got {len(classes)} names: give one name per class")
    classes = classes or tuple(str(number) for number in range(count))
    return config, InputContract(3, MODELS[name].image_size, MEAN, STD, classes)
