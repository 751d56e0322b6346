"""What a valid checkpoint is.  Types, shapes and numbers are checked completely before anything is used.  A file may
contain anything; the error is one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from rbnn.errors import CheckpointError, ConfigError, MissingImport, RbnnError
from rbnn.text import quoted
from rbnn.training.config import TrainConfig, from_table
from rbnn.training.contract import InputContract

VERSION = 1
LARGEST = 1e18
"""Largest magnitude of a number.  Below it, squares and sums of a few squares stay finite in float32.  No working
training comes near it."""
CONTRACT = ("channels", "image_size", "mean", "std", "classes")
SUMS = ("images", "loss", "hit1", "seconds")
COMPUTED_WITH = ("momentum", "dampening", "weight_decay", "nesterov", "maximize", "speed")
"""The settings of a parameter group, except for the learning rate, which is set before every step."""


@dataclass(frozen=True)
class Place:
    """The position of a run: everything in the checkpoint that it resumes from, except for the network."""

    epoch: int
    step: int
    best_top1: float
    sums: dict[str, float]
    optimizer: dict[str, Any]
    schedule: dict[str, float]
    previous_signs: dict[str, NDArray[np.uint64]]
    rng: Tensor


def check_version(state: Any, path: Path) -> dict[str, Any]:
    """``state``, if rbnn wrote it and its version is supported."""
    if not isinstance(state, dict) or "rbnn" not in state:
        weights = isinstance(state, dict) and any(isinstance(value, Tensor) for value in state.values())
        way_out = "; it is a state dict: load it into your model with load_state_dict, which rbnn.export then packs"
        raise CheckpointError(f"{path} is not an rbnn checkpoint: the key 'rbnn' is missing{way_out * weights}")
    if type(state["rbnn"]) is not int or state["rbnn"] != VERSION:
        raise CheckpointError(
            f"{path} has checkpoint version {quoted(state['rbnn'])}, but this rbnn reads version {VERSION}"
        )
    return state


def check_description(state: dict[str, Any], path: Path) -> tuple[TrainConfig, InputContract]:
    """The configuration and the contract from which the network is built."""
    for key in ("config", "contract"):
        if not isinstance(state.get(key), dict) or not all(isinstance(name, str) for name in state[key]):
            raise CheckpointError(f"{path} does not describe a network: its {key} is not a table")
    described = state["contract"]
    try:
        if set(described) != set(CONTRACT):
            raise ConfigError(f"its contract must have {', '.join(CONTRACT)}, got {quoted(list(described))}")
        numbers = all(type(described[key]) is int for key in ("channels", "image_size"))
        moments = all(_is_list(described[key], int, float) for key in ("mean", "std"))
        if not (numbers and moments and _is_list(described["classes"], str)):
            raise ConfigError(f"its contract has values of the wrong type, {quoted(described)}")
        lists = {key: tuple(described[key]) for key in ("mean", "std", "classes")}
        contract = InputContract(described["channels"], described["image_size"], **lists)
        return from_table(state["config"], source=f"checkpoint {path}"), contract
    except MissingImport:
        raise
    except RbnnError as error:
        raise CheckpointError(f"{path} does not describe a network: {error}") from None


def _is_list(value: Any, *of: type) -> bool:
    return isinstance(value, tuple | list) and all(type(each) in of for each in value)


def check_plain(name: str, value: Any, path: Path) -> Tensor:
    """``value``, if it is a plain dense tensor in memory."""
    if (
        type(value) not in (Tensor, nn.Parameter)
        or value.layout is not torch.strided
        or value.device.type != "cpu"
        or value.is_quantized
        or value.is_nested
    ):
        kind = "no tensor" if not isinstance(value, Tensor) else "sparse, quantized, nested or without its numbers"
        raise CheckpointError(f"{path} contains {quoted(name)[1:-1]}, which is {kind}: expected a plain tensor")
    return value  # type: ignore[no-any-return]


def check_like(name: str, value: Any, own: Tensor, path: Path) -> None:
    """Raises unless ``value`` is a plain tensor with the shape and type of ``own`` and valid numbers."""
    tensor = check_plain(name, value, path)
    if tensor.shape != own.shape:
        raise CheckpointError(
            f"{path} belongs to another network: {name} has shape {quoted(tuple(tensor.shape))}, "
            f"expected {tuple(own.shape)}"
        )
    if tensor.dtype != own.dtype and not (tensor.is_floating_point() and own.is_floating_point()):
        raise CheckpointError(f"{path} contains {name} as {tensor.dtype}, expected {own.dtype}")
    if own.is_floating_point() and tensor.numel():
        values = tensor.detach().to(own.dtype)  # after conversion to float32, where 1e300 becomes infinite
        if not bool(torch.isfinite(values).all()):
            raise CheckpointError(f"{path} contains values of {name} that are not finite: its training diverged")
        if float(values.abs().max()) > LARGEST:
            raise CheckpointError(f"{path} contains values of {name} above {LARGEST:g}: its training diverged")


def check_weights(weights: Any, model: nn.Module, path: Path) -> None:
    """Raises and names the first difference unless ``weights`` is a state of ``model``."""
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
        raise CheckpointError(f"{path} contains no weights: expected a table of tensors")
    own = model.state_dict()
    for name in own | weights:
        if name not in own or name not in weights:
            where = "only in the checkpoint" if name not in own else "not in the checkpoint"
            raise CheckpointError(f"{path} belongs to another network: {quoted(name)[1:-1]} is {where}")
        if name.endswith("._extra_state"):  # the state of a method, which checks it when it loads it
            check_plain(name, weights[name], path)
            continue
        check_like(name, weights[name], own[name], path)
        counted = name.endswith((".running_var", ".num_batches_tracked"))
        if counted and bool((weights[name] < 0).any()):
            raise CheckpointError(f"{path} contains values of {name} below 0: variances and counts cannot be negative")


def check_tables(name: str, saved: Any, own: Mapping[str, Any], path: Path) -> None:
    """Raises unless ``saved`` is a table like ``own``, with the same tensors or nested tables."""
    if not isinstance(saved, dict) or saved.keys() != own.keys():
        raise CheckpointError(f"{path} cannot be resumed from: its {name} belongs to another network")
    for key, value in own.items():
        if isinstance(value, Tensor):
            check_like(f"{name} of {key}", saved[key], value, path)
        else:
            check_tables(f"{name}, {key},", saved[key], value, path)


def check_place(
    state: dict[str, Any],
    path: Path,
    config: TrainConfig,
    optimizer: Optimizer,
    signs: Mapping[str, NDArray[np.uint64]],
    steps: int,
) -> Place:
    """The position of the run in the checkpoint.  ``optimizer`` and ``signs`` are those of the untrained network, and
    an epoch has ``steps`` steps."""
    fields = set(Place.__annotations__)
    if missing := sorted(fields - set(state)):
        raise CheckpointError(
            f"{path} cannot be resumed from: {missing[0]!r} is missing, as in {path.parent / 'best.pt'}"
        )
    epoch, step = _count(state, "epoch", config.epochs, path), _count(state, "step", steps, path)
    if epoch == config.epochs and step > 0:
        raise CheckpointError(f"{path} cannot be resumed from: step {step} after its last epoch")
    best = state["best_top1"]
    if not (_is_number(best) and (best == -1 or 0 <= best <= 100)):
        raise CheckpointError(f"{path} cannot be resumed from: best_top1 must be a percentage, got {quoted(best)}")
    _check_sums(state["sums"], step, path)
    _check_optimizer(state["optimizer"], optimizer, path)
    _check_schedule(state["schedule"], config.epochs, path)
    _check_signs(state["previous_signs"], signs, path)
    _check_rng(state["rng"], path)
    words = {name: tensor.numpy() for name, tensor in state["previous_signs"].items()}
    return Place(**{key: state[key] for key in fields} | {"previous_signs": words, "best_top1": float(best)})


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and isfinite(value)
    except OverflowError:  # an integer beyond the range of floats
        return False


def _count(table: dict[str, Any], key: str, most: int, path: Path) -> int:
    value = table[key]
    if type(value) is not int or not 0 <= value <= most:
        raise CheckpointError(f"{path} cannot be resumed from: {key} must be 0 to {most}, got {quoted(value)}")
    return value


def _check_sums(sums: Any, step: int, path: Path) -> None:
    sound = isinstance(sums, dict) and set(sums) == set(SUMS) and all(map(_is_number, sums.values()))
    if sound:
        sound = sums["images"] >= sums["hit1"] >= 0 and sums["seconds"] >= 0 and (sums["images"] > 0) == (step > 0)
    if not sound:
        raise CheckpointError(f"{path} cannot be resumed from: its sums do not fit step {step}, {quoted(sums)}")


def _check_schedule(schedule: Any, epochs: int, path: Path) -> None:
    known = isinstance(schedule, dict) and set(schedule) == {"epoch", "epochs"}
    if (
        not known
        or type(schedule["epochs"]) is not int
        or not _is_number(schedule["epoch"])
        or not (0 <= schedule["epoch"] <= schedule["epochs"] <= epochs)
    ):
        raise CheckpointError(
            f"{path} cannot be resumed from: its schedule must be within {epochs} epochs, got {quoted(schedule)}"
        )


def _check_optimizer(saved: Any, optimizer: Optimizer, path: Path) -> None:
    own = optimizer.state_dict()["param_groups"]
    groups = saved.get("param_groups") if isinstance(saved, dict) else None
    momenta = saved.get("state") if isinstance(saved, dict) else None
    if not isinstance(groups, list) or not isinstance(momenta, dict) or len(groups) != len(own):
        raise CheckpointError(f"{path} cannot be resumed from: its optimizer belongs to another network")
    for group, expected in zip(groups, own, strict=True):
        if not isinstance(group, dict) or group.get("params") != expected["params"] or not _is_number(group.get("lr")):
            raise CheckpointError(f"{path} cannot be resumed from: its optimizer has different parameter groups")
        for key in COMPUTED_WITH:
            if type(group.get(key)) is not type(expected[key]) or group[key] != expected[key]:
                raise CheckpointError(
                    f"{path} cannot be resumed from: its optimizer has {key} = {quoted(group.get(key))}, "
                    f"expected {expected[key]!r}"
                )
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for place, held in momenta.items():
        if type(place) is not int or not 0 <= place < len(parameters):
            raise CheckpointError(f"{path} cannot be resumed from: parameter {quoted(place)} does not exist")
        if not isinstance(held, dict) or set(held) - {"momentum_buffer"}:
            raise CheckpointError(
                f"{path} cannot be resumed from: the state of parameter {place} must be a momentum only"
            )
        if held.get("momentum_buffer") is not None:
            check_like(f"the momentum of parameter {place}", held["momentum_buffer"], parameters[place], path)


def _check_signs(saved: Any, signs: Mapping[str, NDArray[np.uint64]], path: Path) -> None:
    if not isinstance(saved, dict) or saved.keys() != signs.keys():
        raise CheckpointError(f"{path} cannot be resumed from: its previous_signs belong to other layers")
    for name, words in signs.items():
        tensor = check_plain(f"previous_signs of {name}", saved[name], path)
        if tensor.shape != words.shape or tensor.dtype != torch.uint64:
            raise CheckpointError(f"{path} cannot be resumed from: the previous_signs of {name} do not fit its weights")


def _check_rng(rng: Any, path: Path) -> None:
    try:
        torch.Generator().set_state(check_plain("rng", rng, path))
    except (RuntimeError, TypeError):
        raise CheckpointError(f"{path} cannot be resumed from: its rng is not a state of torch's generator") from None
