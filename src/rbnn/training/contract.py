"""What images a network expects and what its outputs mean."""

from dataclasses import dataclass

from rbnn.data import FolderSet, ImageSet
from rbnn.errors import ConfigError
from rbnn.text import quoted

LARGEST_SIDE, MOST_CHANNELS = 1024, 4
"""Limits of the image size in a checkpoint, which may come from an untrusted file and decides the network's size."""
LEAST_STD, LARGEST_MOMENT = 1e-6, 1e6
"""Limits of the mean and standard deviation of a channel, whose values are between 0 and 1 or 0 and 255."""


@dataclass(frozen=True)
class InputContract:
    """What images a network expects and what its outputs mean."""

    channels: int
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not (1 <= self.channels <= MOST_CHANNELS and 1 <= self.image_size <= LARGEST_SIDE):
            raise ConfigError(
                f"images must have 1 to {MOST_CHANNELS} channels and a size of 1 to {LARGEST_SIDE}, "
                f"got {quoted(self.channels)} and {quoted(self.image_size)}"
            )
        if not len(self.mean) == len(self.std) == self.channels or not self.classes:
            raise ConfigError("the input contract must have a mean and a std per channel and the names of the classes")
        moments = all(abs(value) <= LARGEST_MOMENT for value in (*self.mean, *self.std))  # nor NaN
        if not moments or not all(value >= LEAST_STD for value in self.std):
            raise ConfigError(f"images cannot be normalised with mean {quoted(self.mean)} and std {quoted(self.std)}")

    @classmethod
    def of(cls, dataset: ImageSet | FolderSet, image_size: int) -> "InputContract":
        return cls(dataset.channels, image_size or dataset.image_size, dataset.mean, dataset.std, dataset.classes)

    def difference(self, now: "InputContract") -> str | None:
        """The first difference from ``now``, such as ``"3 classes, not 2"``, or None."""
        for key in ("channels", "image_size", "mean", "std"):
            if getattr(self, key) != getattr(now, key):
                return f"{key} = {getattr(self, key)}, not {getattr(now, key)}"
        if self.classes == now.classes:
            return None
        if len(self.classes) != len(now.classes):
            return f"{len(self.classes)} classes, not {len(now.classes)}"
        place = next(i for i, (a, b) in enumerate(zip(self.classes, now.classes, strict=True)) if a != b)
        order = "the same classes in another order: " if sorted(self.classes) == sorted(now.classes) else ""
        return f"{order}class {place} is {quoted(self.classes[place])}, not {quoted(now.classes[place])}"
