"""What the commands share about packed files: where they do not do, and their pictures."""

import os
from pathlib import Path

from rbnn.errors import ConfigError
from rbnn.packed.find import is_packed, named_file
from rbnn.packed.graph import Graph


def refuse_packed(net: Path, instead: str) -> None:
    """For commands that need what training left: a packed network is not called a damaged checkpoint."""
    from rbnn.packed import file as packfile

    path = named_file(net)
    if path.is_file() and is_packed(path):
        packfile.read(path)  # a broken one is called broken
        raise ConfigError(f"{net} is a packed network, without its training: {instead}")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def picture_side(path: Path, graph: Graph) -> int:
    """The side of the square pictures that a classifying network takes."""
    height, width, _ = graph.buffers[graph.input.buffer].shape
    if height != width:
        raise ConfigError(
            f"{path} takes pictures of {height}×{width}, and only square ones are cut out of a file: "
            "prepare them yourself and use rbnn.Session"
        )
    if graph.buffers[graph.output].shape[:2] != (1, 1):
        raise ConfigError(f"{path} answers with a map, not with classes: use rbnn.Session")
    return height


def normalisation(path: Path, graph: Graph) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std of each channel, as in training."""
    contract, channels = graph.input, graph.buffers[graph.input.buffer].shape[2]
    if not (contract.mean and contract.std):
        raise ConfigError(f"{path} does not say how pictures are normalised: export it again with mean and std")
    mean, std = (numbers * channels if len(numbers) == 1 else numbers for numbers in (contract.mean, contract.std))
    return mean, std
