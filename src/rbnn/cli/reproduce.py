"""`rbnn reproduce`: train the rows of a table and compare the results with the paper's."""

import json
import os
import sys
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rbnn.reproduce.plan import Run
from rbnn.text import plural
from rbnn.training.config import KEY_VALUE, find_recipe, read_recipe


@dataclass(frozen=True)
class Reproduce:
    """Train the rows of one of the paper's tables, or of your own table, with the same budget, data order and initial
    weights.

    Each row is an ordinary run directory, OUT/METHOD-MODEL[-OPTION=VALUE...]/seed-N. A row that appears in two tables
    is trained once. OUT/TABLE.md and OUT/TABLE.json show the results (mean and standard deviation over seeds) next to
    the paper's. Finished runs are kept. Ctrl-C saves checkpoints, and --resume continues from them.

    Examples: rbnn reproduce ablation --epochs 8 --seeds 0 1 --data-dir data
              rbnn reproduce mine.toml --import balanced.py
    """

    table: tyro.conf.Positional[str]
    """cifar10 or imagenet (results), gradients (estimators), ablation (the parts of RBNN), or a TOML file with your
    own table."""
    rows: tuple[str, ...] = ()
    """Rows to train, such as B+T or rbnn-resnet18. The default is all rows of the table."""
    epochs: int = 0
    """Passes over the training set. 0 uses the number of your own table, or of the published runs: 1000 on CIFAR-10,
    150 on ImageNet."""
    seeds: tuple[int, ...] = (0,)
    """Seeds; each row is trained once per seed."""
    jobs: int = 2
    """Number of runs at the same time, each with its share of the threads."""
    threads: int = 0
    """Total number of threads; 0 uses all processors."""
    data_dir: Path = Path("data")
    """Directory of the data sets; `rbnn data` fills it."""
    data: str = ""
    """Data set to use instead of the table's, for a quick test."""
    limit: int = 0
    """Number of training images to use, always the same ones; 0 uses all."""
    batch_size: int = 0
    """Images per step. 0 uses the number of your own table, or the published 256 or 512; a small data set gets smaller
    batches, so that an epoch has 16 steps."""
    accumulate: int = 1
    """Micro-batches per step, for less memory."""
    options: Annotated[dict[str, Any], KEY_VALUE] = field(default_factory=dict)
    """Options of all RBNN rows, as KEY=VALUE, such as rotation=layer (`rbnn methods rbnn` lists them)."""
    recipe: str = ""
    """Name or file of a recipe that sets rates, decay, warm-up, batch size and the like for all rows. Its network and
    the parts of it, method, options, data, epochs and start are ignored. The default is the setup of the published
    runs."""
    workers: int = 2
    """Processes per run that decode image files (image-folder only)."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""
    out: Path = Path("runs/reproduce")
    """Directory of the runs and tables."""
    resume: bool = False
    """Continue runs that were interrupted."""
    json: bool = False
    """Print the table as JSON."""


def run(options: Reproduce) -> None:
    """Plan, train what is missing, summarise."""
    from rbnn.errors import ConfigError, TrainingError
    from rbnn.reproduce.plan import make_budget, plan
    from rbnn.reproduce.runner import Runner
    from rbnn.reproduce.summary import summarise
    from rbnn.reproduce.table_file import read_table
    from rbnn.reproduce.tables import find_table
    from rbnn.training.distributed import choose_device

    path = Path(options.table)
    own = path.suffix == ".toml"
    table = read_table(path) if own else find_table(options.table)
    rows = table.chosen(options.rows)
    if not options.seeds or len(set(options.seeds)) < len(options.seeds):
        raise ConfigError(
            f"--seeds must be one or more different numbers, got {' '.join(map(str, options.seeds)) or 'none'}"
        )
    choose_device(options.device)
    runner = Runner(options.jobs, options.threads or os.cpu_count() or 1)
    recipe = read_recipe(find_recipe(options.recipe)) if options.recipe else None
    budget = make_budget(
        table,
        options.data_dir,
        name=options.data,
        epochs=options.epochs,
        batch_size=options.batch_size or (recipe.batch_size if recipe else table.batch_size if own else 0),
        accumulate=options.accumulate,
        limit=options.limit,
    )
    circumstances: dict[str, Any] = {"out": options.out, "data_dir": options.data_dir}
    circumstances |= {"workers": options.workers, "device": options.device}
    every = plan(table, options.seeds, budget, options.options, recipe, **circumstances)
    missing = [one for one in every if one.row in rows and not one.done()]
    for one in missing:
        one.check(options.resume)
    failed: dict[str, str] = {}

    def write() -> dict[str, Any]:
        summary = summarise(table, budget, every, failed, rows)
        _write(options, summary)
        return summary

    write()
    if missing:
        beside = f", {min(options.jobs, len(missing))} at a time" if len(missing) > 1 else ""
        print(
            f"training {plural(len(missing), 'run')}{beside}: "
            f"{plural(budget.epochs, 'epoch')} of {budget.images:,} images each",
            file=sys.stderr,
        )
    try:
        with _Watch(missing) as watch:
            complaints = runner.train(missing, watch.look, lambda ended: write())
    except KeyboardInterrupt:
        print("stopped; run the same command with --resume to continue", file=sys.stderr)
        raise
    failed |= {one.name: said for one, said in complaints}
    _show(options, write())
    if failed:
        name, said = next(iter(failed.items()))
        raise TrainingError(f"{len(failed)} of {plural(len(missing), 'run')} failed; {name}: {said}")


class _Watch:
    """A progress bar on stderr for each run that has started, or a line per epoch if stderr is not a terminal."""

    def __init__(self, runs: list[Run]) -> None:
        console = Console(stderr=True)
        self.told = {one.name: len(_epochs(one)) for one in runs}
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs  {task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = [
            (one, self.bars.add_task(one.name, total=one.config.epochs, numbers="", visible=False)) for one in runs
        ]

    def __enter__(self) -> "_Watch":
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def look(self) -> None:
        for one, task in self.tasks:
            if not one.out.exists():
                continue
            log = _epochs(one)
            numbers = f"test {log[-1]['top1']:.2f} %" if log else ""
            self.bars.update(task, completed=len(log), numbers=numbers, visible=True)
            if self.bars.disable and len(log) > self.told[one.name]:
                self.told[one.name] = len(log)
                print(f"{one.name}: {len(log)} of {one.config.epochs} epochs, {numbers}", file=sys.stderr)


def _epochs(one: Run) -> list[dict[str, Any]]:
    """What the log contains so far.  A log that cannot be read is empty here, and the run itself reports it."""
    from rbnn.errors import RbnnError

    try:
        return one.log()
    except (OSError, RbnnError):
        return []


def _write(options: Reproduce, summary: dict[str, Any]) -> None:
    from rbnn.files import write_whole
    from rbnn.reproduce.plan import suffix
    from rbnn.reproduce.summary import markdown

    options.out.mkdir(parents=True, exist_ok=True)
    name = f"{summary['table']}{suffix(options.options)}"
    for ending, text in (("md", markdown(summary)), ("json", json.dumps(summary, indent=2) + "\n")):
        write_whole(options.out / f"{name}.{ending}", methodcaller("write", text.encode()))


def _show(options: Reproduce, summary: dict[str, Any]) -> None:
    from rbnn.reproduce.summary import budget_sentence, cells

    if options.json:
        print(json.dumps(summary, indent=2))
        return
    heads, lines = cells(summary)
    shown = Table(title=summary["title"])
    for number, head in enumerate(heads[:1] + heads[3:]):  # a row's name includes network and method
        shown.add_column(head, justify="right" if number else "left", no_wrap=not number)
    for line in lines:
        shown.add_row(*line[:1], *line[3:])
    console = Console()
    console.print(shown)
    console.print(budget_sentence(summary), highlight=False, soft_wrap=True)
    console.print(f"runs and tables in {options.out}", highlight=False, soft_wrap=True)
