"""The embedded data set."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rbnn import data
from rbnn.data import digits
from rbnn.errors import DataError, UnknownName


def test_arrays_are_the_normalised_images() -> None:
    tests = data.load("digits", split="test")
    images, labels = tests.arrays()
    assert images.shape == (360, 1, 8, 8)
    assert images.dtype == np.float32
    np.testing.assert_allclose(images[3, 0], (tests.images[3, :, :, 0] / 255 - tests.mean[0]) / tests.std[0], atol=1e-6)
    np.testing.assert_array_equal(labels, tests.labels)


def test_it_shows_itself_in_one_line() -> None:
    shown = "1,437 images of 1×8×8, 10 classes (0, 1, 2, 3, 6 more)"
    assert repr(data.load("digits")) == f"ImageSet(digits, train: {shown})"
    assert repr(digits.load(None, "train")) == f"ImageSet(digits: {shown})"


def test_shapes_counts_and_range() -> None:
    train, test = digits.load(None, "train"), digits.load(None, "test")
    assert train.images.shape == (1437, 8, 8, 1)
    assert test.images.shape == (360, 8, 8, 1)
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int64)
    assert (train.images.min(), train.images.max()) == (0, 255)
    assert (train.channels, train.image_size, train.flip, train.crop_padding) == (1, 8, False, 1)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(UnknownName, match="unknown split 'val': available: test, train"):
        data.load("digits", split="val")  # type: ignore[call-overload]


@pytest.mark.parametrize(("name", "word"), [("digits", "test"), ("digits", "val"), ("cifar10", "test")])
def test_a_split_in_place_of_the_directory_is_refused(
    name: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=f"directory '{word}' does not exist: to choose a split, write split=\"test\"$"):
        data.load(name, word)


def test_a_directory_may_be_there_and_that_of_a_command_need_not(tmp_path: Path) -> None:
    for directory in (str(tmp_path), tmp_path, tmp_path / "absent"):
        assert len(data.load("digits", directory, "test")) == 360


def test_the_split_is_stratified_and_covers_the_set() -> None:
    train, test = digits.load(None, "train"), digits.load(None, "test")
    together = np.bincount(train.labels) + np.bincount(test.labels)
    assert together.sum() == 1797
    np.testing.assert_array_less(abs(np.bincount(test.labels) - together / 5), 1)


def test_mean_and_std_are_the_measured_ones() -> None:
    train = digits.load(None, "train")
    assert train.images.mean() / 255 == pytest.approx(train.mean[0], abs=1e-4)
    assert train.images.std() / 255 == pytest.approx(train.std[0], abs=1e-4)


def test_without_scikit_learn_the_error_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataError, match="pip install scikit-learn"):
        data.load("digits", None, "train")


def test_the_package_never_imports_torch() -> None:
    modules = "cifar10, cifar100, digits, fashion_mnist, image_folder, preprocess"
    code = f"import sys; from rbnn.data import {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
