"""The state that a run resumes from, read and checked completely before anything of the run is changed."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.optim import Optimizer

from rbnn.data import FolderSet, ImageSet
from rbnn.errors import CheckpointError
from rbnn.training.checkpoint import LAST, PREVIOUS, load_last
from rbnn.training.checkpoint_schema import Place, check_description, check_place, check_tables, check_weights
from rbnn.training.config import TrainConfig, as_table, difference, with_all_options
from rbnn.training.contract import InputContract
from rbnn.training.layer_measures import INITIAL, Signs, load_signs
from rbnn.training.log import LOG, read_log


@dataclass(frozen=True)
class Stopped:
    """A run as it was when it stopped."""

    weights: dict[str, Any]
    beside: dict[str, dict[str, Any]]
    """What some runs save in addition to the network: tensors by name."""
    place: Place
    initial: Signs
    log: list[dict[str, Any]]
    trouble: str
    """Why it is the previous checkpoint instead of the last one; empty for the last one."""


def read_stopped(
    directory: Path,
    config: TrainConfig,
    contract: InputContract,
    pictures: dict[str, str],
    model: nn.Module,
    optimizer: Optimizer,
    initial: Signs,
    steps: int,
    beside: dict[str, dict[str, Any]],
) -> Stopped:
    """The run in ``directory``, if it is the one that ``config`` describes.  The other arguments are the initial state
    of the run that continues."""
    state, trouble = load_last(directory)
    path = directory / (PREVIOUS if trouble else LAST)
    before, known = check_description(state, path)
    if config.epochs < before.epochs:
        raise CheckpointError(
            f"{path} was trained for epochs = {before.epochs}: a run can become longer, but not shorter, got "
            f"{config.epochs}"
        )
    table = as_table(with_all_options(before)) | {"epochs": config.epochs}
    if changed := difference(table, as_table(config)):
        raise CheckpointError(f"{path} was trained with {changed}: change it back to resume")
    if different := known.difference(contract):
        raise CheckpointError(f"{path} was trained with {different}: use the same --data-dir to resume")
    saved = state.get("pictures", pictures)  # older checkpoints do not record them
    for split, found in pictures.items():
        if not isinstance(saved, dict) or saved.get(split) != found:
            raise CheckpointError(f"{path} was trained with other {split} images: use the same --data-dir to resume")
    check_weights(state.get("model"), model, path)
    for key, tensors in beside.items():
        check_tables(key, state.get(key), tensors, path)
    place = check_place(state, path, before, optimizer, initial, steps)
    signs = load_signs(directory / INITIAL)
    if {name: words.shape for name, words in signs.items()} != {name: words.shape for name, words in initial.items()}:
        raise CheckpointError(
            f"{directory / INITIAL} belongs to another network: restore the file that this run wrote in its first epoch"
        )
    return Stopped(
        state["model"], {key: state[key] for key in beside}, place, signs, read_log(directory / LOG), trouble
    )


def fingerprint(dataset: ImageSet | FolderSet) -> str:
    """A hash of the labels and the pixels, or of the file names for a folder, whose images are too many to read."""
    digest = hashlib.blake2b(dataset.labels.tobytes(), digest_size=8)
    if isinstance(dataset, ImageSet):
        digest.update(np.ascontiguousarray(dataset.images).data)
    else:
        for path in dataset.paths:
            digest.update(f"{path.parent.name}/{path.name}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()
