"""What the commands share about packed files: where they do not do, and how many cores there are for them."""

import os
from pathlib import Path

from rbnn.errors import ConfigError
from rbnn.packed.find import is_packed, named_file


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
