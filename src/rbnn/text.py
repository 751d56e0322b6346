"""Numbers, names and lists as commands and reports show them."""

from collections.abc import Sequence
from unicodedata import category


def shorten(name: str, width: int) -> str:
    """At most ``width`` characters: the middle goes, and the end, which tells layers apart, keeps more than the
    beginning."""
    if len(name) <= width:
        return name
    head = (width - 1) // 3
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


LONGEST_QUOTE = 200


def quoted(value: object) -> str:
    """As Python writes it, in at most 200 characters: what a file holds is as long as its maker wanted."""
    return shorten(repr(value), LONGEST_QUOTE)


def visible(text: str) -> str:
    """Control characters as Python writes them: a name out of a file moves no cursor and changes no colour."""
    return "".join(repr(each)[1:-1] if category(each) in ("Cc", "Cs") else each for each in text)


def printable(name: str) -> str:
    """With ? for the bytes of a file's name that are not UTF-8: no font and no page can show them."""
    return name.encode("utf-8", "replace").decode()


def as_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "–"


def as_count(value: int) -> str:
    """Three digits and a unit; – for none."""
    if not value:
        return "–"
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            number = value / size
            return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"
    return str(value)


def as_size(size: int) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"


def plural(number: int, word: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{number} {word}{'s' * (number != 1)}"


MOST_NAMED = 4


def listed(named: Sequence[str], of: int = 0) -> str:
    """The first few, and how many more there are; ``all runs`` where they are all of several."""
    if len(named) == of > 1:
        return "all runs"
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return ", ".join([*named[:MOST_NAMED], *more])


def as_range(values: Sequence[float], factor: float, unit: str, digits: int = 1) -> str:
    """From the least to the largest."""
    least, most = f"{factor * min(values):.{digits}f}", f"{factor * max(values):.{digits}f}"
    return f"{least} to {most}{unit}" if least != most else f"{least}{unit} in every layer"
