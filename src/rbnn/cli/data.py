"""`rbnn data`: download a data set, or verify its files."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from rbnn import data


@dataclass(frozen=True)
class Data:
    """Download a data set, or verify the files that are already there.

    Example: rbnn data cifar10 --dir data
    """

    name: tyro.conf.Positional[str]
    """digits, cifar10, cifar100, fashion-mnist or image-folder."""
    dir: Path = Path("data")
    """Directory of the data sets. Files are read from DIR/NAME or DIR, and written to DIR/NAME."""


def run(options: Data) -> None:
    """Get the data set and say where it is."""
    found = data.obtain(options.name, options.dir)
    where = f" in {found.path}" if found.path else ""
    print(
        f"{found.name} {found.how}{where}: verified, "
        f"{found.train:,} training and {found.test:,} test images in {len(found.classes)} classes"
    )
