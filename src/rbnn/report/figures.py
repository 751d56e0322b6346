"""The figures of a report: what each shows, its numbers, and how it is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from rbnn.report.analysed import Analysed
from rbnn.report.drawing import INK, RUNS, SIZE, STEPS, WIDTH, colour, crowded, dash, drawing, height, name_lines
from rbnn.report.gradients import GRID as POINTS
from rbnn.report.gradients import PROGRESS, Gradient
from rbnn.report.layers import EDGES, Layer
from rbnn.report.seeds import Points, band
from rbnn.text import shorten

End = tuple[float, str, str, Any]
"""The end of a line: its height, name, colour and dashes."""
HIGHEST = 4.0
"""Upper end of the axis of F′; a narrow peak above it is labelled."""


@dataclass(frozen=True)
class Figure:
    """One figure."""

    key: str
    """Name of its files."""
    title: str
    caption: str
    """What is shown, what is good, which figure of the paper."""
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Its numbers, unrounded."""
    draw: Callable[[], Drawing]
    panels: tuple[tuple[str, Callable[[], Drawing]], ...] = ()
    """Small drawings that the page shows instead of the large one: (title, drawing)."""


def curve(runs: Sequence[Analysed], key: str, title: str, unit: str, caption: str, number: str,
          second: tuple[str, str] | None = None) -> Figure:  # fmt: skip
    """A number of the log over the epochs and, if there is room, a dotted ``second`` one: (number, its caption)."""
    runs = [each for each in runs if each.run.epochs]
    drawn = [number, second[0]] if second else [number]
    rows = [
        (each.name, entry["epoch"] + 1, *(entry[number] for number in drawn))
        for each in runs
        for entry in each.run.epochs
    ]
    together = by_row(runs)
    if crowded(together):
        second = None

    def over_epochs(some: Sequence[Analysed], key: str) -> list[Points]:
        return [[(entry["epoch"] + 1, entry[key]) for entry in each.run.epochs] for each in some]

    def draw() -> Drawing:
        with drawing(SIZE[0], height(len(together))) as made:
            axes = made.subplots()
            ends = _plot_rows(axes, together, lambda some: over_epochs(some, number), linewidth=2.0)
            if second:
                for some in together:
                    style: Any = {"color": colour(some[0].number), "linestyle": (0, (1, 1.5)), "linewidth": 1.2}
                    _plot(axes, over_epochs(some, second[0]), shaded=False, **style)
            _over_epochs(axes, unit)
            name_lines(axes, ends)
        return made

    words = " ".join([caption, *([second[1]] if second else []), *_about_bands(runs)])
    return Figure(key, title, words, ("run", "epoch", *drawn), rows, draw)


def by_row(runs: Sequence[Analysed]) -> list[list[Analysed]]:
    """Runs grouped by everything except their seed."""
    rows: dict[int, list[Analysed]] = {}
    for each in runs:
        rows.setdefault(each.number, []).append(each)
    return list(rows.values())


def _about_bands(runs: Sequence[Analysed]) -> list[str]:
    several = len(by_row(runs)) < len(runs)
    said = "Runs that differ only in their seed are one line, their mean, with a band from the lowest to the highest."
    return [said] if several else []


def _plot(axes: Axes, lines: list[Points], shaded: bool = True, **style: Any) -> float:
    """Plot the mean of the lines, with a band if there are several; returns the end of the mean."""
    places, means, least, most = zip(*band(lines), strict=True)
    axes.plot(places, means, **{"marker": "o" if len(places) == 1 else None} | style)
    if len(lines) > 1 and shaded:
        axes.fill_between(places, least, most, color=style["color"], alpha=0.18, linewidth=0)
    return float(means[-1])


def _plot_rows(
    axes: Axes, together: list[list[Analysed]], lines: Callable[[list[Analysed]], list[Points]], **style: Any
) -> list[End]:
    """Plot the lines of each row in its colour; returns their ends for ``name_lines``."""
    ends = []
    for some in together:
        shade, line = colour(some[0].number), dash(some[0].number)
        if drawn := [points for points in lines(some) if points]:
            ends.append((_plot(axes, drawn, color=shade, linestyle=line, **style), some[0].row, shade, line))
    return ends


def spread(runs: Sequence[Analysed], key: str, number: str, title: str, unit: str, caption: str, factor: float = 1.0,
           first: int = 1, limits: tuple[float, float] | None = None) -> Figure:  # fmt: skip
    """A number of the layers over the epochs from ``first`` on: their mean and, if there is room, their range."""
    series = [(each, [point for point in each.over_training(number) if point[0] >= first]) for each in runs]
    series = [(each, points) for each, points in series if points]
    rows = [
        (each.name, entry["epoch"] + 1, layer, figures[number])
        for each, _ in series
        for entry in each.run.epochs
        if entry["epoch"] + 1 >= first
        for layer, figures in entry["layers"].items()
        if number in figures
    ]

    together = by_row([each for each, _ in series])
    of_run = {each.name: points for each, points in series}

    def points(some: Sequence[Analysed]) -> list[Points]:
        """Each point of a layer or seed is a separate line."""
        seen = [(epoch, value) for each in some for epoch, values in of_run[each.name] for value in values]
        return [[(float(epoch), factor * value)] for epoch, value in seen]

    def draw() -> Drawing:
        with drawing(SIZE[0], height(len(together))) as made:
            axes = made.subplots()
            ends = _plot_rows(axes, together, points, shaded=not crowded(together), linewidth=2.0)
            _over_epochs(axes, unit)
            if limits is not None:
                axes.set_ylim(limits)
            name_lines(axes, ends)
        return made

    of = "layers and seeds" if len(together) < len(series) else "layers"
    lines = f"Mean of the {of}."
    if not crowded(together):
        lines = f"Line: mean of the {of}; band: from the lowest to the highest."
    return Figure(key, title, f"{caption} {lines}", ("run", "epoch", "layer", number), rows, draw)


def _over_epochs(axes: Axes, unit: str) -> None:
    axes.set_xlabel("epoch")
    axes.set_ylabel(unit)
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    axes.margins(x=0.02)


def per_layer(runs: Sequence[Analysed], key: str, value: Callable[[Layer], float | None], title: str, unit: str,
              caption: str, reference: tuple[float, str] | None = None, logarithmic: bool = False,
              factor: float = 1.0, bottom: float | None = None) -> Figure:  # fmt: skip
    """A measure of each binary layer, one line per run.  ``reference`` is a value to compare with and its name."""
    names = list(dict.fromkeys(layer.name for each in runs for layer in each.layers))
    of_run = {
        each.name: [(layer.name, number) for layer in each.layers if (number := value(layer)) is not None]
        for each in runs
    }
    rows = [(name, *point) for name, points in of_run.items() for point in points]
    together = by_row(runs)

    def over_layers(some: Sequence[Analysed]) -> list[Points]:
        return [[(float(names.index(name)), factor * number) for name, number in of_run[each.name]] for each in some]

    def draw() -> Drawing:
        with drawing(SIZE[0], height(len(together) + 1) + 0.5) as made:
            axes = made.subplots()
            ends = list[End]()
            if reference is not None:
                dotted = (0, (1, 2))
                axes.axhline(factor * reference[0], color=INK, linestyle=dotted, linewidth=1.2)
                ends.append((factor * reference[0], reference[1], INK, dotted))
            ends += _plot_rows(axes, together, over_layers, marker="o")
            if bottom is not None:
                top = axes.get_ylim()[1]
                axes.set_ylim(bottom, top + 0.03 * (top - bottom))
            if logarithmic:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.10g}"))
                axes.yaxis.set_minor_formatter(NullFormatter())
            _over_layers(axes, names)
            axes.set_ylabel(unit)
            name_lines(axes, ends)
        return made

    return Figure(key, title, " ".join([caption, *_about_bands(runs)]), ("run", "layer", key), rows, draw)


def _over_layers(axes: Axes, names: list[str]) -> None:
    every = -(-len(names) // 24)
    places = range(0, len(names), every)
    axes.set_xticks(
        places, [shorten(_without_prefix(names)[place], WIDTH) for place in places], rotation=90, fontsize=8.5
    )
    axes.margins(x=0.03)


def _without_prefix(names: list[str]) -> list[str]:
    """The names without their first part, if all share it."""
    first = {name.partition(".")[0] for name in names}
    return [name.partition(".")[2] or name for name in names] if len(first) == 1 else names


def histograms(runs: Sequence[Analysed]) -> Figure:
    """Weights before binarization: a panel per layer with all runs, or per run with all layers if there are many
    runs."""
    runs = [each for each in runs if any(layer.histogram is not None for layer in each.layers)]
    together = by_row(runs)
    names = list(dict.fromkeys(layer.name for each in runs for layer in each.layers))
    titles = dict(zip(names, _without_prefix(names), strict=True))
    rows: list[tuple[Any, ...]] = []
    panels: dict[str, list[tuple[Analysed, NDArray[np.float64]]]] = {}
    for each in runs:
        for layer in each.layers:
            if layer.histogram is not None:
                title = each.name if crowded(together) else titles[layer.name]
                panels.setdefault(title, []).append((each, layer.histogram))
                bins = zip(EDGES[:-1].tolist(), EDGES[1:].tolist(), layer.histogram.tolist(), strict=True)
                rows += [(each.name, layer.name, *each_bin) for each_bin in bins]

    def panel(axes: Axes, title: str) -> None:
        for each, counts in panels[title]:
            if len(runs) == 1:  # several would hide each other
                axes.stairs(counts, EDGES, color=colour(each.number), fill=True, alpha=0.18, linewidth=0)
            axes.stairs(counts, EDGES, color=colour(each.number), linewidth=0.6 if crowded(together) else 1.4)
        axes.set_xlim(-3, 3)
        axes.set_xticks([-2, -1, 0, 1, 2], ["", "−1", "0", "+1", ""])
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False)
        axes.set_title(shorten(title, 17), fontsize=10.5, color=INK, pad=3)

    def small(title: str) -> Callable[[], Drawing]:
        def draw() -> Drawing:
            with drawing(2.0, 1.4, layout=None) as made:
                panel(made.add_axes((0.02, 0.17, 0.96, 0.68)), title)
            return made

        return draw

    def draw() -> Drawing:
        columns = 6 if len(panels) > 8 else 4
        lines = -(-len(panels) // columns) or 1
        with drawing(1.5 * columns, 1.3 * lines + 0.3) as made:
            grid = made.subplots(lines, columns, squeeze=False)
            for axes, title in zip_longest(grid.flat, panels):
                if title is not None:
                    panel(axes, title)
                else:
                    axes.set_axis_off()
            if not crowded(together):
                handles = [axes.plot([], [], color=colour(some[0].number), label=some[0].row)[0] for some in together]
                made.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, labelcolor="linecolor")
        return made

    caption = (
        "Distribution of the weights of each layer just before sign: w̃ divided by its mean magnitude λ*, so that the "
        "bits are at ±1. Two separate peaks at −1 and +1 with nothing at 0 lose little when they become bits; one peak "
        "around 0 loses much. Figure 6 of the paper: XNOR-Net has one peak, RBNN two."
    )
    title = "Histogram of each run, with a line per layer" if crowded(together) else "Histogram of each layer"
    columns = "run", "layer", "low", "high", "share"
    return Figure("histograms", title, caption, columns, rows, draw, tuple((name, small(name)) for name in panels))


def approximation(key: str, gradient: Gradient, used_by: str) -> Figure:
    """F and F' of an estimator at several values of e/E."""
    phases = gradient.phases
    rows = [
        (step, float(x), float(value), float(slope))
        for _, step in phases
        for x, value, slope in zip(POINTS, gradient.function(step), gradient.derivative(step), strict=True)
    ]

    def draw() -> Drawing:
        with drawing() as made:
            left, right = made.subplots(1, 2)
            left.plot([POINTS[0], 0, 0, POINTS[-1]], [-1, -1, 1, 1], color=INK, linewidth=1, linestyle=(0, (1, 2)))
            for index, (first, step) in enumerate(phases):
                shade = STEPS[PROGRESS.index(step)] if gradient.changes else RUNS[0]
                slopes = gradient.derivative(step)
                left.plot(POINTS, gradient.function(step), color=shade)
                right.plot(POINTS, slopes, color=shade)
                if slopes.max() > HIGHEST:
                    right.text(0.18, HIGHEST, f"up to {slopes.max():.1f}", color=shade, va="top", fontsize=9)
                if gradient.changes:
                    when = f"{step:g}" if first == step else f"{first:g} to {step:g}"
                    left.text(-1.95, 2.1 - 0.36 * index, f"e/E = {when}", color=shade, va="top", fontsize=9)
            left.set_ylim(-2.2, 2.2)
            right.set_ylim(min(0.0, *(row[3] for row in rows)) - 0.08, min(HIGHEST, max(row[3] for row in rows)) * 1.04)
            left.set_title("F(x), in place of sign", fontsize=10.5)
            right.set_title("F′(x), its derivative", fontsize=10.5)
            for axes in (left, right):
                axes.set_xlabel("x")
        return made

    start, end = gradient.sharpness_and_gain(0.0)[0], gradient.sharpness_and_gain(1.0)[0]
    moves = (
        f"From the first epoch to the last (e/E from 0 to 1) t grows from {start:g} to {end:g}: F approaches sign, and "
        "F′, which passes gradients, becomes high and narrow. A wide F′ lets more gradients through early in training; "
        "a narrow F′ is close to sign later but gives no gradient to values far from 0."
        if gradient.changes
        else "It stays the same throughout training."
    )
    if gradient.floored:
        until = gradient.low / (gradient.low - gradient.high)  # where 10^(low + e/E (high − low)) is 1
        moves += f" Floored means t = max(t, 1) and k = 1: t stays 1 until e/E = {until:.2f}."
    paper = " Figure 5 of the paper." if gradient.estimator == "training-aware" and not gradient.floored else ""
    caption = f"The estimator {gradient.estimator}, used by {used_by}. {moves} Dotted: sign.{paper}"
    columns = "progress", "x", "F", "F_prime"
    title = f"Gradient of sign: {gradient.estimator}{', floored' * gradient.floored}"
    return Figure(key, title, caption, columns, rows, draw)
