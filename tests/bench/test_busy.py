"""Whether a benchmark says that other programs disturbed it."""

import os

import pytest

from rbnn.bench.busy import load_average, why_unreliable
from rbnn.bench.race import Times, race

QUIET = Times(best=1.0, median=1.1, mean=1.2, calls=50)
DISTURBED = Times(best=1.0, median=1.1, mean=2.0, calls=50)  # some calls waited for a core


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


@pytest.mark.parametrize(("load", "threads"), [(0.0, 1), (3.4, 1), (1.2, 3), (0.4, 4), (0.4, 8), (None, 1)])
def test_a_core_for_each_thread_is_enough(load: float | None, threads: int) -> None:
    assert why_unreliable(load, threads, [QUIET]) is None


@pytest.mark.parametrize(
    ("load", "threads", "needs"), [(3.6, 1, "1 core of 4"), (1.6, 3, "3 cores of 4"), (0.6, 4, "4 cores of 4")]
)
def test_other_programs_on_the_cores_that_the_benchmark_needs(load: float, threads: int, needs: str) -> None:
    said = why_unreliable(load, threads, [QUIET])
    assert said == (
        f"The times are unreliable, because the load average was {load} when the benchmark started, and it needs "
        f"{needs} for itself: stop other programs and measure again."
    )


def test_times_that_spread_widely_in_most_engines() -> None:
    assert why_unreliable(0.0, 1, [QUIET, QUIET, DISTURBED]) is None  # a single engine may vary
    said = why_unreliable(0.0, 1, [QUIET, DISTURBED, DISTURBED])
    assert said is not None
    assert "because calls took 2.0 times their best time on average: stop" in said
    assert why_unreliable(None, 1, [DISTURBED]) == said


def test_a_system_without_a_load_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getloadavg")
    assert load_average() is None


def test_the_mean_of_a_race_contains_the_calls_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([9.0, 9.0, 1.0, 9.0, 2.0, 9.0, 6.0])  # the very first call and the first of each turn are not counted
    clock = [0.0]

    def call() -> None:
        clock[0] += next(waits)

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert race({"only": call}, 0.0) == {"only": Times(best=1.0, median=2.0, mean=3.0, calls=3)}
