"""Batches are bit-identical after any interruption and for any number of processes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rbnn.data import FolderSet, ImageSet, preprocess
from rbnn.errors import ConfigError, DataError
from rbnn.training import augment
from rbnn.training.batches import Batch, Batches


@pytest.fixture(scope="module")
def pictures() -> ImageSet:
    images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), dtype=np.uint8)
    images[:, 4, 4] = np.arange(50)[:, None]
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
    return ImageSet("made-up", images, np.arange(50), tuple(map(str, range(50))), mean, std, 2, True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> FolderSet:
    root = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    paths = []
    for n in range(14):
        paths.append(root / f"{n}.png")
        Image.fromarray(random.integers(0, 256, (20 + n, 30, 3), dtype=np.uint8)).save(paths[-1])
    return FolderSet("made-up", tuple(paths), np.arange(14), tuple("abcdefghijklmn"), (0.4,) * 3, (0.2,) * 3, 16)


def same(found: list[Batch], expected: list[Batch]) -> bool:
    return len(found) == len(expected) and all(
        torch.equal(a, b) for x, y in zip(found, expected, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_form_of_a_batch(pictures: ImageSet) -> None:
    batches = Batches(pictures, 16, train=True, seed=0)
    for images, labels in batches.epoch(0):
        assert (images.shape, images.dtype, labels.dtype) == ((16, 3, 8, 8), torch.float32, torch.int64)
        assert images.is_contiguous(memory_format=torch.channels_last)


def test_training_shows_every_picture_at_most_once_and_drops_the_rest(pictures: ImageSet) -> None:
    batches = Batches(pictures, 16, train=True, seed=0)
    labels = torch.cat([labels for _, labels in batches.epoch(3)]).tolist()
    assert len(batches) == 3
    assert len(labels) == len(set(labels)) == 48


def test_a_set_smaller_than_a_batch_is_one_batch(pictures: ImageSet) -> None:
    batches = Batches(pictures, 64, train=True, seed=0)
    assert [len(labels) for _, labels in batches.epoch(0)] == [50]
    with pytest.raises(ConfigError, match="50 images are less than one batch, so 4 processes cannot share them"):
        Batches(pictures, 64, train=True, seed=0, world=4)


def test_evaluation_equals_preprocessing_bit_for_bit(pictures: ImageSet) -> None:
    found = list(Batches(pictures, 16, train=False, seed=0).epoch(0))
    assert [len(labels) for _, labels in found] == [16, 16, 16, 2]
    np.testing.assert_array_equal(torch.cat([labels for _, labels in found]), pictures.labels)
    expected = preprocess.normalise(pictures.images, pictures.mean, pictures.std)
    np.testing.assert_array_equal(torch.cat([images for images, _ in found]), expected)


def test_training_pictures_are_crops_and_flips_of_the_originals(pictures: ImageSet) -> None:
    places = range(5)
    seen = set()
    for images, labels in Batches(pictures, 10, train=True, seed=0).epoch(0):
        for image, label in zip(images, labels, strict=True):
            for top in places:
                for left in places:
                    for flip in (False, True):
                        one = augment.crop_and_flip(
                            pictures.images[label : label + 1],
                            2,
                            np.array([top]),
                            np.array([left]),
                            np.array([flip]),
                        )
                        if np.array_equal(preprocess.normalise(one, pictures.mean, pictures.std)[0], image):
                            seen.add((int(label), top, left, flip))
    assert len(seen) == 50
    assert len({(top, left, flip) for _, top, left, flip in seen}) > 20


@pytest.mark.parametrize("kind", ["pictures", "folder"])
def test_pictures_that_are_not_augmented(kind: str, request: pytest.FixtureRequest) -> None:
    """The images are shuffled as always, but otherwise as in evaluation."""
    dataset = request.getfixturevalue(kind)
    plain, usual = (Batches(dataset, 4, train=True, augmented=each, seed=3) for each in (False, True))
    (seen,) = Batches(dataset, len(dataset), train=False, seed=0).epoch(0)
    different = False
    for (images, labels), (changed, same) in zip(plain.epoch(1), usual.epoch(1), strict=True):
        assert torch.equal(labels, same)
        for image, label in zip(images, labels, strict=True):
            assert any(torch.equal(image, other) for other in seen[0][seen[1] == label])
        different |= not torch.equal(images, changed)
    assert different


def test_a_set_that_must_not_be_flipped(pictures: ImageSet) -> None:
    one = ImageSet("x", pictures.images, pictures.labels, pictures.classes, pictures.mean, pictures.std, 0, False)
    images, labels = next(Batches(one, 50, train=True, seed=0).epoch(0))
    expected = preprocess.normalise(pictures.images[labels.numpy()], pictures.mean, pictures.std)
    np.testing.assert_array_equal(images, expected)


@pytest.mark.parametrize("kind", ["pictures", "folder"])
@pytest.mark.parametrize("train", [True, False])
def test_seed_epoch_and_start_decide_everything(kind: str, train: bool, request: pytest.FixtureRequest) -> None:
    dataset = request.getfixturevalue(kind)
    batches = Batches(dataset, 4, train=train, seed=7)
    state = torch.get_rng_state()
    whole = list(batches.epoch(2))
    assert len(whole) == len(batches)
    torch.manual_seed(99)
    np.random.seed(99)  # the global generators must not matter
    for start in range(len(batches) + 1):
        assert same(list(Batches(dataset, 4, train=train, seed=7).epoch(2, start)), whole[start:])
    assert same(list(batches.epoch(3)), whole) == (not train)
    assert same(list(Batches(dataset, 4, train=train, seed=8).epoch(2)), whole) == (not train)
    torch.set_rng_state(state)
    list(batches.epoch(2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["pictures", "folder"])
@pytest.mark.parametrize("world", [2, 3])
def test_the_ranks_together_see_the_batches_of_one_process(
    kind: str, world: int, request: pytest.FixtureRequest
) -> None:
    dataset = request.getfixturevalue(kind)
    alone = list(Batches(dataset, 6, train=True, seed=1).epoch(5))
    shares = [list(Batches(dataset, 6, train=True, seed=1, rank=r, world=world).epoch(5)) for r in range(world)]
    together = [
        (torch.cat([images for images, _ in batch]), torch.cat([labels for _, labels in batch]))
        for batch in zip(*shares, strict=True)
    ]
    assert same(together, alone)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_evaluation_is_split_without_duplicates(pictures: ImageSet, world: int) -> None:
    seen: list[int] = []
    for rank in range(world):
        batches = Batches(pictures, 12, train=False, seed=0, rank=rank, world=world)
        found = list(batches.epoch(0))
        assert len(found) == len(batches)
        assert max(len(labels) for _, labels in found) == 12 // world
        seen += torch.cat([labels for _, labels in found]).tolist()
    assert seen == list(range(50))


def test_more_processes_than_pictures(folder: FolderSet) -> None:
    lengths = [
        sum(len(y) for _, y in Batches(folder, 20, train=False, seed=0, rank=r, world=20).epoch(0)) for r in range(20)
    ]
    assert sorted(lengths) == [0] * 6 + [1] * 14


def test_limit_is_a_fixed_subset(pictures: ImageSet) -> None:
    def seen(seed: int, limit: int) -> set[int]:
        batches = Batches(pictures, 5, train=True, seed=seed, limit=limit)
        return {int(label) for _, labels in batches.epoch(0) for label in labels}

    assert seen(0, 20) == seen(1, 20)
    assert seen(0, 10) < seen(0, 20)
    assert len(seen(0, 20)) == 20
    assert len(seen(0, 1000)) == 50


def test_worker_processes_change_nothing(folder: FolderSet) -> None:
    alone = list(Batches(folder, 4, train=True, seed=1).epoch(0))
    assert same(list(Batches(folder, 4, train=True, seed=1, workers=2).epoch(0)), alone)


def test_evaluation_of_files_is_what_predict_does(folder: FolderSet) -> None:
    images, _ = next(Batches(folder, 14, train=False, seed=0, image_size=64).epoch(0))
    seen = np.stack([preprocess.picture(path, 64, 3) for path in folder.paths])
    np.testing.assert_array_equal(images, preprocess.normalise(seen, folder.mean, folder.std))
    assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_file_is_one_sentence(folder: FolderSet, tmp_path: Path, workers: int) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_text("text")
    paths = (*folder.paths[:-1], broken)
    with_broken = FolderSet("x", paths, folder.labels, folder.classes, folder.mean, folder.std, 16)
    with pytest.raises(DataError) as caught:
        list(Batches(with_broken, 7, train=False, seed=0, workers=workers).epoch(0))
    assert str(caught.value).startswith(f"{broken} could not be read as an image")
    assert "\n" not in str(caught.value)


def test_values_that_cannot_be(pictures: ImageSet) -> None:
    with pytest.raises(ConfigError, match="multiple of the number of processes, 3, got 16"):
        Batches(pictures, 16, train=True, seed=0, world=3)
    with pytest.raises(ConfigError, match="multiple of the number of processes, 1, got 0"):
        Batches(pictures, 0, train=True, seed=0)
    with pytest.raises(ConfigError, match="images of made-up have size 8, which image_size 32 cannot change"):
        Batches(pictures, 16, train=True, seed=0, image_size=32)
    with pytest.raises(ConfigError, match="limit must be at least 1"):
        Batches(pictures, 16, train=True, seed=0, limit=0)
    with pytest.raises(ConfigError, match="seed must be 0 or more"):
        Batches(pictures, 16, train=True, seed=-1)
    with pytest.raises(ConfigError, match="3 batches cannot start at batch 4"):
        Batches(pictures, 16, train=True, seed=0).epoch(0, start=4)
