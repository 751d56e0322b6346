"""Checkpoints: written whole or not at all, read without executing anything."""

import io
import os
import pickle
import warnings
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from rbnn.data import FolderSet, ImageSet
from rbnn.errors import CheckpointError, ConfigError, DamagedCheckpoint, UnknownName
from rbnn.files import keep_as, write_whole
from rbnn.models import create_model
from rbnn.training.config import TrainConfig, as_table, from_table

VERSION = 1
LAST, PREVIOUS, BEST = "last.pt", "previous.pt", "best.pt"
LARGEST_SIDE, MOST_CHANNELS = 1024, 4
"""Of the pictures that a checkpoint may ask for: a network's size follows from them, and a file may say anything."""


@dataclass(frozen=True)
class InputContract:
    """What the network expects and what its answers mean."""

    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not (1 <= self.channels <= MOST_CHANNELS and 1 <= self.image_size <= LARGEST_SIDE):
            raise ConfigError(f"no pictures have {self.channels} channels and a side of {self.image_size}")
        if not len(self.mean) == len(self.std) == self.channels or not self.classes:
            raise ConfigError("a mean and a std per channel and the names of the classes expected")

    @classmethod
    def of(cls, dataset: ImageSet | FolderSet, image_size: int) -> "InputContract":
        return cls(dataset.channels, image_size or dataset.image_size, dataset.mean, dataset.std, dataset.classes)


@dataclass(frozen=True)
class Network:
    """A network as a checkpoint holds it."""

    model: nn.Module
    config: TrainConfig
    contract: InputContract
    state: dict[str, Any]
    """Everything in the file."""
    packed: bool = False
    """Turned back from a packed file: the statistics of its batch norms are not those of its training."""


def build(config: TrainConfig, contract: InputContract) -> nn.Module:
    """The untrained network that ``config`` describes, for pictures as in ``contract``."""
    return create_model(
        config.model,
        config.method,
        num_classes=len(contract.classes),
        in_channels=contract.channels,
        image_size=contract.image_size,
        activation=config.activation,
        shortcut=config.shortcut,
        **config.options,
    )


def save(path: Path, config: TrainConfig, contract: InputContract, model: nn.Module, **more: Any) -> None:
    """The network with all that is needed to build it again, and ``more``."""
    state = {
        "rbnn": VERSION,
        "config": as_table(config),
        "contract": asdict(contract),
        "model": model.state_dict(),
        **more,
    }
    buffer = io.BytesIO()  # torch.save into a file that a full disk refuses complains of positions, not of the disk
    torch.save(state, buffer)
    try:
        write_whole(path, lambda file: file.write(buffer.getbuffer()))
    except OSError as error:
        raise CheckpointError(f"cannot write checkpoint {path}: {error.strerror or error}") from None


def read(path: Path, foreign: bool = False) -> Any:
    """What a file of torch holds; code in it is refused, never run.  A ``foreign`` one may be in the format that torch
    wrote before version 1.6, which is no zip."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error.strerror or error}") from None
    try:
        with file, warnings.catch_warnings():
            if not foreign or zipfile.is_zipfile(file):
                _check_container(path, file)
            file.seek(0)
            warnings.simplefilter("ignore")  # about formats of other programs: the sentence below is enough
            return torch.load(file, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except pickle.UnpicklingError:  # torch's own words advise to load it all the same
        raise CheckpointError(
            f"{path} is not a readable checkpoint: it is damaged, or holds other things than tensors, which could be "
            "programs and are never loaded"
        ) from None
    except Exception:  # a damaged file can end in nearly any of them, and their words are about torch's insides
        raise DamagedCheckpoint(
            f"{path} is not a readable checkpoint: it is cut short or damaged, or of another program"
        ) from None


def load_state(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint, checked to be one of ours."""
    state = read(path)
    if not isinstance(state, dict) or "rbnn" not in state:
        raise CheckpointError(f"{path} is not a checkpoint of rbnn: it lacks the key 'rbnn'")
    if state["rbnn"] != VERSION:
        raise CheckpointError(f"{path} has checkpoint version {state['rbnn']!r}, this rbnn reads {VERSION}")
    return state  # type: ignore[no-any-return]


def _check_container(path: Path, file: BinaryIO) -> None:
    """A checkpoint is a zip of uncompressed members, so that it unfolds to no more than what is there; each member has
    a checksum, which torch writes but does not look at."""
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as container:
        members = container.infolist()
        compressed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
        if compressed or sum(member.file_size for member in members) > size:
            raise CheckpointError(f"{path} is refused: it claims to hold more than its {size:,} bytes")
        if changed := container.testzip():
            raise DamagedCheckpoint(f"{path} is not a readable checkpoint: the checksum of {changed} does not fit")


def keep_previous(directory: Path) -> None:
    """Before the last checkpoint of a run is written anew: the one that is there becomes the previous one."""
    last = directory / LAST
    if last.exists():
        try:
            keep_as(last, directory / PREVIOUS)
        except OSError as error:
            raise CheckpointError(f"cannot keep {last} as {PREVIOUS}: {error.strerror or error}") from None


def load_last(directory: Path) -> tuple[dict[str, Any], str]:
    """The state that a run goes on from: its last checkpoint; where that is damaged or gone, the one before, with a
    sentence that says so."""
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
    return state, f"{trouble}; the run goes on from the checkpoint before it, {previous}"


def load_contract(directory: Path) -> InputContract:
    """What the network of a run that was interrupted expects."""
    state, _ = load_last(directory)
    try:
        return InputContract(**state["contract"])
    except (KeyError, TypeError, ConfigError) as error:
        raise CheckpointError(f"the checkpoint in {directory} does not describe its pictures: {error}") from None


def load_network(path: Path) -> Network:
    """The network in a run directory (its best epoch) or a checkpoint."""
    if path.is_dir():
        found = [path / name for name in (BEST, LAST) if (path / name).is_file()]
        if not found:
            raise CheckpointError(f"{path} holds neither {BEST} nor {LAST}: expected a run directory of `rbnn train`")
        path = found[0]
    state = load_state(path)
    try:
        config = from_table(state["config"], source=f"checkpoint {path}")
        contract = InputContract(**state["contract"])
        model = build(config, contract)
    except (KeyError, TypeError, AttributeError, RuntimeError, ConfigError, UnknownName) as error:
        raise CheckpointError(f"{path} does not describe a network: {error}") from None
    load_weights(model, _kept_weights(state), path)
    return Network(model, config, contract, state)


def _kept_weights(state: dict[str, Any]) -> Any:
    """What a checkpoint is read for: the averaged weights, where a run keeps an average beside those that it trains."""
    weights, average = state.get("model"), state.get("average")
    return weights | average if isinstance(weights, dict) and isinstance(average, dict) else weights


def load_weights(model: nn.Module, weights: Any, path: Path) -> None:
    """Load a state dict; one of another network is refused with the first difference named."""
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise CheckpointError(f"{path} holds no weights: expected a table of tensors")
    own = model.state_dict()
    for name in own | weights:
        if name not in own or name not in weights:
            where = "only in the checkpoint" if name not in own else "not in the checkpoint"
            raise CheckpointError(f"{path} is of another network: {name} is {where}")
        if name.endswith("._extra_state"):  # of a method, which reads it itself
            continue
        if own[name].shape != weights[name].shape:
            raise CheckpointError(
                f"{path} is of another network: {name} has shape {tuple(weights[name].shape)}, "
                f"expected {tuple(own[name].shape)}"
            )
        if own[name].is_floating_point() and not bool(torch.isfinite(weights[name]).all()):
            raise CheckpointError(f"{path} holds values of {name} that are not finite: its training went wrong")
    try:
        model.load_state_dict(weights)
    except (RuntimeError, ConfigError) as error:
        raise CheckpointError(f"{path} is of another network: {str(error).splitlines()[-1].strip()}") from None
