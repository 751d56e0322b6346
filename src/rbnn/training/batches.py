"""Batches of a data set, reproducible to the bit.

The order of an epoch and all its random numbers depend only on (seed, epoch), and those of an image on its place in
that order. So a run that resumes in the middle of an epoch sees the batches that it would have seen, and several
processes together see exactly the batches of one process.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rbnn.data import FolderSet, ImageSet, preprocess
from rbnn.data.preprocess import Picture
from rbnn.errors import ConfigError, DataError
from rbnn.training import augment
from rbnn.training.picture_workers import batches_of, start_worker

LIMIT_SEED = 0
"""Fixed, so that runs with the same limit use the same images, whatever their own seed."""

Batch = tuple[Tensor, Tensor]


class Batches:
    """Iterate over normalised images (float32, NCHW in channels_last memory) and their labels (int64).

    `batch_size` counts the images of all processes; process `rank` of `world` gets its contiguous share of each batch.
    Training shuffles, augments (unless `augmented` is false) and drops the last, incomplete batch (a set smaller than a
    batch is one batch). Evaluation keeps every image: each process gets a contiguous part of the set, and their numbers
    of batches may differ by one. `workers` processes decode image files; sets in memory need none. `only` lists the
    indices of the images to use; `limit` uses only that many of them, always the same ones.
    """

    def __init__(
        self,
        dataset: ImageSet | FolderSet,
        batch_size: int,
        *,
        train: bool,
        seed: int,
        augmented: bool = True,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        image_size: int | None = None,
        limit: int | None = None,
        only: NDArray[np.int64] | None = None,
    ) -> None:
        if batch_size < 1 or batch_size % world:
            raise ConfigError(
                f"batch_size must be a positive multiple of the number of processes, {world}, got {batch_size}"
            )
        if seed < 0:
            raise ConfigError(f"seed must be 0 or more, got {seed}")
        if limit is not None and limit < 1:
            raise ConfigError(f"limit must be at least 1 image, got {limit}")
        if isinstance(dataset, ImageSet) and image_size not in (None, dataset.image_size):
            raise ConfigError(
                f"images of {dataset.name} have size {dataset.image_size}, which image_size {image_size} cannot change"
            )
        self._dataset = dataset
        self._train = train
        self._augmented = train and augmented
        self._seed = seed
        self._rank = rank
        self._workers = workers
        self._size = image_size or dataset.image_size
        places = np.arange(len(dataset)) if only is None else only
        self._chosen = places[_subset(len(places), limit)]
        count = len(self._chosen)
        whole = min(batch_size, count) if train else batch_size
        if whole % world:
            raise ConfigError(
                f"{count} images are less than one batch, so {world} processes cannot share them: lower batch_size"
            )
        self._whole, self._share = whole, whole // world
        # Evaluation: this process's part of the set.
        self._first, self._last = rank * count // world, (rank + 1) * count // world
        offset, scale = preprocess.normalisation(dataset.mean, dataset.std)
        # Repeated along a row of pixels: the same arithmetic, but six times faster than over three channels.
        self._offset, self._scale = (torch.from_numpy(np.tile(v, self._size)) for v in (offset, scale))

    def __len__(self) -> int:
        """Batches per epoch."""
        if self._train:
            return len(self._chosen) // self._whole
        return -(-(self._last - self._first) // self._share)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from number `start` on."""
        if not 0 <= start <= len(self):
            raise ConfigError(f"an epoch of {len(self)} batches cannot start at batch {start}")
        places = [self._places(batch) for batch in range(start, len(self))]
        if isinstance(self._dataset, ImageSet):
            return self._from_memory(self._dataset, epoch, places)
        return self._from_files(self._dataset, epoch, places)

    def _places(self, batch: int) -> slice:
        """This process's share of a batch, as indices into the order of the epoch."""
        if self._train:
            first = batch * self._whole + self._rank * self._share
            return slice(first, first + self._share)
        first = self._first + batch * self._share
        return slice(first, min(first + self._share, self._last))

    def _from_memory(self, dataset: ImageSet, epoch: int, places: Sequence[slice]) -> Iterator[Batch]:
        random, order = self._shuffled(epoch)
        count, padding = len(order), dataset.crop_padding
        top, left = random.integers(0, 2 * padding + 1, (2, count))
        flip = random.random(count) < (0.5 if dataset.flip else 0.0)
        for place in places:
            images = dataset.images[order[place]]
            if self._augmented:
                images = augment.crop_and_flip(images, padding, top[place], left[place], flip[place])
            yield self._normalised(images), torch.from_numpy(dataset.labels[order[place]])

    def _from_files(self, dataset: FolderSet, epoch: int, places: Sequence[slice]) -> Iterator[Batch]:
        _, order = self._shuffled(epoch)
        files = _Files(dataset, order, self._size, (self._seed, epoch) if self._augmented else None)
        loader = DataLoader(
            files,
            batch_sampler=[list(range(place.start, place.stop)) for place in places],
            collate_fn=_together,
            num_workers=self._workers,
            worker_init_fn=start_worker,
            # Children of this process, whatever Python's default is: the system reports the death of children only.
            multiprocessing_context="fork" if self._workers and sys.platform == "linux" else None,
            # Its own generator; otherwise each epoch would draw a number from torch's global generator.
            generator=torch.Generator(),
        )
        for place, images in zip(places, batches_of(loader), strict=True):
            if isinstance(images, DataError):
                raise images
            yield self._normalised(images), torch.from_numpy(dataset.labels[order[place]])

    def _shuffled(self, epoch: int) -> tuple[np.random.Generator, NDArray[np.int64]]:
        random = np.random.default_rng([self._seed, epoch])
        return random, random.permutation(self._chosen) if self._train else self._chosen

    def _normalised(self, images: NDArray[np.uint8]) -> Tensor:
        count, height, width, channels = images.shape
        values = torch.from_numpy(images).float().view(count * height, width * channels)
        values.sub_(self._offset).mul_(self._scale)
        return values.view(count, height, width, channels).permute(0, 3, 1, 2)


def _subset(count: int, limit: int | None) -> NDArray[np.int64]:
    if limit is None or limit >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(LIMIT_SEED).permutation(count)[:limit])


@dataclass(frozen=True)
class _Files(Dataset["Picture | DataError"]):
    """The images of an epoch by their place in its order; sent to the worker processes."""

    dataset: FolderSet
    order: NDArray[np.int64]
    size: int
    seeds: tuple[int, int] | None
    """(seed, epoch) if images are augmented; None if they are taken as in evaluation."""

    def __getitem__(self, place: int) -> Picture | DataError:
        path = self.dataset.paths[self.order[place]]
        try:
            if self.seeds is None:
                return preprocess.picture(path, self.size, self.dataset.channels)
            random = np.random.default_rng([*self.seeds, place])
            image = augment.random_resized_crop(preprocess.decode(path), self.size, random)
            return image[:, ::-1] if self.dataset.flip and random.random() < 0.5 else image
        except DataError as error:
            # Returned instead of raised, because a DataLoader would bury the sentence in a worker's traceback.
            return error


def _together(pictures: list[Picture | DataError]) -> NDArray[np.uint8] | DataError:
    for picture in pictures:
        if isinstance(picture, DataError):
            return picture
    return np.stack(pictures)  # type: ignore[arg-type]
