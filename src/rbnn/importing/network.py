"""Opens a trained network for further training: a pretrained one, a run directory, a checkpoint or a packed file."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from rbnn import models
from rbnn.errors import CheckpointError, ConfigError
from rbnn.importing.opened import find_trained
from rbnn.importing.packed import Mismatch, restore_
from rbnn.models import model_names
from rbnn.packed import file as packfile
from rbnn.packed import pretrained
from rbnn.packed.find import is_packed
from rbnn.packed.graph import Graph
from rbnn.training.checkpoint import Network, build, load_network
from rbnn.training.config import TrainConfig
from rbnn.training.contract import InputContract
from rbnn.training.start import other_parts, take_over
from rbnn.training.statistics import set_statistics


def create_model(
    name: str | Path,
    method: str | None = None,
    num_classes: int | None = None,
    in_channels: int | None = None,
    image_size: int | None = None,
    *,
    activation: str | None = None,
    shortcut: str | None = None,
    width: float | None = None,
    pretrained: bool = False,
    **options: Any,
) -> nn.Module:
    """Build the network ``name``, binarized with ``method`` (``float`` builds the float twin).  The defaults are
    ``rbnn`` and 10 classes of colour images.

    activation    after each batch norm or sum with a shortcut: ``hardtanh``, ``none``, ``prelu`` or ``rprelu``; the
                  float twin uses ReLU instead of the first two
    shortcut      where the size changes: ``own`` (as the network was published), ``option-a``, ``pool-pad``,
                  ``pool-conv`` or ``conv``
    width         multiplies the channels of every layer, rounded to even numbers
    options       options of the method
    pretrained    load a trained network, for further training: ``name`` is a pretrained network (`rbnn models
                  --pretrained`), a run directory, a checkpoint or a packed file (.rbnn).  The model gives the same
                  outputs as that network, and arguments that are not given keep its values.  With another
                  ``num_classes`` the last layer starts from scratch; with another ``method`` the weights and batch
                  norms are kept
    """
    sizes = _given(num_classes=num_classes, in_channels=in_channels, image_size=image_size)
    parts = _given(activation=activation, shortcut=shortcut, width=width)
    chosen = _given(method=method) | parts
    if not pretrained:
        if str(name) not in model_names() and (str(name) in shipped() or Path(name).exists()):
            raise ConfigError(f"{name} is a trained network: add pretrained=True")
        return models.create_model(str(name), **chosen, **sizes, **options)
    network = open_network(name, chosen | {"options": options})
    config, contract = network.config, network.contract
    own: dict[str, Any] = {
        "num_classes": len(contract.classes),
        "in_channels": contract.channels,
        "image_size": contract.image_size,
    }
    if wrong := [f"{part}={theirs!r}" for part, theirs in other_parts(config, parts)]:
        raise ConfigError(f"{name} was trained with {', '.join(wrong)}: leave out other values, or pretrained=True")
    own |= {"method": config.method} | config.parts
    kept = config.options if method in (None, config.method) else {}
    model = models.create_model(config.model, **(own | sizes | chosen), **(kept | options))
    for sentence in take_over(model, network.model, name).notices:
        warnings.warn(sentence, stacklevel=2)
    if network.packed and str(name) not in shipped():
        warnings.warn(
            f"{name} does not contain the batch statistics of its training: before you train it, measure them on some "
            "of your images with rbnn.training.statistics.refresh_statistics(model, [images])",
            stacklevel=2,
        )
    return model


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def shipped() -> list[str]:
    """The trained networks that come with rbnn."""
    return pretrained.names()


def open_network(net: str | Path, hints: dict[str, Any]) -> Network:
    """Open the trained network ``net`` for further training.

    Your own packed file does not record the method it was trained with: ``hints`` has the fields of a configuration
    (method, options, activation, shortcut, width) to try.  Without a method, a network that subtracts the mean of an
    image before taking signs is assumed to be an RBNN.
    """
    path = find_trained(net)
    if not is_packed(path):
        return load_network(path)
    graph = packfile.read(path)
    contract = _contract(path, graph)
    if str(net) in shipped() and path == pretrained.path(str(net)):
        card = pretrained.card(str(net))
        own: dict[str, Any] = {"model": card.model, "method": card.method, "options": card.options, "data": card.data}
        config = TrainConfig(**own, **card.parts)
        network = _restored(config, contract, graph)
        set_statistics(network.model, *_shipped_statistics(str(net)))
        return network
    hints = {"method": _method_of(path, graph)} | hints if "method" not in hints else hints
    troubles: list[str] = []
    for model in _similar(graph, contract):
        try:
            return _restored(TrainConfig(model=model, **hints), contract, graph)
        except Mismatch as reason:
            troubles.append(f"{model} by {hints['method']}: {reason}")
    raise CheckpointError(
        f"{path} cannot be trained further, because it is not a network that rbnn knows by name, or has another "
        f"method, activation, shortcut or width ({'; '.join(troubles) or 'it has other layers'}): give those of its "
        "training, or name the run directory or checkpoint that it was exported from; for a network of your own, load "
        "its state dict into your own class"
    )


def _restored(config: TrainConfig, contract: InputContract, graph: Graph) -> Network:
    model = build(config, contract)
    restore_(model, graph)
    return Network(model, config, contract, {"model": model.state_dict()}, packed=True)


def _contract(path: Path, graph: Graph) -> InputContract:
    height, width, channels = graph.buffers[graph.input.buffer].shape
    rows, columns, answers = graph.buffers[graph.outputs[0]].shape
    several = bool(graph.input.names) or not graph.has_one_output
    if several or height != width or (rows, columns) != (1, 1):
        raise CheckpointError(f"{path} cannot be trained further: only classifiers of square images can")
    mean, std = (each * channels if len(each) == 1 else each for each in (graph.input.mean, graph.input.std))
    if not (mean and std):
        raise CheckpointError(f"{path} does not record how images are normalised: export it again with mean and std")
    classes = graph.input.classes or tuple(f"class {index}" for index in range(answers))
    return InputContract(channels, height, tuple(mean), tuple(std), classes)


def _method_of(path: Path, graph: Graph) -> str:
    if any(operation.attributes.get("level") == "mean" for operation in graph.operations):
        return "rbnn"
    raise CheckpointError(f"{path} does not record its method: add method=… or --method")


def _similar(graph: Graph, contract: InputContract) -> Iterator[str]:
    """The known networks that have the layers of a packed network."""
    wanted = {each.name for each in graph.operations if each.kind in ("float_conv", "binary_conv")}
    for name in model_names():
        with torch.device("meta"):
            model = models.create_model(
                name, "bnn", len(contract.classes), contract.channels, image_size=contract.image_size
            )
        layers = {n for n, module in model.named_modules() if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear)}
        if layers <= wanted:
            yield name


def _shipped_statistics(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    tensors = load_file(pretrained.norms(name))
    return tensors["mean"], tensors["var"]
