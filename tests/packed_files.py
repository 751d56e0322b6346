"""Packed files of every version, including files that no exporter writes."""

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from rbnn.packed import file as packfile

Tensors = Mapping[str, NDArray[Any]]
Change = Callable[[dict[str, str], dict[str, Any]], object]
"""The checksum of the graph as JSON, under ``graph``, and of the tensors."""


def version_1(text: str, tensors: Tensors) -> bytes:
    """A file of version 1."""
    metadata = {"rbnn.version": "1", "rbnn.graph": text, "rbnn.checksum": packfile.checksum(text, tensors)}
    return bytes(save(dict(tensors), metadata))


def version_2(text: str, tensors: Tensors) -> bytes:
    """A file of version 2, before networks could have several outputs; the container is the same."""
    return packfile.encode(text, tensors).replace(b'"rbnn.version":"4"', b'"rbnn.version":"2"', 1)


def version_3(text: str, tensors: Tensors) -> bytes:
    """A file of version 3, before sizes could be free; the container is the same."""
    return packfile.encode(text, tensors).replace(b'"rbnn.version":"4"', b'"rbnn.version":"3"', 1)


ENCODE = {1: version_1, 2: version_2, 3: version_3, 4: packfile.encode}


def rewrite(path: Path, change: Change) -> Path:
    """A file of its own version after ``change``, with a corrected checksum, as if the writer had made the mistake."""
    with safe_open(path, framework="numpy") as file:
        version = int(file.metadata()["rbnn.version"])
        if version == 1:
            text = file.metadata()["rbnn.graph"]
        else:
            text = zlib.decompress(file.get_tensor("graph")).decode().partition("\n")[0]
    parts = {"graph": text}
    tensors = {name: tensor.copy() for name, tensor in packfile.read(path).tensors.items()}
    change(parts, tensors)
    path.write_bytes(ENCODE[version](parts["graph"], tensors))
    return path
