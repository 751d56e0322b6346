"""Mutants of packed files: the graph or a tensor changed in one to three places, with a corrected checksum."""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from packed_files import ENCODE

from rbnn.packed import file as packfile
from rbnn.packed.graph import Graph
from rbnn.packed.operations import KINDS
from rbnn.packed.sizes import AXES

JUNK: list[Any] = [
    -1, 0, 1, 2, 3, 7, 64, 255, 256, 1024, 16384, 2**20, 2**31, 2**63, 10**400, 1e308, 1e-320, -0.5, True, None, "",
    "x", "\ud800", "mean", [], [1], [0, 0], [1, 1], [3, 3], [255, 255], [9, 1], [1e9, 1], {}, ["relu"],
    ["hardtanh", 1, -1], ["power", 2], ["softplus", 1, 20], "hwc", "reflect", "bilinear", ["a", {"b": "c"}],
]  # fmt: skip


def _mutate(rng: np.random.Generator, value: Any, names: list[str]) -> Any:
    """A copy of ``value`` with one place changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        keys = list(value)
        key = keys[rng.integers(len(keys))]
        changed = dict(value)
        chance = rng.random()
        if chance < 0.06:
            del changed[key]
        elif chance < 0.1:
            changed[names[rng.integers(len(names))]] = changed.pop(key)
        else:
            changed[key] = _mutate(rng, value[key], names)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = int(rng.integers(len(value)))
        chance = rng.random()
        if chance < 0.05:
            return value[:at] + value[at + 1 :]
        if chance < 0.1:
            return [*value[:at], value[at], *value[at:]]
        return [*value[:at], _mutate(rng, value[at], names), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.7:
        return names[rng.integers(len(names))]
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.6:
        return value + int(rng.integers(-3, 4))
    return JUNK[rng.integers(len(JUNK))]


def mutated(graph: Graph, rng: np.random.Generator) -> tuple[Any, dict[str, NDArray[Any]]]:
    """The graph as JSON and its tensors, changed somewhere."""
    roles = (role for kind in KINDS.values() for role in (*kind.attributes, *kind.tensors))
    names = [*graph.buffers, *graph.tensors, *KINDS, *roles, *AXES]
    value, tensors = json.loads(packfile._to_json(graph)), dict(graph.tensors)
    for _ in range(rng.choice([1, 1, 2, 3])):
        if tensors and rng.random() < 0.4:
            name = list(tensors)[rng.integers(len(tensors))]
            tensors[name] = _changed(rng, tensors[name])
        else:
            value = _mutate(rng, value, names)
    return value, tensors


def mutant_file(graph: Graph, rng: np.random.Generator) -> bytes:
    """A file, of any version, whose network differs from ``graph``."""
    value, changed = mutated(graph, rng)
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in changed.items()}
    return ENCODE[1 + int(rng.integers(len(ENCODE)))](json.dumps(value), tensors)


def _changed(rng: np.random.Generator, tensor: NDArray[Any]) -> NDArray[Any]:
    if tensor.dtype == np.float32 and rng.random() < 0.5:  # numbers that overflow, or are subnormal
        with np.errstate(over="ignore", invalid="ignore"):
            return tensor * np.float32(rng.choice([1e4, 1e15, 1e30, -1, 1e-20, 1e-38, 1e-42]))
    bytewise = np.ascontiguousarray(tensor).view(np.uint8).reshape(-1)
    changes = [
        tensor[:-1], tensor.astype(np.float32), tensor.view(np.uint8), tensor.reshape(-1), np.zeros_like(tensor),
        *(rng.permutation(tensor.reshape(-1)).reshape(tensor.shape),) * 3,
        rng.permutation(bytewise).view(tensor.dtype).reshape(tensor.shape),
    ]  # fmt: skip
    return changes[rng.integers(len(changes))]
