"""How faults are counted: how often one of a kind was tried, survived, lost."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Fault = Callable[..., AbstractContextManager[None]]
"""``with fault("a full disk", times=3):`` around what must hold after so many faults of this kind."""

_COUNTS: dict[str, list[int]] = {}
"""Kind of fault → tried, lost."""


@contextmanager
def counted(kind: str, times: int = 1) -> Iterator[None]:
    """A `Fault`."""
    row = _COUNTS.setdefault(kind, [0, 0])
    row[0] += times
    row[1] += times
    yield
    row[1] -= times  # reached only when nothing was raised


def counts() -> dict[str, list[int]]:
    """What was counted in this process."""
    return _COUNTS


def add(others: dict[str, list[int]]) -> None:
    """Count what another process counted."""
    for kind, row in others.items():
        own = _COUNTS.setdefault(kind, [0, 0])
        own[:] = [a + b for a, b in zip(own, row, strict=True)]


def table() -> list[str]:
    """The lines of what was counted, none if nothing was."""
    if not _COUNTS:
        return []
    width = max(map(len, _COUNTS))
    total = [sum(row[i] for row in _COUNTS.values()) for i in (0, 1)]
    rows = [*_COUNTS.items(), ("all", total)]
    return [
        f"{'fault':{width}}  {'tried':>9}  {'survived':>9}  {'lost':>5}",
        *(f"{kind:{width}}  {tried:>9,}  {tried - lost:>9,}  {lost:>5,}" for kind, (tried, lost) in rows),
    ]
