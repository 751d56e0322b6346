"""Count faults of each kind: tried, survived, lost."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Fault = Callable[..., AbstractContextManager[None]]
"""``with fault("a full disk", times=3):`` around the assertions that must hold after three such faults."""

_COUNTS: dict[str, list[int]] = {}
"""Kind of fault → tried, lost."""


@contextmanager
def counted(kind: str, times: int = 1) -> Iterator[None]:
    """A `Fault`."""
    row = _COUNTS.setdefault(kind, [0, 0])
    row[0] += times
    row[1] += times
    yield
    row[1] -= times  # reached only if nothing was raised


def counts() -> dict[str, list[int]]:
    """The counts of this process."""
    return _COUNTS


def add(others: dict[str, list[int]]) -> None:
    """Add the counts of another process."""
    for kind, row in others.items():
        own = _COUNTS.setdefault(kind, [0, 0])
        own[:] = [a + b for a, b in zip(own, row, strict=True)]


def table() -> list[str]:
    """The lines of the table, empty if nothing was counted."""
    if not _COUNTS:
        return []
    width = max(map(len, _COUNTS))
    total = [sum(row[i] for row in _COUNTS.values()) for i in (0, 1)]
    rows = [*_COUNTS.items(), ("all", total)]
    return [
        f"{'fault':{width}}  {'tried':>9}  {'survived':>9}  {'lost':>5}",
        *(f"{kind:{width}}  {tried:>9,}  {tried - lost:>9,}  {lost:>5,}" for kind, (tried, lost) in rows),
    ]
