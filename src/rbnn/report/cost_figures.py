"""Which layers take the bytes, the multiply-accumulates and the time of a deployed network."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from rbnn.costs.model import Costs
from rbnn.report.analysed import Timed
from rbnn.report.drawing import INK, RUNS, SIZE, drawing
from rbnn.report.figures import Figure
from rbnn.text import shorten

ONE_BIT, FLOAT, BESIDE = RUNS[3], RUNS[5], RUNS[4]
LINE = 0.19
"""Inches per bar."""


def cost_figure(key: str, names: str, found: Costs) -> Figure:
    """Share of bytes and MACs of each layer.  Batch norms, which become affines, are one entry."""
    parts = [
        (layer.name, layer.bits, layer.bytes, layer.binary_macs + layer.float_macs)
        for layer in found.layers
        if layer.kind != "batch norm"
    ]
    norms = [layer.bytes for layer in found.layers if layer.kind == "batch norm"]
    if norms:
        parts.append((f"{len(norms)} batch norms", 32, sum(norms), 0))
    total, macs = found.bytes or 1, (found.binary_macs + found.float_macs) or 1

    def draw() -> Drawing:
        with drawing(SIZE[0], 0.9 + LINE * len(parts)) as made:
            left, right = made.subplots(1, 2, sharey=True)
            shades = [ONE_BIT if bits == 1 else FLOAT for _, bits, _, _ in parts]
            _bars(left, [name for name, *_ in parts], [100 * size / total for _, _, size, _ in parts], shades)
            _bars(right, [name for name, *_ in parts], [100 * used / macs for *_, used in parts], shades)
            left.set_title("% of the bytes", fontsize=10.5)
            right.set_title("% of the MACs", fontsize=10.5)
            _name_kinds(right, (("1-bit", ONE_BIT), ("float", FLOAT)))
        return made

    caption = (
        f"Share of each layer in the {found.bytes:,} bytes of packed weights and the {macs:,} multiply-accumulates "
        f"(MACs, for one image) of {names}. Long bars of float layers keep it from being smaller and faster."
    )
    columns = "layer", "bits", "bytes", "macs"
    return Figure(key, f"Size and work of {names}", caption, columns, parts, draw)


def time_figure(key: str, timed: Timed) -> Figure:
    """Time of each layer of a packed network, for its weights and for other work."""
    rows: list[tuple[Any, ...]] = [
        (layer, operation.name, operation.kind, operation.bits, 1000 * operation.seconds)
        for layer, operations in timed.layers().items()
        for operation in operations
    ]

    def draw() -> Drawing:
        names = list(timed.layers())
        with drawing(SIZE[0], 0.7 + LINE * len(names)) as made:
            axes = made.subplots()
            totals = []
            for place, operations in enumerate(timed.layers().values()):
                start = 0.0
                for operation in sorted(operations, key=lambda operation: operation.bits == 0):
                    shade = BESIDE if operation.bits == 0 else ONE_BIT if operation.bits == 1 else FLOAT
                    axes.barh(place, 1e6 * operation.seconds, left=start, color=shade, height=0.72)
                    start += 1e6 * operation.seconds
                totals.append(start)
            _finish(axes, names, totals)
            axes.set_xlabel("microseconds")
            _name_kinds(
                axes, (("signs, pools, shortcuts", BESIDE), ("float weights", FLOAT), ("1-bit weights", ONE_BIT))
            )
        return made

    caption = (
        f"Time of each layer of {timed.name} for one image on one thread of this machine, with the {timed.kernels} "
        f"kernels, as the minimum of many runs: {timed.milliseconds:.3f} ms in total. The file has "
        f"{timed.costs.file_bytes:,} bytes. Bits speed up only the 1-bit work."
    )
    columns = "layer", "operation", "kind", "bits", "milliseconds"
    return Figure(key, f"Time of {timed.name}", caption, columns, rows, draw)


def _bars(axes: Axes, names: Sequence[str], values: Sequence[float], shades: Sequence[str]) -> None:
    axes.barh(range(len(names)), values, color=shades, height=0.72)
    _finish(axes, names, values)


def _finish(axes: Axes, names: Sequence[str], values: Sequence[float]) -> None:
    """Put names to the left of the bars and numbers at their ends."""
    places = range(len(names))
    axes.set_yticks(places, [shorten(name, 18) for name in names], fontsize=9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False)
    axes.tick_params(axis="y", length=0)
    largest = max(values, default=0) or 1.0
    axes.set_xlim(0, 1.22 * largest)
    for place, value in zip(places, values, strict=True):
        if value:
            axes.text(value + 0.02 * largest, place, _brief(value), va="center_baseline", fontsize=8.5, color=INK)


def _brief(value: float) -> str:
    return "<0.01" if value < 0.01 else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _name_kinds(axes: Axes, kinds: Sequence[tuple[str, str]]) -> None:
    """Put the names of the colours into the lower right corner, one below the other."""
    for index, (name, shade) in enumerate(kinds):
        axes.annotate(
            name, (1, 0), (-2, 2 + 13 * index), xycoords="axes fraction", textcoords="offset points",
            color=shade, ha="right", va="bottom",
        )  # fmt: skip
