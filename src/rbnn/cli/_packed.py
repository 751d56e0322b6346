"""What the commands share about packed files: where they are not accepted, and how many cores run them."""

import os
from pathlib import Path

from rbnn.errors import ConfigError
from rbnn.packed.find import is_packed, named_file


def refuse_packed(net: Path, instead: str) -> None:
    """For commands that need training state, so that a packed network is not reported as a damaged checkpoint."""
    from rbnn.packed import file as packfile

    path = named_file(net)
    if path.is_file() and is_packed(path):
        packfile.read(path)  # a damaged file is reported as damaged
        raise ConfigError(f"{net} is a packed network, which has no training state: {instead}")


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
