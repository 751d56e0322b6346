"""Fashion-MNIST's idx files."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from rbnn.data import fashion_mnist
from rbnn.errors import DataError


def write_idx(path: Path, values: NDArray[np.uint8], kind: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, kind, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + values.tobytes()))


def fill(folder: Path, train: int, test: int) -> NDArray[np.uint8]:
    images = np.random.default_rng(0).integers(0, 256, (train, 28, 28), dtype=np.uint8)
    for prefix, count in (("train", train), ("t10k", test)):
        write_idx(folder / f"{prefix}-images-idx3-ubyte.gz", images[:count])
        write_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", (np.arange(count) % 10).astype(np.uint8))
    return images


@pytest.mark.parametrize("place", ["fashion-mnist", ".", "FashionMNIST/raw", "debian"])
def test_every_place_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(fashion_mnist, "PICTURES", {"train": 20, "test": 10})
    images = fill(tmp_path / place, 20, 10)
    loaded = fashion_mnist.load(tmp_path, "train")
    np.testing.assert_array_equal(loaded.images[..., 0], images)
    assert (loaded.labels.dtype, loaded.labels[11], loaded.images.shape) == (np.int64, 1, (20, 28, 28, 1))
    if place != "debian":
        with pytest.raises(DataError, match="is not the published file: expected md5"):
            fashion_mnist.obtain(tmp_path)
        sums = {name: hashlib.md5((tmp_path / place / name).read_bytes()).hexdigest() for name in fashion_mnist.MD5}
        monkeypatch.setattr(fashion_mnist, "MD5", sums)
    obtained = fashion_mnist.obtain(tmp_path)
    assert (obtained.train, obtained.test, obtained.how) == (20, 10, "was already there")


def test_the_real_set_is_told_by_its_counts(tmp_path: Path) -> None:
    fill(tmp_path, 20, 10)
    with pytest.raises(DataError, match="expected an idx file of 60000 x 28 x 28 bytes"):
        fashion_mnist.load(tmp_path, "train")


def test_broken_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.gz"
    for values, kind in (
        (np.zeros(9, np.uint8), 8),
        (np.zeros(10, np.uint8), 9),
        (np.zeros(11, np.uint8), 8),
    ):
        write_idx(path, values, kind)
        with pytest.raises(DataError, match="expected an idx file of 10 bytes"):
            fashion_mnist.read_idx(path, (10,))
    write_idx(path, np.arange(10, dtype=np.uint8))
    whole = path.read_bytes()
    for broken in (whole[:-9], b"text", whole[:12] + b"\xff\xff" + whole[14:], b""):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"labels\.gz"):
            fashion_mnist.read_idx(path, (10,))


def test_unbalanced_classes_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, 20, 10)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.full(10, 11, np.uint8))
    with pytest.raises(DataError, match="expected 1 images in each of 10 classes"):
        fashion_mnist.read(tmp_path, "test", 10)


def test_what_to_do_when_nothing_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "DEBIAN", tmp_path / "debian")
    with pytest.raises(DataError, match="rbnn data fashion-mnist --dir"):
        fashion_mnist.load(tmp_path, "train")
    with pytest.raises(DataError, match="rbnn data fashion-mnist --dir DIR"):
        fashion_mnist.load(None, "train")
