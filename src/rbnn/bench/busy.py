"""Whether something else used the machine during a benchmark, so that its times are unreliable."""

import os
from collections.abc import Iterable
from statistics import median

from rbnn.bench.race import Times
from rbnn.text import plural

SLACK = 0.5
"""How far the load average may exceed the free cores: it still contains what ran before the benchmark."""
LARGEST_SPREAD = 1.5
"""The largest usual mean time of a call, in multiples of its best time."""


def load_average() -> float | None:
    """The average number of processes that wanted to run in the last minute; None if the system does not count them."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):  # Windows has no such function
        return None


def why_unreliable(load: float | None, threads: int, times: Iterable[Times] = ()) -> str | None:
    """A sentence if the times of a benchmark are unreliable, otherwise None.

    ``load`` is the load average before the benchmark started.  The benchmark needs ``threads`` cores for itself.
    The spread of ``times`` is the median of all contenders, because some engines vary on an idle machine too.
    """
    cores = os.cpu_count() or 1
    if load is not None and load > max(cores - threads, 0) + SLACK:
        reason = (
            f"the load average was {load:.1f} when the benchmark started, and it needs {plural(threads, 'core')} of "
            f"{cores} for itself"
        )
    else:
        spreads = [each.mean / each.best for each in times]
        if not spreads or (spread := median(spreads)) <= LARGEST_SPREAD:
            return None
        reason = f"calls took {spread:.1f} times their best time on average"
    return f"The times are unreliable, because {reason}: stop other programs and measure again."
