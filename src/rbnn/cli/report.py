"""`rbnn report`: show what happened in training runs and why, on one self-contained page."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rbnn.cli._packed import refuse_packed
from rbnn.errors import ConfigError
from rbnn.files import check_place
from rbnn.text import visible


@dataclass(frozen=True)
class Report:
    """Write an HTML page about one or more runs: curves, angle and quantisation error of each layer, weights before
    binarization, flips, α, the gradient of sign, size and MACs, the time of each layer of a packed file, and the
    configuration. Sentences say what the figures show, and which of the paper's figures each run reproduces.

    Example: rbnn report runs/first runs/xnor-net -o report.html --figures figures
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories of `rbnn train`, checkpoints (which have no curves), or tables of `rbnn reproduce`
    (OUT/TABLE.json), which stand for all their finished runs."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """File to write. The page loads nothing from elsewhere."""
    figures: Path | None = None
    """Directory for the figures as SVG and PNG, with their numbers as CSV. It also gets two tables of all numbers:
    epochs.csv (the logs, with means over the layers) and layers.csv."""
    packed: tuple[Path, ...] = ()
    """Packed networks (.rbnn) to time, in addition to those in the run directories."""
    json: bool = False
    """Print JSON: {"page": path, "figures": [paths], "findings": [sentences], "paper": [{"figure", "run", "holds",
    "answer"}]}."""


def run(options: Report) -> None:
    """Read, measure, draw, write."""
    if not options.runs:
        raise ConfigError("no runs given: name one or more run directories of `rbnn train`")
    for path in options.runs:
        refuse_packed(path, "name the run directory, and add --packed FILE to time it")
    check_place(options.output)  # before minutes of measuring
    if options.figures is not None:
        options.figures.mkdir(parents=True, exist_ok=True)

    from rbnn.report import page
    from rbnn.report.findings import findings, findings_of, in_short
    from rbnn.report.paper_figures import SHOWN, claims

    made = page.read(options.runs, options.packed)
    page.write_page(made, options.output)
    written = page.write_figures(made, options.figures) if options.figures is not None else []
    overall = findings(made.runs, made.times)
    own = [(each.name, findings_of(each)) for each in made.runs]
    checked = claims(made.runs)
    if options.json:
        sentences = [*overall, *(f"{name}: {sentence}" for name, found in own for sentence in found)]
        paper = [asdict(claim) for claim in checked]
        answer = {"page": str(options.output), "figures": list(map(str, written)), "findings": sentences}
        print(json.dumps(answer | {"paper": paper}))
        return
    for sentence in overall:
        print(visible(sentence))
    for name, found in own:
        print(f"\n{name}", *(f"  {sentence}" for sentence in found), sep="\n")
    for figure, shown in SHOWN.items():
        answers = [claim for claim in checked if claim.figure == figure]
        if answers:
            print(f"\nFigure {figure} of the paper: {shown}")
            print(*(f"  {'✓' if one.holds else '✗'} {one.run}: {one.answer}" for one in answers), sep="\n")
    drawn = f", {len(written)} files in {options.figures}" if written else ""
    if lines := in_short(made.runs, made.times):
        print("\nIn short", *(f"  {visible(line)}" for line in lines), sep="\n")
    print(f"\nWrote {options.output} ({options.output.stat().st_size / 1e6:.1f} MB){drawn}")
