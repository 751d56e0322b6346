"""Time several functions that do the same thing in turns, so that a disturbance of the machine affects all of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median

TURN = 0.01
"""Seconds for which a contender is timed before the next one has its turn; one call if that takes longer."""
PAUSE = 0.003
"""Seconds between turns, because the threads of some engines keep spinning for a while after a call."""


@dataclass(frozen=True)
class Times:
    """Seconds of one call."""

    best: float
    median: float
    mean: float
    calls: int


def race(contenders: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, Times]:
    """Time each contender for about ``seconds``, in at least three turns.  The first call of a turn does not count,
    because the other contenders have left their own data in the caches."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():  # some engines choose their algorithms during the first call
        call()
    begin, turns = time.perf_counter(), 0
    while turns < 3 or time.perf_counter() - begin < seconds * len(contenders):
        for name, call in contenders.items():
            time.sleep(PAUSE)
            call()
            times[name] += _turn(call)
        turns += 1
    return {name: Times(min(each), median(each), fmean(each), len(each)) for name, each in times.items()}


def _turn(call: Callable[[], object]) -> list[float]:
    found: list[float] = []
    while sum(found) < TURN:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found
