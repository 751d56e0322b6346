"""Checkpoints: written completely or not at all, and read without executing anything."""

import io
import os
import pickle
import warnings
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn

from rbnn.errors import CheckpointError, ConfigError, DamagedCheckpoint, RbnnError
from rbnn.files import keep_as, write_whole
from rbnn.models import create_model
from rbnn.nn import binary_layers
from rbnn.training.checkpoint_schema import VERSION, check_description, check_version, check_weights
from rbnn.training.config import TrainConfig, as_table, with_all_options
from rbnn.training.contract import InputContract

DIRECTORY = 0x10
"""The attribute that marks a directory in a zip file."""
LAST, PREVIOUS, BEST = "last.pt", "previous.pt", "best.pt"


@dataclass(frozen=True)
class Network:
    """A network as stored in a checkpoint."""

    model: nn.Module
    config: TrainConfig
    contract: InputContract
    state: dict[str, Any]
    """Everything in the file."""
    packed: bool = False
    """Whether it was restored from a packed file, without the batch statistics of its training."""


def build(config: TrainConfig, contract: InputContract) -> nn.Module:
    """The untrained network that ``config`` describes, for images as in ``contract``."""
    return create_model(
        config.model,
        config.method,
        num_classes=len(contract.classes),
        in_channels=contract.channels,
        image_size=contract.image_size,
        **config.parts,
        **config.options,
    )


def save(path: Path, config: TrainConfig, contract: InputContract, model: nn.Module, **more: Any) -> None:
    """Save the network with everything that is needed to rebuild it, and ``more``."""
    state = {
        "rbnn": VERSION,
        "config": as_table(with_all_options(config)),
        "contract": asdict(contract),
        "model": model.state_dict(),
        **more,
    }
    buffer = io.BytesIO()  # on a full disk torch.save reports file positions instead of the disk
    torch.save(state, buffer)
    try:
        write_whole(path, lambda file: file.write(buffer.getbuffer()))
    except OSError as error:
        raise CheckpointError(f"cannot write checkpoint {path}: {error.strerror or error}") from None


def read(path: Path, foreign: bool = False) -> Any:
    """The contents of a torch file.  Code in it is refused and never run.  A ``foreign`` file may be in the format that
    torch wrote before version 1.6, which is not a zip."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {path} does not exist") from None
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error.strerror or error}") from None
    try:
        with file, warnings.catch_warnings():
            if not foreign or zipfile.is_zipfile(file):
                _check_container(path, file)
            file.seek(0)
            warnings.simplefilter("ignore")  # about formats of other programs; the sentence below is enough
            return torch.load(file, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except pickle.UnpicklingError:  # torch's own message recommends loading the file anyway
        raise CheckpointError(
            f"{path} is not a readable checkpoint: it is damaged, or it contains objects other than tensors, which "
            "could be programs and are never loaded"
        ) from None
    except Exception:  # a damaged file can cause nearly any of them, with messages about torch's internals
        raise DamagedCheckpoint(
            f"{path} is not a readable checkpoint: it is truncated, damaged or from another program"
        ) from None


def load_state(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint, after checking that rbnn wrote it."""
    return check_version(read(path), path)


def _check_container(path: Path, file: BinaryIO) -> None:
    """A checkpoint is a zip of uncompressed members, so it cannot unpack to more than its own size.  Each member has a
    checksum, which torch writes but never checks.  torch does not read a member that is marked as a directory: its
    tensor would be uninitialised memory."""
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as container:
        members = container.infolist()
        compressed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
        if compressed or sum(member.file_size for member in members) > size:
            raise DamagedCheckpoint(
                f"{path} is not a readable checkpoint: its contents claim more than its {size:,} bytes"
            )
        changed = next((member.filename for member in members if member.external_attr & DIRECTORY), None)
        if changed := changed or container.testzip():
            raise DamagedCheckpoint(
                f"{path} is not a readable checkpoint: its member {changed} does not match its checksum"
            )


def keep_previous(directory: Path) -> None:
    """Keep the last checkpoint of a run as the previous one, before a new one is written."""
    last = directory / LAST
    if last.exists():
        try:
            keep_as(last, directory / PREVIOUS)
        except OSError as error:
            raise CheckpointError(f"cannot keep {last} as {PREVIOUS}: {error.strerror or error}") from None


def load_last(directory: Path) -> tuple[dict[str, Any], str]:
    """The state that a run resumes from: its last checkpoint.  If that is damaged or missing, it is the previous one,
    with a sentence that says so."""
    last, previous = directory / LAST, directory / PREVIOUS
    try:
        if last.exists() or not previous.exists():
            return load_state(last), ""
        trouble = f"{last} is gone"
    except DamagedCheckpoint as damage:
        if not previous.exists():
            raise
        trouble = str(damage)
    state = load_state(previous)
    return state, f"{trouble}; the run continues from the previous checkpoint, {previous}"


def load_contract(directory: Path) -> InputContract:
    """What the network of an interrupted run expects."""
    state, trouble = load_last(directory)
    return check_description(state, directory / (PREVIOUS if trouble else LAST))[1]


def load_network(path: Path) -> Network:
    """The network in a run directory (its best epoch) or a checkpoint."""
    if path.is_dir():
        found = [path / name for name in (BEST, LAST) if (path / name).is_file()]
        if not found:
            raise CheckpointError(
                f"{path} contains neither {BEST} nor {LAST}: expected a run directory of `rbnn train`"
            )
        path = found[0]
    state = load_state(path)
    config, contract = check_description(state, path)
    try:
        model = build(config, contract)
    except (
        RuntimeError,
        RbnnError,
    ) as error:  # options that fit no network, or a network that does not fit into memory
        raise CheckpointError(f"{path} does not describe a network: {error}") from None
    load_weights(model, _kept_weights(state), path)
    return Network(model, config, contract, state)


def _kept_weights(state: dict[str, Any]) -> Any:
    """The weights that a checkpoint is used for: the averaged ones, if the run keeps an average."""
    weights, average = state.get("model"), state.get("average")
    return weights | average if isinstance(weights, dict) and isinstance(average, dict) else weights


def load_weights(model: nn.Module, weights: Any, path: Path) -> None:
    """Load a state dict.  If it belongs to another network, the error names the first difference."""
    check_weights(weights, model, path)
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ConfigError) as error:
        raise CheckpointError(f"{path} belongs to another network: {str(error).splitlines()[-1].strip()}") from None
    for name, layer in binary_layers(model):
        if layer.method.progress is not None and not 0 <= layer.method.progress <= 1:
            raise CheckpointError(
                f"{path} is invalid: the progress of {name} must be 0 to 1, got {layer.method.progress:g}"
            )
