"""A run directory or a single checkpoint, read for analysis.  Missing parts are reported, not guessed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rbnn import notebook
from rbnn.errors import CheckpointError
from rbnn.report.run_names import named_runs
from rbnn.training.checkpoint import BEST, LAST, Network, load_network
from rbnn.training.config import CONFIG_NAME, TrainConfig, read_recipe
from rbnn.training.layer_measures import INITIAL, Signs, load_signs
from rbnn.training.log import LOG, read_log


@dataclass(frozen=True, repr=False)
class Run:
    """What a run left behind."""

    name: str
    """A short name, unique among the runs of the report."""
    path: Path
    config: TrainConfig
    epochs: list[dict[str, Any]]
    """The log, one entry per finished epoch."""
    network: Network | None
    """The network of the best epoch, or the last state of a run without a finished epoch."""
    initial: Signs | None
    """Signs of the weights before training."""

    def _facts(self) -> dict[str, str]:
        facts = {
            "network": f"{self.config.network} {self.config.method} on {self.config.data}, seed {self.config.seed}",
            "epochs": f"{len(self.epochs)} of {self.config.epochs}",
        }
        if self.epochs:
            facts["best accuracy"] = f"{max(entry['top1'] for entry in self.epochs):.2f} %"
        return facts

    def __repr__(self) -> str:
        return f"Run({self.path}: {', '.join(f'{name} {value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        return notebook.table(f"run in {self.path}", self._facts().items())

    @property
    def binary(self) -> bool:
        return self.config.method != "float"

    @property
    def measured(self) -> str:
        """The moment of the run that the network belongs to."""
        if self.network is None:
            return f"epoch {len(self.epochs)} (from the log)"
        state = self.network.state
        if "epoch" not in state:  # from another program
            return "the checkpoint"
        if "step" in state:  # only the checkpoint that a run resumes from counts steps
            return f"step {state['step']} of epoch {state['epoch'] + 1}"
        return f"epoch {state['epoch'] + 1} (best)"

    def missing(self) -> list[str]:
        """What the report could not show for this run and why, one sentence each."""
        sentences = []
        done, asked = len(self.epochs), self.config.epochs
        if self.path.is_file():
            sentences.append(f"{self.name} is a single checkpoint, which has no log and no curves.")
        elif done == 0:
            sentences.append(f"{self.name} has not finished an epoch: its log is empty, so it has no curves.")
        elif done < asked:
            sentences.append(
                f"{self.name} has finished {done} of {asked} epochs: it was interrupted or is still running."
            )
        if done == 1:
            sentences.append(f"{self.name} has one epoch, so changes from epoch to epoch cannot be shown.")
        if not self.binary:
            sentences.append(f"{self.name} is a float network: it has no binary layers, angles or flips.")
        if self.network is None:
            sentences.append(
                f"{self.name} has no checkpoint ({BEST} or {LAST}): histograms, absolute errors and sizes are missing, "
                "and the other measures of its layers come from the log."
            )
        if self.initial is None and self.binary and self.network is not None:
            sentences.append(f"{self.name} has no {INITIAL}: flips from initialisation cannot be counted.")
        return sentences


def read_runs(paths: list[Path]) -> list[Run]:
    """The runs in these directories, checkpoints or tables, with different names."""
    return [_read(path, name) for path, name in named_runs(paths)]


def _read(path: Path, name: str) -> Run:
    if not path.exists():
        raise CheckpointError(f"{path} does not exist: expected a run directory of `rbnn train` or a checkpoint")
    if path.is_file():
        network = load_network(path)
        return Run(name, path, network.config, [], network, None)
    if not (path / CONFIG_NAME).is_file():
        raise CheckpointError(f"{path} contains no {CONFIG_NAME}: expected a run directory of `rbnn train`")
    config = read_recipe(path / CONFIG_NAME)
    epochs = read_log(path / LOG)
    held = any((path / file).is_file() for file in (BEST, LAST))
    return Run(
        name,
        path,
        config,
        epochs,
        load_network(path) if held else None,
        load_signs(path / INITIAL) if (path / INITIAL).is_file() else None,
    )
