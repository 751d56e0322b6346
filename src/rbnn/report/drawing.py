"""The style of figures, and SVG that takes its colours from the page that contains it."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from rbnn.text import shorten

# Middle tones that are readable on white and on black and distinguishable for colour-blind readers.  The page has a
# light and a dark shade of each (its --run-0 … variables).
RUNS = ("#2b7fbd", "#d1601f", "#16946f", "#b15aa0", "#a8870f", "#7a7f87")
STEPS = (RUNS[3], RUNS[0], RUNS[2], RUNS[4], RUNS[1])
"""From the start of training to its end."""
INK, GRID = "#75797f", "#9fa3a8"
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
"""For more runs than colours."""

WIDTH = 14
"""Characters of a name next to a line."""

SIZE = 4.8, 2.9
"""In inches: as wide as a phone, so that letters keep their size."""
LINE = 0.235
"""Height in inches for each name next to a line; the axis below takes a part of the drawing's height."""


def height(names: int) -> float:
    """Height in inches of a drawing with this many names next to its lines."""
    return max(SIZE[1], LINE * (names + 1))


STYLE: Any = {
    "svg.hashsalt": "rbnn",
    "text.parse_math": False,  # a run's name may contain a dollar sign
    "font.size": 10.2,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.labelsize": 10.2,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def colour(run: int) -> str:
    return RUNS[run % len(RUNS)]


def dash(run: int) -> Any:
    return DASHES[run // len(RUNS) % len(DASHES)]


def crowded(runs: Sequence[object]) -> bool:
    """Whether there are more runs than colours; figures then leave out secondary lines."""
    return len(runs) > len(RUNS)


@contextmanager
def _style(**more: Any) -> Iterator[None]:
    with matplotlib.rc_context(STYLE | more), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # a name with characters that the font does not have
        yield


@contextmanager
def drawing(
    width: float = SIZE[0], height: float = SIZE[1], layout: Literal["constrained"] | None = "constrained"
) -> Iterator[Drawing]:
    """An empty drawing in our style.  It needs no display."""
    with _style():
        yield Drawing(figsize=(width, height), layout=layout)


def name_lines(axes: Axes, ends: Sequence[tuple[float, str, str, Any]]) -> None:
    """Write (y, text, colour, dash) to the right of the ends of lines, moved apart if they would overlap.  A short line
    leads to each."""
    low, high = axes.get_ylim()
    to_axes = axes.transAxes.inverted()
    least = LINE / axes.get_figure(root=True).get_figheight()  # type: ignore[union-attr]
    places = sorted(
        ((float(to_axes.transform(axes.transData.transform((0, end[0])))[1]), end) for end in ends),
        key=lambda place: place[0],
    )
    heights = [place[0] for place in places]
    for index in range(1, len(heights)):
        heights[index] = max(heights[index], heights[index - 1] + least)
    heights[-1:] = [min(height, 1.0) for height in heights[-1:]]
    for index in range(len(heights) - 2, -1, -1):
        heights[index] = min(heights[index], heights[index + 1] - least)
    for height, (true, (_, text, shade, line)) in zip(heights, places, strict=True):
        axes.plot([1.0, 1.06], [true, height], transform=axes.transAxes, clip_on=False, scalex=False, scaley=False,
                  color=shade, linestyle=line, linewidth=1.1, marker="")  # fmt: skip
        axes.text(1.075, height, shorten(text, WIDTH), color=shade, transform=axes.transAxes, va="center", ha="left")
    axes.set_ylim(low, high)


def as_svg(made: Drawing, letters: str = "path") -> str:
    """A standalone SVG.  ``letters``: ``path`` looks the same everywhere, ``none`` uses the reader's fonts."""
    buffer = io.StringIO()
    with _style(**{"svg.fonttype": letters}):
        made.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def as_png(made: Drawing) -> bytes:
    """On a white background, sharp enough for print."""
    buffer = io.BytesIO()
    with _style():
        made.savefig(buffer, format="png", dpi=200, facecolor="white")
    return buffer.getvalue()


def inline(made: Drawing, key: str, label: str) -> str:
    """An ``<svg>`` for a page: colours are the page's variables, ids contain ``key``, and nothing links outside."""
    text = as_svg(made, letters="none")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text).replace("xlink:href", "href")
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{key}-", text)
    for index, shade in enumerate(RUNS):
        text = text.replace(shade, f"var(--run-{index})")
    text = text.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', text).group(1))  # type: ignore[union-attr]
    label = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    opening = f'<svg role="img" aria-label="{label}" style="max-width:{width * 1.6:.0f}px"'
    return re.sub(r'^<svg( (?:width|height)="[^"]*")*', lambda _: opening, text)
