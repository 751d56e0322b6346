"""NET, as commands and functions take it: a pretrained network by name, packed file, run directory or checkpoint."""

import os
from difflib import get_close_matches
from pathlib import Path

from rbnn.data.image_folder import ENDINGS
from rbnn.errors import CheckpointError
from rbnn.packed import pretrained

SUFFIX = ".rbnn"


def named_file(net: Path) -> Path:
    """NET as a path; the name of a pretrained network is replaced by its packed file."""
    return pretrained.path(str(net)) if str(net) in pretrained.names() and not net.exists() else net


def find_net(net: Path) -> Path:
    """The same, but NET must exist.  This is checked before importing anything that only a checkpoint needs."""
    path = named_file(net)
    try:
        path.lstat()
    except FileNotFoundError:
        if path.suffix != SUFFIX:  # otherwise its reader reports the error
            nearest = get_close_matches(str(net), pretrained.names(), n=1)
            hint = f"did you mean {nearest[0]}? " if nearest else ""
            raise CheckpointError(
                f"no checkpoint, run directory, packed file or pretrained network is named {net}: {hint}"
                "`rbnn models --pretrained` lists the pretrained networks"
            ) from None
    except (OSError, ValueError):
        pass  # the reader will report what is wrong
    if path.suffix.lower() in ENDINGS and path.is_file():
        raise CheckpointError(f"{net} is an image, not a network: name the network first")
    return path


def called(net: str | os.PathLike[str]) -> str:
    """What a person calls NET: a pretrained network has a name, everything else its path."""
    path = Path(net)
    pretrained_file = path.stem in pretrained.names() and path == pretrained.path(path.stem)
    return path.stem if pretrained_file else str(net)


def is_packed(path: Path) -> bool:
    """Whether NET is a packed file, by its name or, if it was renamed, by its first bytes."""
    if path.suffix == SUFFIX:
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(10)[8:] == b'{"'  # safetensors: the length of its header in 8 bytes, then the header, JSON
