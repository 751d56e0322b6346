"""Directories with one folder per class."""

from pathlib import Path

import numpy as np
import pytest

from rbnn import data
from rbnn.data import FolderSet, image_folder
from rbnn.errors import DataError

IMAGENETTE = Path(__file__).parents[3] / "shared" / "data" / "imagenette-mini"


def tree(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


@pytest.mark.parametrize("test_folder", ["val", "test"])
@pytest.mark.parametrize("below", [".", "image-folder"])
def test_classes_are_the_sorted_folders(tmp_path: Path, test_folder: str, below: str) -> None:
    root = tmp_path / below
    tree(root, "train/dog/b.JPEG", "train/dog/a.png", "train/cat/x.jpg", "train/.cache/x.jpg")
    tree(root, "train/dog/notes.txt", "train/dog/._a.png", "train/readme.jpg", f"{test_folder}/dog/z.webp")
    train, test = image_folder.load(tmp_path, "train"), image_folder.load(tmp_path, "test")
    assert train.classes == test.classes == ("cat", "dog")
    assert [path.name for path in train.paths] == ["x.jpg", "a.png", "b.JPEG"]
    np.testing.assert_array_equal(train.labels, [0, 1, 1])
    np.testing.assert_array_equal(test.labels, [1])  # numbered as in training, although there is no cat
    assert image_folder.obtain(tmp_path).test == 1


def test_evaluation_alone_needs_no_training_pictures(tmp_path: Path) -> None:
    tree(tmp_path, "val/a/1.jpg", "val/b/1.jpg")
    assert image_folder.load(tmp_path, "test").classes == ("a", "b")


def test_trees_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no train images in"):
        image_folder.load(tmp_path, "train")
    with pytest.raises(DataError, match=r"name their directory \(--data-dir DIR, or the argument directory\)$"):
        image_folder.load(None, "train")
    tree(tmp_path, "train/cat/1.jpg", "val/bird/1.jpg")
    with pytest.raises(DataError, match="has the class bird, which has no training images"):
        image_folder.load(tmp_path, "test")
    (tmp_path / "train" / "dog").mkdir()
    with pytest.raises(DataError, match="dog contains no images"):
        image_folder.load(tmp_path, "train")
    (tmp_path / "test").mkdir()
    (tmp_path / "val" / "bird" / "1.jpg").unlink()
    (tmp_path / "val" / "bird").rmdir()
    with pytest.raises(DataError, match=r"contains no images: expected <class>/\*\.jpg, or \.jpeg \.png"):
        image_folder.load(tmp_path, "test")


def test_pictures_without_class_folders(tmp_path: Path) -> None:
    tree(tmp_path, "train/1.png", "train/2.jpg")
    root = tmp_path / "train"
    with pytest.raises(DataError, match=f"{root} contains 2 images, but not in folders .* {root}/<class>/1.png"):
        image_folder.load(tmp_path, "train")


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing does not exist: expected .* val or test/<class>/\*\.jpg"):
        image_folder.load(tmp_path / "missing", "test")


def test_it_shows_itself_in_one_line(tmp_path: Path) -> None:
    tree(tmp_path, "train/cat/1.jpg", "train/dog/1.jpg", "train/dog/2.jpg")
    shown = "FolderSet(image-folder, train: 3 images of 3×224×224, 2 classes (cat, dog))"
    assert repr(data.load("image-folder", tmp_path)) == shown


@pytest.mark.skipif(not IMAGENETTE.is_dir(), reason="the shared pictures are not on this machine")
def test_real_pictures() -> None:
    train, test = (
        data.load("image-folder", IMAGENETTE, "train"),
        data.load("image-folder", IMAGENETTE, "test"),
    )
    assert isinstance(train, FolderSet)
    assert (len(train), len(test), len(train.classes)) == (480, 160, 10)
