"""CIFAR-10 and CIFAR-100 in all their containers."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from official_formats import python2_pickle, records, tar

from rbnn import data
from rbnn.data import _cifar, cifar10, cifar100
from rbnn.data._cifar import Cifar, Records
from rbnn.errors import DataError

SMALL10 = replace(cifar10.CIFAR10, pictures={"train": 10, "test": 20}, sha1={})
SMALL100 = replace(cifar100.CIFAR100, pictures={"train": 200, "test": 100})


def made_up(cifar: Cifar) -> dict[str, Records]:
    found = {}
    for split, names in cifar.batches.items():
        for seed, name in enumerate(names):
            found[name] = records(cifar.pictures[split], *cifar.label_counts, seed=seed)
    return found


def as_binary(cifar: Cifar, found: dict[str, Records]) -> dict[str, bytes]:
    return {f"{name}.bin": array.tobytes() for name, array in found.items()}


def as_pickles(cifar: Cifar, found: dict[str, Records]) -> dict[str, bytes]:
    batches = {}
    for name, array in found.items():
        batch: dict[str, object] = {"batch_label": name, "data": array[:, len(cifar.label_keys) :]}
        for column, key in enumerate(cifar.label_keys):
            batch[key] = array[:, column].tolist()
        batches[name] = python2_pickle(batch)
    return batches


def write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def fill(directory: Path, container: str, cifar: Cifar, found: dict[str, Records]) -> None:
    binary, python = cifar.archives
    match container:
        case "binary folder":
            write(directory / cifar.binary, as_binary(cifar, found))
        case "binary files":
            write(directory / cifar.name, as_binary(cifar, found))
        case "binary archive":
            files = {f"{cifar.binary}/{name}": data for name, data in as_binary(cifar, found).items()}
            tar(directory / binary, files)
        case "python archive":
            files = {f"{cifar.pickles}/{name}": data for name, data in as_pickles(cifar, found).items()}
            tar(directory / cifar.name / python, files)
        case "torchvision folder":
            write(directory / cifar.pickles, as_pickles(cifar, found))


CONTAINERS = ["binary folder", "binary files", "binary archive", "python archive", "torchvision folder"]


@pytest.mark.parametrize("cifar", [SMALL10, SMALL100], ids=lambda cifar: cifar.name)
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_gives_the_same_pictures(tmp_path: Path, container: str, cifar: Cifar) -> None:
    found = made_up(cifar)
    fill(tmp_path, container, cifar, found)
    for split in ("train", "test"):
        loaded = _cifar.load(cifar, tmp_path, split)
        expected = np.concatenate([found[name] for name in cifar.batches[split]])
        np.testing.assert_array_equal(loaded.labels, expected[:, len(cifar.label_keys) - 1])
        assert loaded.images.shape == (len(expected), 32, 32, 3)
        assert loaded.images.flags.c_contiguous
        assert (len(loaded.classes), loaded.channels, loaded.image_size) == (len(cifar.classes), 3, 32)
        # Pixel (row 5, column 7) of the green plane.
        np.testing.assert_array_equal(loaded.images[:, 5, 7, 1], expected[:, len(cifar.label_keys) + 1024 + 5 * 32 + 7])


def test_the_class_names_are_complete() -> None:
    assert len(set(cifar100.CLASSES)) == 100
    assert list(cifar100.CLASSES) == sorted(cifar100.CLASSES)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    found = made_up(SMALL10)
    fill(tmp_path, "binary folder", SMALL10, found)
    path = tmp_path / SMALL10.binary / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_3\.bin: expected a multiple of 3073 bytes"):
        _cifar.load(SMALL10, tmp_path, "train")
    path.write_bytes(found["data_batch_3"][:-1].tobytes())
    with pytest.raises(DataError, match=r"expected 10 images in .*, got 9"):
        _cifar.load(SMALL10, tmp_path, "train")
    path.unlink()
    with pytest.raises(DataError, match=r"data_batch_3\.bin could not be read \(No such file"):
        _cifar.load(SMALL10, tmp_path, "train")


def test_a_file_of_any_size_is_refused_unread(tmp_path: Path) -> None:
    fill(tmp_path, "binary folder", SMALL10, made_up(SMALL10))
    os.truncate(tmp_path / SMALL10.binary / "data_batch_3.bin", _cifar.LARGEST_MEMBER + 1)  # takes no disk space
    with pytest.raises(DataError, match=r"data_batch_3\.bin: expected at most 268,435,456 bytes, got 268,435,457"):
        _cifar.load(SMALL10, tmp_path, "train")


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, "binary archive", SMALL10, made_up(SMALL10))
    path = tmp_path / "cifar-10-binary.tar.gz"
    path.write_bytes(path.read_bytes()[:30_000])
    with pytest.raises(DataError, match=r"tar\.gz could not be read"):
        _cifar.load(SMALL10, tmp_path, "test")
    path.write_bytes(b"<html>404</html>")
    with pytest.raises(DataError, match=r"tar\.gz could not be read"):
        _cifar.load(SMALL10, tmp_path, "test")


def test_hostile_names_in_an_archive_touch_nothing(tmp_path: Path) -> None:
    inside = tmp_path / "data"
    files = {f"{SMALL10.binary}/{name}": data for name, data in as_binary(SMALL10, made_up(SMALL10)).items()}
    tar(inside / "cifar-10-binary.tar.gz", {"../escaped": b"x", "/tmp/rbnn-escaped": b"x", **files})
    assert len(_cifar.load(SMALL10, inside, "train")) == 50
    assert [path.name for path in tmp_path.rglob("*")] == ["data", "cifar-10-binary.tar.gz"]
    assert not Path("/tmp/rbnn-escaped").exists()


def test_an_archive_without_the_batches_is_refused(tmp_path: Path) -> None:
    tar(tmp_path / "cifar-10-binary.tar.gz", {"../cifar-10-batches-bin/test_batch.bin": b"x"})
    with pytest.raises(DataError, match=r"does not contain cifar-10-batches-bin/test_batch\.bin"):
        _cifar.load(SMALL10, tmp_path, "test")


def test_wrong_labels_are_refused(tmp_path: Path) -> None:
    found = made_up(SMALL10)
    found["test_batch"][3, 0] = 10
    fill(tmp_path, "torchvision folder", SMALL10, found)
    with pytest.raises(DataError, match=r"labels below 10 in .*, got 10"):
        _cifar.load(SMALL10, tmp_path, "test")


def test_unbalanced_classes_are_refused(tmp_path: Path) -> None:
    found = made_up(SMALL100)
    found["test"][0, 1] = 1
    fill(tmp_path, "binary folder", SMALL100, found)
    with pytest.raises(DataError, match=r"equally many images per class .*, got 0 to 2"):
        _cifar.load(SMALL100, tmp_path, "test")


@pytest.mark.parametrize(
    "batch",
    [
        {"labels": [1]},
        {"labels": [1], "data": np.zeros((1, 7), np.uint8)},
        {"labels": [1, 2], "data": np.zeros((1, 3072), np.uint8)},
        {"labels": [300], "data": np.zeros((1, 3072), np.uint8)},
        {"labels": "1", "data": np.zeros((1, 3072), np.uint8)},
    ],
)
def test_a_pickle_of_another_structure_is_refused(batch: dict[str, object]) -> None:
    container = _cifar.Container(Path("folder"), "", pickled=True)
    with pytest.raises(DataError, match="folder: test_batch: expected `"):
        _cifar.parse(SMALL10, python2_pickle(batch), container, "test_batch")


def test_a_changed_pixel_is_noticed_by_the_checksum(tmp_path: Path) -> None:
    found = made_up(SMALL10)
    known = replace(SMALL10, sha1={name: hashlib.sha1(array).hexdigest() for name, array in found.items()})
    fill(tmp_path, "binary folder", known, found)
    assert len(_cifar.load(known, tmp_path, "test")) == 20
    found["test_batch"][0, 99] ^= 1
    (tmp_path / known.binary / "test_batch.bin").write_bytes(found["test_batch"].tobytes())
    with pytest.raises(DataError, match="test_batch is damaged"):
        _cifar.load(known, tmp_path, "test")


def test_the_real_set_is_told_by_its_counts(tmp_path: Path) -> None:
    fill(tmp_path, "binary folder", SMALL10, made_up(SMALL10))
    with pytest.raises(DataError, match=r"expected 10,000 images in .*, got 20"):
        cifar10.load(tmp_path, "test")


def test_a_directory_may_be_a_string(tmp_path: Path) -> None:
    fill(tmp_path, "binary folder", SMALL10, made_up(SMALL10))
    with pytest.raises(DataError, match=r"expected 10,000 images in .*, got 20"):
        data.load("cifar10", str(tmp_path), "test")


def test_what_to_do_when_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"run `rbnn data cifar10 --dir .*`, or put cifar-10-binary\.tar\.gz into .*cifar10$"
    ):
        cifar10.load(tmp_path, "train")
    with pytest.raises(DataError, match=r"name their directory \(--data-dir DIR, or the argument directory\)$"):
        cifar100.load(None, "train")
