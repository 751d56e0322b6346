"""Measures of the binary layers in each epoch: angle, quantisation error, flips, and those of the method."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import safetensors.numpy
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from rbnn import _core
from rbnn.errors import CheckpointError
from rbnn.files import write_whole
from rbnn.functional import angle, flip_rate, relative_quantisation_error, sign
from rbnn.nn import binary_layers
from rbnn.text import quoted

Signs = dict[str, NDArray[np.uint64]]
"""Packed signs of each binary layer, one row per filter."""

INITIAL = "initial.safetensors"
LARGEST_SIGNS = 1 << 28
"""Bytes of that file."""


def _packed(signs: Tensor) -> NDArray[np.uint64]:
    words = _core.pack_bits(signs.detach().flatten(1).float().cpu().contiguous().numpy())
    return words.view(np.uint64)  # NumPy has two 64-bit types; torch takes this one


def initial_signs(model: nn.Module, continued: Collection[str] = ()) -> Signs:
    """The signs that flips are counted from: those of the latent weights before any rotation, or the ±1 weights for
    layers that continue a trained network."""
    now = present_signs(model) if continued else {}
    return {
        name: now[name] if name in continued else _packed(sign(layer.filters)) for name, layer in binary_layers(model)
    }


def present_signs(model: nn.Module) -> Signs:
    """The current ±1 weights."""
    return {name: _packed(layer.method.signs(layer.filters)) for name, layer in binary_layers(model)}


@torch.no_grad()
def layer_measures(model: nn.Module, initial: Signs, previous: Signs) -> dict[str, dict[str, float]]:
    """For each layer: the angle between the weight before sign and its signs (degrees), the relative quantisation
    error, the share of signs that differ from the start and from the end of the last epoch, and the method's measures
    (α)."""
    measures = {}
    for name, layer in binary_layers(model):
        before = layer.method.before_sign(layer.filters)
        signs = sign(before)
        measures[name] = {
            "angle": angle(before, signs),
            "error": relative_quantisation_error(before, signs),
            "flips": _flips(initial[name], signs),
            "epoch_flips": _flips(previous[name], signs),
            **layer.method.measures(),
        }
    return measures


def _flips(before: NDArray[np.uint64], signs: Tensor) -> float:
    """``flip_rate`` of packed signs.  The first sign is the lowest bit of the first word."""
    rows = signs.flatten(1).cpu() > 0
    bits = np.unpackbits(before.astype("<u8").view(np.uint8), axis=1, bitorder="little")[:, : rows.shape[1]]
    return flip_rate(torch.from_numpy(bits).bool(), rows)


def mean_measures(measures: dict[str, dict[str, float]]) -> dict[str, float]:
    """Each measure averaged over the layers."""
    keys = {key for layer in measures.values() for key in layer}
    rows = {key: [layer[key] for layer in measures.values() if key in layer] for key in sorted(keys)}
    return {key: sum(values) / len(values) for key, values in rows.items()}


def save_signs(path: Path, signs: Signs) -> None:
    """As a safetensors file of 64-bit words."""
    write_whole(path, lambda file: file.write(safetensors.numpy.save(signs)))


def load_signs(path: Path) -> Signs:
    try:
        if path.stat().st_size > LARGEST_SIGNS:
            raise CheckpointError(
                f"{path} is too large for the initial signs: expected at most {LARGEST_SIGNS:,} bytes"
            )
        signs = safetensors.numpy.load(path.read_bytes())  # a memory map ends the process if the file is truncated
    except (OSError, SafetensorError, MemoryError) as error:
        raise CheckpointError(f"cannot read the initial signs in {path}: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError):  # types that NumPy does not have, such as float8
        raise CheckpointError(f"cannot read the initial signs in {path}: expected 64-bit words") from None
    for name, words in signs.items():
        if words.dtype != np.uint64:
            raise CheckpointError(
                f"cannot read the initial signs in {path}: {quoted(name)} does not consist of 64-bit words"
            )
    return signs
