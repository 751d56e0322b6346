"""What the commands share about packed files: finding them, telling them from checkpoints, and their pictures."""

import os
from pathlib import Path

from rbnn.errors import CheckpointError, ConfigError
from rbnn.packed.graph import Graph

SUFFIX = ".rbnn"


def named_file(net: Path) -> Path:
    """NET as a path: a pretrained network's name stands for its packed file."""
    from rbnn.packed import pretrained

    return pretrained.path(str(net)) if str(net) in pretrained.names() and not net.exists() else net


def find_net(net: Path) -> Path:
    """The same, where NET must be there; said before anything is imported that only a checkpoint needs."""
    path = named_file(net)
    try:
        path.lstat()
    except FileNotFoundError:
        if path.suffix != SUFFIX:  # or its reader says so
            raise CheckpointError(
                f"there is no checkpoint, run or packed file {net}, and no pretrained network of that name: "
                "`rbnn models --pretrained` lists them"
            ) from None
    except (OSError, ValueError):
        pass  # whoever reads it says what is wrong
    return path


def is_packed(path: Path) -> bool:
    """Whether NET is a packed file, by its name or, where somebody renamed it, by its first bytes."""
    if path.suffix == SUFFIX:
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(10)[8:] == b'{"'  # safetensors: the length of its header in 8 bytes, then the header, JSON


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
