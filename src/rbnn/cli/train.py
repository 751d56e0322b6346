"""`rbnn train`: train a network, or continue a run."""

import os
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from rbnn import plugins
from rbnn.cli._flags import parse_flags
from rbnn.cli._packed import refuse_packed
from rbnn.cli._streams import say
from rbnn.methods import against_paper
from rbnn.text import plural
from rbnn.training.checkpoint import LAST, PREVIOUS
from rbnn.training.config import TrainConfig, find_recipe, read_recipe
from rbnn.training.layer_measures import mean_measures
from rbnn.training.loop import train
from rbnn.training.progress import Progress
from rbnn.training.result import Result

HELP = """Train a network.

RECIPE is the name of a bundled recipe (`rbnn recipes`), a TOML file, or a run directory. Flags override the recipe.
Without a recipe the defaults below apply.

The run directory gets config.toml, log.jsonl, TensorBoard events (curves, histograms of the latent weights, the
configuration as HPARAMS), initial.safetensors (the initial signs), last.pt, previous.pt and best.pt. Ctrl-C saves a
checkpoint, and --resume continues from it.

Examples: rbnn train digits
          rbnn train cifar10-resnet20-bireal-rbnn-cpu --out runs/first
          rbnn train runs/first --resume
          rbnn train --start-from resnet20-bireal-cifar10 \\
                     --data image-folder --data-dir mine --epochs 10 --lr 0.01
          rbnn train digits --method rbnn --options rotation=layer alpha=none
          rbnn train digits --import balanced.py --method balanced"""


COLUMNS = {
    "alpha": ("α", 1, 3),
    "angle": ("angle °", 1, 1),
    "error": ("error sin²θ", 1, 3),
    "flips": ("flips from start %", 100, 1),
    "epoch_flips": ("in last epoch %", 100, 1),
}
"""Columns of the table of binary layers, by measure: heading, factor, digits."""
ROTATED_AWAY = (
    "About 50 % of flips from the start are normal: the first rotation of RBNN, before training, flips half of the "
    "signs. The last column shows how many changed in the last epoch."
)
INTERRUPTED = 130
"""The exit code after Ctrl-C."""
FIRST = os.environ.get("RANK", "0") == "0"
"""Only one of several processes under torchrun prints."""


def parse(words: list[str]) -> TrainConfig:
    """The first word is the recipe, if there is one.  Flags are the fields of the configuration; ``--options`` changes
    only the options that it names."""
    default, options = TrainConfig(), dict[str, Any]()
    if not words and FIRST:
        say(
            f"rbnn: no recipe is named: {default.model} by {default.method} on {default.data} with the default settings"
        )
    if words and not words[0].startswith("-"):
        recipe, *words = words
        found = find_recipe(recipe)
        default = read_recipe(found)
        if found.parent == Path(recipe):
            default = replace(default, out=found.parent)  # the run may have been moved since it wrote its configuration
        default, options = replace(default, options={}), default.options
    chosen = parse_flags(TrainConfig, words, prog="rbnn train [RECIPE]", description=HELP, default=default)
    # Options are merged one by one; the recipe's options are dropped if they belong to another method.
    return replace(chosen, options=options | chosen.options) if chosen.method == default.method else chosen


class Watch(Progress):
    """On stderr: a line for each epoch, and in a terminal bars for the epoch and the run.  People count epochs from 1,
    log entries from 0."""

    finished = False
    """Whether the run had no epoch left to train."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self.bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not (console.is_terminal and FIRST),
        )

    def begin(self, config: TrainConfig, steps: int, epoch: int, step: int) -> None:
        if not self.bars.disable:
            self.bars.console.print(against_paper(config.method, config.options), soft_wrap=True, highlight=False)
        self.batch_size = config.batch_size
        self.steps, self.epochs = steps, config.epochs
        self.run = self.bars.add_task("run", total=config.epochs * steps, completed=epoch * steps + step, numbers="")
        begins = epoch < config.epochs  # a finished run has no further epoch to show
        self.finished = not begins
        self.now = self.bars.add_task(f"epoch {epoch + 1}", total=steps, completed=step, numbers="", visible=begins)

    def step(self, images: int, loss: float, top1: float) -> None:
        speed = (self.bars.tasks[self.run].speed or 0.0) * self.batch_size
        self.bars.update(self.now, advance=1, numbers=f"loss {loss:.3f}  train {top1:.1f} %")
        self.bars.update(self.run, advance=1, numbers=f"{speed:,.0f} images/s")

    def epoch(self, entry: dict[str, Any]) -> None:
        if FIRST:
            judged = "held-out" if entry["evaluated_on"] == "validation" else "test"
            line = (
                f"epoch {entry['epoch'] + 1:>3}  loss {entry['loss']:.3f}  train {entry['train_top1']:.2f} %  "
                f"{judged} {entry['top1']:.2f} %  {entry['images_per_second']:,.0f} images/s"
            )
            with suppress(OSError):  # a full disk behind stderr is no reason to end a run
                self.bars.console.print(line, soft_wrap=True)
        if entry["epoch"] + 1 < self.epochs:
            self.bars.reset(self.now, description=f"epoch {entry['epoch'] + 2}", total=self.steps)
        else:
            self.bars.update(self.now, visible=False)

    def notice(self, sentence: str) -> None:
        with suppress(OSError):
            self.bars.console.print(f"rbnn: {sentence}", soft_wrap=True, markup=False, highlight=False)


def run(options: TrainConfig) -> None:
    """Train, then print the results."""
    if options.teacher is not None:
        refuse_packed(options.teacher, "name the run directory or checkpoint that it was exported from")
    from rbnn.importing.network import open_network

    hints = {"method": options.method, "options": options.options} | options.parts
    watch = Watch()
    if options.resume and FIRST and not any(os.path.lexists(options.directory / each) for each in (LAST, PREVIOUS)):
        say(f"rbnn: {options.directory} contains no checkpoint to resume from: the run starts from scratch")
    try:
        with watch.bars:
            result = train(options, watch, lambda net: open_network(net, hints))
    except KeyboardInterrupt:
        if not (options.directory / LAST).exists():
            raise
        if FIRST:
            say(f"stopped; continue with: {_continued(options)}")
        raise SystemExit(INTERRUPTED) from None
    if not result.last:
        return
    if watch.finished:
        longer = _continued(options, "--epochs", str(2 * options.epochs))
        print(f"{result.out} is finished after {plural(options.epochs, 'epoch')}; train longer with: {longer}")
    else:
        report(options, result)


def _continued(options: TrainConfig, *more: str) -> str:
    return shlex.join(["rbnn", "train", str(options.directory), "--resume", *more, *plugins.flags()])


def report(config: TrainConfig, result: Result) -> None:
    """A table of the binary layers, and the accuracies."""
    console = Console()
    layers = result.last["layers"]
    if layers:
        table = Table(title=f"binary layers of {config.model}, {config.method}")
        table.add_column("layer", no_wrap=True)
        shown = [key for key in COLUMNS if any(key in measures for measures in layers.values())]
        for key in shown:
            table.add_column(COLUMNS[key][0], justify="right")
        for name, measures in [*layers.items(), ("mean", mean_measures(layers))]:
            if name == "mean":
                table.add_section()
            table.add_row(name, *(_cell(measures.get(key), *COLUMNS[key][1:]) for key in shown))
        console.print(table)
        if _rotated_away(config, mean_measures(layers)):
            console.print(ROTATED_AWAY, highlight=False)
        console.print(against_paper(config.method, config.options), highlight=False, soft_wrap=True)
    last = result.last
    if config.validation:
        accuracy = (
            f"accuracy on {config.validation:,} held-out training images {last['top1']:.2f} % (best "
            f"{result.best_top1:.2f} %); test accuracy after the last epoch {last['last_test_top1']:.2f} %"
            f"{_top5(result, last['last_test_top5'])}"
        )
    else:
        best = f"(best {result.best_top1:.2f} %)"
        accuracy = f"test accuracy {last['top1']:.2f} % {best}{_top5(result, last['top5'])}"
    console.print(
        f"{config.model} {config.method} on {config.data}: {accuracy}, {plural(config.epochs, 'epoch')}, "
        f"run in {result.out}",
        highlight=False,
        soft_wrap=True,
    )


def _rotated_away(config: TrainConfig, means: dict[str, float]) -> bool:
    """Whether the first rotation explains the flips.  A run that continues a trained RBNN flips few signs."""
    rotates = config.method == "rbnn" and config.options.get("rotation") != "none"
    return rotates and abs(means["flips"] - 0.5) < 0.1


def _top5(result: Result, value: float) -> str:
    """Nothing for up to five classes, where it is always 100 %."""
    return f", top-5 {value:.2f} %" if result.classes > 5 else ""


def _cell(value: float | None, factor: float, digits: int) -> str:
    return "–" if value is None else f"{factor * value:.{digits}f}"
