"""From a table to training runs, all with the same budget, data order and initial weights.

A run is in ``OUT/METHOD-MODEL[-OPTION=VALUE…]/seed-N``, named after the options that differ from the defaults.  So a
row that appears in two tables is trained once.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rbnn import data
from rbnn.errors import CheckpointError, ConfigError
from rbnn.methods import check_method, method_options
from rbnn.reproduce.tables import PaperTable, Row, check_options
from rbnn.training import checkpoint
from rbnn.training.config import CONFIG_NAME, TrainConfig, as_table, difference, read_recipe, with_all_options
from rbnn.training.log import LOG, read_log

FEWEST_STEPS, SMALLEST_BATCH = 16, 16
"""An epoch of a small data set has this many steps, as long as its batches are not smaller than this."""


@dataclass(frozen=True)
class Budget:
    """What every row of a table gets."""

    epochs: int
    batch_size: int
    accumulate: int
    data: str
    limit: int
    images: int
    """Training images per epoch."""


@dataclass(frozen=True)
class Run:
    """One row with one seed."""

    row: Row
    config: TrainConfig

    @property
    def out(self) -> Path:
        return self.config.directory

    @property
    def name(self) -> str:
        return f"{self.row.name}, seed {self.config.seed}"

    def stranger(self) -> str | None:
        """How the run in the directory differs from this one, or None."""
        recipe = self.out / CONFIG_NAME
        held = with_all_options(read_recipe(recipe)) if recipe.exists() else None
        return difference(as_table(held), as_table(self.config)) if held is not None else None

    def begun(self) -> bool:
        """Whether there is something to continue."""
        kept = any((self.out / name).exists() for name in (checkpoint.LAST, checkpoint.PREVIOUS))
        return self.stranger() is None and kept

    def done(self) -> bool:
        """Whether its last epoch is finished and saved."""
        return self.begun() and checkpoint.load_last(self.out)[0].get("epoch") == self.config.epochs

    def check(self, resume: bool) -> None:
        """Raises if the directory contains another run, or the beginning of this one without ``resume``."""
        changed = self.stranger()
        if changed:
            raise ConfigError(f"{self.out} contains a run with {changed}: change it back, or choose another --out")
        if self.begun() and not resume:
            raise ConfigError(f"{self.out} was interrupted: add --resume to continue it, or choose another --out")

    def log(self) -> list[dict[str, Any]]:
        """The epochs so far."""
        return read_log(self.out / LOG)

    def whole_log(self) -> list[dict[str, Any]]:
        """The epochs of a finished run."""
        epochs = self.log()
        if len(epochs) != self.config.epochs:
            raise CheckpointError(
                f"{self.out / LOG} has only {len(epochs)} of the {self.config.epochs} epochs of a finished run: delete "
                f"{self.out} to train it again"
            )
        return epochs


def make_budget(
    table: PaperTable, data_dir: Path, *, name: str, epochs: int, batch_size: int, accumulate: int, limit: int
) -> Budget:
    """The budget.  ``name``, ``epochs`` and ``batch_size`` default to those of the published runs."""
    name = name or table.data
    images = len(data.load(name, data_dir, "train"))
    images = min(images, limit) if limit else images
    published = min(table.batch_size, max(SMALLEST_BATCH, images // FEWEST_STEPS))
    return Budget(epochs or table.epochs, batch_size or published, accumulate, name, limit, images)


def suffix(options: dict[str, Any]) -> str:
    """Options as part of a file name."""
    return "".join(f"-{key}={options[key]}" for key in sorted(options))


def plan(
    table: PaperTable,
    seeds: tuple[int, ...],
    budget: Budget,
    more: dict[str, Any],
    recipe: TrainConfig | None = None,
    **circumstances: Any,
) -> list[Run]:
    """The runs of all rows, seed by seed, so that the table of one seed is complete first.  ``more`` are options of all
    RBNN rows.  ``recipe`` says how all rows are trained; the default is the setup of the published runs.  The rows have
    the parts and the start of the published networks.
    ``circumstances`` say where it is computed: out, data_dir, workers, device."""
    check_method("rbnn", more)
    check_options(more)
    if recipe and recipe.validation:
        raise ConfigError("a table compares accuracies on the test set: remove validation from the recipe")
    published = TrainConfig(warmup=table.warmup)
    trained = replace(recipe or published, **published.parts, start_from=None, image_size=0)
    out = Path(circumstances.pop("out"))
    runs = []
    for seed in seeds:
        for row in table.rows:
            defaults = method_options(row.method)
            options = row.all_options(more, defaults)
            changed = {key: value for key, value in options.items() if value != defaults[key]}
            config = replace(
                trained,
                model=row.model,
                method=row.method,
                options=options,
                data=budget.data,
                epochs=budget.epochs,
                batch_size=budget.batch_size,
                accumulate=budget.accumulate,
                limit=budget.limit,
                seed=seed,
                out=out / f"{row.method}-{row.model}{suffix(changed)}" / f"seed-{seed}",
                **circumstances,
            )
            runs.append(Run(row, config))
    return runs
