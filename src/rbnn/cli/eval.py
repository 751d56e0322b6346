"""`rbnn eval`: measure the accuracy of a trained or packed network on a test set."""

import json
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from rbnn.cli._packed import cores
from rbnn.cli._test_set import load_test_set
from rbnn.data import FolderSet, ImageSet
from rbnn.errors import CheckpointError, ConfigError, DataError
from rbnn.packed.find import called, find_net, is_packed
from rbnn.text import listed, plural, visible

if TYPE_CHECKING:
    from rbnn.training.config import TrainConfig


@dataclass(frozen=True)
class Eval:
    """Measure the top-1 and top-5 accuracy of a network on a test set, in percent. A packed file needs no torch.

    Example: rbnn eval runs/first --data cifar10 --data-dir data --json
    """

    net: tyro.conf.Positional[Path]
    """Run directory (its best epoch), checkpoint, packed file (.rbnn) or name of a pretrained network."""
    data: str = ""
    """Data set. The default is the one that the network was trained on, which your own packed files do not record."""
    data_dir: Path | None = None
    """Directory of the data sets. The default is the directory that the run was trained with, otherwise ./data."""
    batch_size: int = 256
    """Images per forward pass."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps; a packed file runs on the CPU."""
    json: bool = False
    """Print JSON: {"top1": …, "top5": …}."""


def run(options: Eval) -> None:
    """Evaluate and print."""
    net, data = find_net(options.net), options.data
    if net != options.net and not data:  # a pretrained network by name
        from rbnn.packed import pretrained

        data = pretrained.card(str(options.net)).data
    options = replace(options, net=net, data=data)
    found, tests = _packed(options) if is_packed(options.net) else _trained(options)
    count, name, classes = len(tests), tests.name, len(tests.classes)
    if options.json:
        print(json.dumps({"top1": round(found["top1"], 4), "top5": round(found["top5"], 4)}))
    else:
        accuracy = f"top-1 {found['top1']:.2f} %" + (f", top-5 {found['top5']:.2f} %" if classes > 5 else "")
        chosen = f" ({visible(tests.chosen)})" if tests.chosen else ""
        print(f"{called(options.net)} on {plural(count, 'test image')} of {name}{chosen}: {accuracy}")


def _trained(options: Eval) -> "tuple[dict[str, float], ImageSet | FolderSet]":
    import torch

    from rbnn.training.batches import Batches
    from rbnn.training.checkpoint import load_network
    from rbnn.training.distributed import Processes, choose_device
    from rbnn.training.evaluate import evaluate

    network = load_network(options.net)
    contract = network.contract
    tests = _tests(options, options.data or network.config.data, contract.classes, contract.channels, network.config)
    tests = replace(
        tests, mean=contract.mean, std=contract.std
    )  # normalised as in its training, whatever the data set's own values are
    here = Processes(0, 1, choose_device(options.device))
    batches = Batches(tests, options.batch_size, train=False, seed=0, image_size=contract.image_size, workers=2)
    model = network.model.to(here.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    found = evaluate(model, batches, here)
    if not isfinite(found["loss"]):
        raise CheckpointError(f"the outputs of {options.net} are not finite: its weights are too large")
    return found, tests


def _packed(options: Eval) -> "tuple[dict[str, float], ImageSet | FolderSet]":
    from rbnn.packed.evaluate import evaluate
    from rbnn.packed.prediction import normalisation, picture_side
    from rbnn.packed.session import Session

    if options.device not in ("auto", "cpu"):
        raise ConfigError(
            f"device {options.device!r} is not available for packed files, which run on the CPU: leave out --device"
        )
    if options.batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, got {options.batch_size}")
    session = Session(options.net, threads=cores())
    side = picture_side(session.graph, options.net)
    if not options.data:
        raise ConfigError(f"{options.net} does not record its data set: add --data NAME")
    names = session.classes or tuple(map(str, range(session.graph.buffers[session.graph.outputs[0]].shape[2])))
    tests = _tests(options, options.data, names, session.input_shape[0], named=bool(session.classes))
    if isinstance(tests, ImageSet) and tests.image_size != side:
        theirs = f"{tests.image_size}×{tests.image_size} in {tests.name}"
        raise DataError(f"{called(options.net)} takes images of {side}×{side}, got {theirs}")
    normalised = normalisation(session.graph, options.net)
    return evaluate(session, tests, *normalised, options.batch_size), tests


def _tests(
    options: Eval,
    name: str,
    classes: tuple[str, ...],
    channels: int,
    trained: "TrainConfig | None" = None,
    named: bool = True,
) -> ImageSet | FolderSet:
    """The test set, if the network was trained for its classes (or for as many classes, if the network has no names).
    Labels are numbered as the network numbers its classes."""
    import numpy as np

    tests = load_test_set(name, options.data_dir, trained)
    if named and tests.classes != classes and sorted(tests.classes) == sorted(classes):
        places = np.array([classes.index(each) for each in tests.classes], np.int64)
        tests = replace(tests, classes=classes, labels=places[tests.labels])
    same = tests.classes == classes if named else len(tests.classes) == len(classes)
    if not same or tests.channels != channels:
        if tests.channels != channels:
            differs = f"takes images with {plural(channels, 'channel')}, but those of {name} have {tests.channels}"
        elif len(tests.classes) != len(classes):
            differs = f"knows {len(classes)} classes, but {name} has {len(tests.classes)}"
        else:
            differs = f"knows other classes ({listed(classes)}) than {name} ({listed(tests.classes)})"
        raise DataError(f"{called(options.net)} {differs}: choose the data set that it was trained on")
    return tests
