"""Small data sets in the official formats."""

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rbnn.data._cifar import PIXELS


def records(pictures: int, *label_counts: int, seed: int = 0) -> NDArray[np.uint8]:
    """CIFAR records in the official format, with balanced labels."""
    found = np.random.default_rng(seed).integers(0, 256, (pictures, len(label_counts) + PIXELS), dtype=np.uint8)
    for column, count in enumerate(label_counts):
        found[:, column] = np.arange(pictures) % count
    return found


def python2_pickle(batch: dict[str, object]) -> bytes:
    """Output of Python 2's cPickle with protocol 2, as in the official archives: strings are bytes."""

    def string(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    def encode(value: object) -> bytes:
        if isinstance(value, str):
            return string(value.encode())
        if isinstance(value, list):
            return b"](" + b"".join(encode(item) for item in value) + b"e"
        if isinstance(value, int):
            return number(value)
        assert isinstance(value, np.ndarray)
        rebuilt = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n"
        rebuilt += number(0) + b"\x85" + string(b"b") + b"tR"
        dtype = b"cnumpy\ndtype\n" + string(b"u1") + number(0) + number(1) + b"\x87R"
        dtype += b"(" + number(3) + string(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
        shape = b"(" + b"".join(number(n) for n in value.shape) + b"t"
        return rebuilt + b"(" + number(1) + shape + dtype + b"\x89" + string(value.tobytes()) + b"tb"

    items = b"".join(encode(key) + encode(value) for key, value in batch.items())
    return b"\x80\x02}(" + items + b"u."


def tar(path: Path, files: dict[str, bytes]) -> Path:
    """A .tar.gz of these members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
