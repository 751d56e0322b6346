"""Numbers, names and lists as commands and reports show them."""

from collections.abc import Sequence
from unicodedata import category


def shorten(name: str, width: int) -> str:
    """Shorten to ``width`` characters by leaving out the middle.  The end, which tells layers apart, keeps more than
    the beginning."""
    if len(name) <= width:
        return name
    head = (width - 1) // 3
    return f"{name[:head]}…{name[len(name) - (width - 1 - head) :]}"


LONGEST_QUOTE = 200


def quoted(value: object) -> str:
    """The ``repr`` in at most 200 characters, because a value from a file may have any length."""
    try:
        return shorten(repr(value), LONGEST_QUOTE)
    except ValueError:  # Python does not write such numbers in decimals
        return "a number of thousands of digits"


def visible(text: str) -> str:
    """Escape control characters, so that a name from a file cannot move the cursor or change colours."""
    return "".join(repr(each)[1:-1] if category(each) in ("Cc", "Cs") else each for each in text)


def printable(name: str) -> str:
    """Replace the bytes of a file name that are not UTF-8 with ``?``, because no font or page can show them."""
    return name.encode("utf-8", "replace").decode()


def as_shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "–"


def as_count(value: int) -> str:
    """Three digits and a unit; – for 0."""
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
    return f"{number:,} {word}{'s' * (number != 1)}"


MOST_NAMED = 4


def listed(named: Sequence[str], of: int = 0) -> str:
    """The first few names and the number of others; ``all runs`` if there are several and ``named`` has all of them."""
    if len(named) == of > 1:
        return "all runs"
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return ", ".join([*named[:MOST_NAMED], *more])


def as_range(values: Sequence[float], factor: float, unit: str, digits: int = 1) -> str:
    """The range from the smallest to the largest value."""
    least, most = f"{factor * min(values):.{digits}f}", f"{factor * max(values):.{digits}f}"
    return f"{least} to {most}{unit}" if least != most else f"{least}{unit} in every layer"
