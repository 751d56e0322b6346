"""Small plots of the derivatives that replace that of sign, computed with the library's own estimators.

They are inline SVG in the text colour of the page, so they follow its light or dark scheme.
"""

from collections.abc import Callable, Sequence
from html import escape

import numpy as np
import torch
from numpy.typing import NDArray

from rbnn.functional import ESTIMATORS, as_tensor
from rbnn.methods import create_method, method_options
from rbnn.methods._method import T_MAX, T_MIN
from rbnn.report.gradients import GRID, PROGRESS, Gradient, gradients_of

Curve = tuple[str, NDArray[np.float64]]

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 300, 190, 34, 26, 28
TALLEST = 4.0
"""The upper end of the axis.  Sharper derivatives are cut off there."""


def of_method(name: str) -> str:
    """Plot the derivatives of a method, for the signs of weights and of activations."""
    found = gradients_of(name, method_options(name))
    panels = [(f"of the sign of {of}", _curves(gradient)) for of, gradient in found.items()]
    missing = {"weights", "activations"} - {word for of in found for word in of.split(" and ")}
    panels += [(f"of the sign of {of}", [("", _slope(name, of))]) for of in sorted(missing, reverse=True)]
    return _figure(panels, f"The derivative that {name} uses in place of that of sign")


def of_all() -> str:
    """Plot each estimator."""
    panels = [(name, _curves(Gradient(name, T_MIN, T_MAX))) for name in ESTIMATORS]
    return _figure(panels, "The estimators of the derivative of sign")


def _curves(gradient: Gradient) -> list[Curve]:
    """One curve per value of e/E, or a single curve if the derivative does not change."""
    shown = PROGRESS if gradient.changes else PROGRESS[:1]
    return [(f"e/E = {progress:g}" if gradient.changes else "", gradient.derivative(progress)) for progress in shown]


def _slope(name: str, of: str) -> NDArray[np.float64]:
    """The derivative of a method without a named estimator, by autograd."""
    x = torch.from_numpy(GRID.copy()).requires_grad_()
    method = create_method(name, x.detach().reshape(1, -1))
    used: Callable[[torch.Tensor], torch.Tensor] = (
        method.activation if of == "activations" else lambda w: as_tensor(method.weight(w))
    )
    (slope,) = torch.autograd.grad(used(x.reshape(1, -1)).sum(), x)
    return slope.numpy()


def _figure(panels: Sequence[tuple[str, list[Curve]]], label: str) -> str:
    drawings = "".join(_panel(title, curves) for title, curves in panels)
    said = ["Each plot shows the derivative as a function of the value whose sign is taken."]
    if any(name for _, curves in panels for name, _ in curves):
        said.append("e/E is the fraction of the training that is done.")
    if any(float(curve.max()) > TALLEST for _, curves in panels for _, curve in curves):
        said.append(f"Values above {TALLEST:g} are cut off.")
    return f'<div class="estimators" role="group" aria-label="{escape(label)}">{drawings}</div>\n\n{" ".join(said)}\n'


def _panel(title: str, curves: list[Curve]) -> str:
    top = min(TALLEST, max(1.2, *(float(curve.max()) for _, curve in curves)) * 1.08)
    low = min(0.0, *(float(curve.min()) for _, curve in curves)) * 1.08
    width, height = WIDTH - 8 - LEFT, HEIGHT - TOP - BOTTOM
    across = (GRID - GRID[0]) / (GRID[-1] - GRID[0]) * width

    def downwards(value: NDArray[np.float64] | float) -> NDArray[np.float64]:
        return np.asarray((top - value) / (top - low) * height)

    parts = [_text("title", LEFT, 14, title)]
    for tick in range(int(np.ceil(low)), int(top) + 1):
        y = TOP + float(downwards(tick))
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}h{width}"/>{_text("end", LEFT - 6, y + 4, f"{tick}")}')
    for tick in (-2, -1, 0, 1, 2):
        x = LEFT + (tick - GRID[0]) / (GRID[-1] - GRID[0]) * width
        parts.append(_text("middle", x, HEIGHT - 10, f"{tick}".replace("-", "−")))
    # The inner SVG clips what exceeds the axis.
    parts.append(f'<svg x="{LEFT}" y="{TOP}" width="{width}" height="{height}">')
    for number, (_, curve) in enumerate(curves):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across[::2], downwards(curve)[::2], strict=True))
        parts.append(f'<polyline class="curve step-{number}" points="{points}"/>')
    parts.append("</svg>")
    for number, (name, _) in enumerate(curves):
        parts.append(_text(f"end step-{number}", WIDTH - 8, TOP + 12 + 14 * number, name))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'
