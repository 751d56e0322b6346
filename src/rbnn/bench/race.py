"""Times of several things that do the same, measured in turns: what disturbs the machine disturbs all of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

TURN = 0.01
"""Seconds that each is timed before the next has its turn, or one call where that takes longer."""
PAUSE = 0.003
"""Seconds between turns: the threads of some engines go on spinning for a while after their call."""


@dataclass(frozen=True)
class Times:
    """Seconds of one call."""

    best: float
    median: float
    calls: int


def race(contenders: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, Times]:
    """About ``seconds`` for each contender, at least three turns; the first call of a turn is not counted, since
    the others have left their own data in the caches."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():  # the first calls of some engines still choose their algorithms
        call()
    begin, turns = time.perf_counter(), 0
    while turns < 3 or time.perf_counter() - begin < seconds * len(contenders):
        for name, call in contenders.items():
            time.sleep(PAUSE)
            call()
            times[name] += _turn(call)
        turns += 1
    return {name: Times(min(each), median(each), len(each)) for name, each in times.items()}


def _turn(call: Callable[[], object]) -> list[float]:
    found: list[float] = []
    while sum(found) < TURN:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found
