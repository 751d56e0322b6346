"""`rbnn data`: have the files of a data set, verified."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from rbnn import data


@dataclass(frozen=True)
class Data:
    """Fetch a data set, or verify the files that are there.

    Example: rbnn data cifar10 --dir data
    """

    name: tyro.conf.Positional[str]
    """digits, cifar10, cifar100, fashion-mnist or image-folder."""
    dir: Path = Path("data")
    """Where data sets live: files are found under DIR/NAME or DIR, and written to DIR/NAME."""


def run(options: Data) -> None:
    """Have the set and say where it is."""
    found = data.obtain(options.name, options.dir)
    where = f" in {found.path}" if found.path else ""
    print(
        f"{found.name} {found.how}{where}: verified, "
        f"{found.train:,} training and {found.test:,} test pictures in {len(found.classes)} classes"
    )
