"""`rbnn bench`: how fast the kernels of this machine are."""

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from rbnn import _core
from rbnn.errors import ConfigError
from rbnn.runtime.kernel_bench import SHAPES, Figure, measure, usable_kernels


@dataclass(frozen=True)
class Bench:
    """Measure the binary kernels: one 3×3 layer at a time, beside what this core reaches in registers alone.

    Example: rbnn bench --kernels
    """

    kernels: bool = False
    """Time binary convolutions by themselves, on every instruction set that this machine runs."""
    threads: int = 1
    """Threads that share the work."""
    seconds: float = 0.2
    """Spent on each layer; the best time counts."""
    json: bool = False
    """Print JSON instead of a table."""


def run(options: Bench) -> None:
    """Measure and print."""
    if not options.kernels:
        raise ConfigError("nothing to measure: rbnn bench --kernels times the binary kernels")
    if not (0 < options.seconds <= 60 and 1 <= options.threads <= 1024):
        raise ConfigError("seconds must be above 0 and at most 60, threads 1 to 1024")
    figures = []
    for name in usable_kernels():
        limit = _core.popcount_limit(name, options.seconds)
        figures += [measure(name, *shape, limit, options.threads, options.seconds) for shape in SHAPES]
    if options.json:
        print(json.dumps([asdict(figure) | {"share": figure.share} for figure in figures], indent=1))
    else:
        Console().print(_table(figures, options.threads))


def _table(figures: list[Figure], threads: int) -> Table:
    table = Table(title=f"3×3 binary layers, everything fused, {threads} thread{'s' * (threads > 1)}")
    table.add_column("kernels")
    for heading in ("channels @ side", "ms", "GMAC/s", "limit of one core", "share"):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(
            figure.kernels,
            f"{figure.channels} @ {figure.side}",
            f"{figure.milliseconds:.3f}",
            f"{figure.gmacs:.0f}",
            f"{figure.limit:.0f}",
            f"{figure.share:.0%}",
        )
    return table
