"""`rbnn report`: what happened in runs and why, as one self-contained page."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Report:
    """One HTML page about a run, or about several side by side: curves; angle and quantisation error of each layer;
    weights before binarization; flips; α; the gradient of sign; size, MACs and, with a packed file, time per layer; the
    configuration; and in sentences what the figures show. The first run is compared with each of the others.

    Example: rbnn report runs/first runs/xnor-net -o report.html --figures figures
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories of `rbnn train`, or checkpoints, which have no curves."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page; it holds everything and loads nothing."""
    figures: Path | None = None
    """Directory for each figure as SVG and PNG and its numbers as CSV."""
    packed: tuple[Path, ...] = ()
    """Packed networks (.rbnn) whose operations are timed, beside those that lie in the run directories."""
    json: bool = False
    """Print JSON: {"page": path, "figures": [paths], "findings": [sentences]}."""


def run(options: Report) -> None:
    """Read, measure, draw, write."""
    from rbnn.errors import ConfigError

    if not options.runs:
        raise ConfigError("no run is given: name one or more run directories of `rbnn train`")
    if options.output.is_dir() or not options.output.parent.is_dir():
        wrong = "is a directory" if options.output.is_dir() else "lies in no directory"
        raise ConfigError(f"the page needs a file name, but {options.output} {wrong}: try -o report.html")
    if options.figures is not None:
        options.figures.mkdir(parents=True, exist_ok=True)

    from rbnn.analysis import report
    from rbnn.analysis.findings import findings, findings_of

    made = report.read(options.runs, options.packed)
    report.write_page(made, options.output)
    written = report.write_figures(made, options.figures) if options.figures is not None else []
    overall = findings(made.runs, made.times)
    own = [(each.name, findings_of(each)) for each in made.runs]
    if options.json:
        sentences = [*overall, *(f"{name}: {sentence}" for name, found in own for sentence in found)]
        print(json.dumps({"page": str(options.output), "figures": list(map(str, written)), "findings": sentences}))
        return
    for sentence in overall:
        print(sentence)
    for name, found in own:
        print(f"\n{name}", *(f"  {sentence}" for sentence in found), sep="\n")
    drawn = f", {len(written)} files in {options.figures}" if written else ""
    print(f"\n{options.output} ({options.output.stat().st_size / 1e6:.1f} MB){drawn}")
