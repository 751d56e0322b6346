"""Draw docs/figures/terminal.svg: run commands and draw them with their output.

    python tools/terminal_svg.py

This takes about a minute, because it trains the network that it shows.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import textwrap
from html import escape
from pathlib import Path

COMMANDS = (
    "rbnn train digits --out runs/digits | tail -1",
    "rbnn export runs/digits -o digits.rbnn",
    "rbnn eval digits.rbnn --data digits",
    "rbnn predict digits.rbnn seven.png --top 2",
)
COLUMNS = 92
LINE, LETTER, MARGIN, BAR = 17, 8.45, 18, 34
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def record(folder: Path) -> list[tuple[str, str]]:
    """Run each command and return it with its output."""
    _draw_a_seven(folder / "seven.png")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    plain = {"PATH": path, "COLUMNS": str(COLUMNS), "NO_COLOR": "1", "TERM": "dumb", "OMP_NUM_THREADS": "1"}
    session = []
    for command in COMMANDS:
        words = ["bash", "-o", "pipefail", "-c", command]
        done = subprocess.run(words, cwd=folder, env=os.environ | plain, stdout=subprocess.PIPE, text=True, check=True)
        session.append((command, done.stdout.rstrip()))
    return session


def _draw_a_seven(path: Path) -> None:
    """Write one of the test images to a file."""
    from PIL import Image

    from rbnn import data

    tests = data.load("digits", path.parent, "test")
    place = list(tests.labels).index(7)
    Image.fromarray(tests.images[place, :, :, 0]).save(path)


def wrapped(line: str) -> list[str]:
    """Wrap a line between words, unlike a terminal."""
    return textwrap.wrap(line, COLUMNS) or [""]


def draw(session: list[tuple[str, str]]) -> str:
    """Draw the terminal window as SVG."""
    rows: list[tuple[str, str]] = []
    for command, printed in session:
        rows += [("command", line) for line in wrapped(f"$ {command}")]
        rows += [("printed", part) for line in printed.splitlines() for part in wrapped(line.rstrip())]
        rows.append(("printed", ""))
    rows.pop()
    width, height = round(2 * MARGIN + COLUMNS * LETTER), BAR + MARGIN + LINE * len(rows)
    lines = "\n".join(
        f'<text class="{kind}" x="{MARGIN}" y="{BAR + 14 + LINE * number}">{escape(text)}</text>'
        for number, (kind, text) in enumerate(rows)
        if text
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>
text {{ font: 14px {FONT}; white-space: pre; fill: #d6dae0; }}
.command {{ fill: #8fd19e; font-weight: 600; }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#1d2127" stroke="#4a525e"/>
<circle cx="20" cy="17" r="5.5" fill="#e0645c"/><circle cx="38" cy="17" r="5.5" fill="#e0b04c"/>
<circle cx="56" cy="17" r="5.5" fill="#6cb36a"/>
{lines}
</svg>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parents[1] / "docs/figures/terminal.svg")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        options.output.write_text(draw(record(Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
