"""The log of a run: one line of JSON per epoch.  TensorBoard gets the same numbers, the configuration (HPARAMS) and
histograms of the latent weights."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from rbnn.errors import CheckpointError
from rbnn.files import write_whole
from rbnn.training.config import TrainConfig, as_table

LOG = "log.jsonl"
LARGEST_LOG = 1 << 28
LARGEST_NUMBER = 1e30
"""Larger than any loss that training survives, and small enough for figures and averages."""
MOST_EPOCHS = 1 << 31
NUMBERS = ("lr", "loss", "train_top1", "test_loss", "top1", "top5")
"""What every epoch of a log has in addition to the measures of its layers.  The last three are measured on the test
set, or on the held-out images if there are some (``evaluated_on`` is ``validation``).  Then the last epoch also has
``last_test_top1``."""


def evaluated_on(entry: dict[str, Any]) -> str:
    """What the accuracy of an epoch was measured on, in words."""
    return "held-out training images" if entry.get("evaluated_on") == "validation" else "test set"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The epochs in a log, without a last line that was cut off by a crash."""
    if not path.exists():
        return []
    if path.stat().st_size > LARGEST_LOG:
        raise CheckpointError(f"{path} is too large for a log: expected at most {LARGEST_LOG:,} bytes")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    epochs = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            entry = None
        if not isinstance(entry, dict) or type(entry.get("epoch")) is not int or not 0 <= entry["epoch"] < MOST_EPOCHS:
            raise CheckpointError(
                f"{path}, line {number} does not describe an epoch: the log was changed by another program"
            )
        _check(entry, path)
        epochs.append(entry)
    return epochs


def _check(entry: dict[str, Any], path: Path) -> None:
    layers = entry.get("layers")
    numbers = [entry.get(key) for key in NUMBERS]
    if isinstance(layers, dict) and all(isinstance(measures, dict) for measures in layers.values()):
        numbers += [value for measures in layers.values() for value in measures.values()]
    else:
        numbers.append(None)
    if not all(_is_number(number) for number in numbers):
        raise CheckpointError(
            f"{path}, epoch {entry['epoch']} is incomplete: expected {', '.join(NUMBERS)} and the measures of the "
            "layers, as `rbnn train` writes them"
        )


def _is_number(value: Any) -> bool:
    try:
        return type(value) in (int, float) and abs(float(value)) <= LARGEST_NUMBER  # NaN is not
    except OverflowError:  # an integer beyond the range of floats
        return False


class RunLog:
    """Appends epochs from ``first_epoch`` on to those that the run has ``logged`` before.  Later epochs in either are
    dropped."""

    def __init__(self, directory: Path, logged: list[dict[str, Any]], first_epoch: int, config: TrainConfig) -> None:
        self.path = directory / LOG
        self.epochs = [entry for entry in logged if entry["epoch"] < first_epoch]
        text = "".join(json.dumps(entry) + "\n" for entry in self.epochs)
        write_whole(self.path, lambda file: file.write(text.encode()))
        with self._naming_the_directory():
            self._events = _tensorboard(directory, first_epoch, config)

    def add(self, entry: dict[str, Any], latent: dict[str, Tensor]) -> None:
        """Add an epoch, and the latent weights at its end, by layer."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.epochs.append(entry)
        if self._events is not None:
            with self._naming_the_directory():
                for name, value in _scalars(entry):
                    self._events.add_scalar(name, value, entry["epoch"])
                for name, weight in latent.items():
                    self._events.add_histogram(f"latent weights/{name}", weight.detach().float().cpu(), entry["epoch"])
                self._events.flush()

    def close(self) -> None:
        if self._events is not None:
            with self._naming_the_directory():
                self._events.close()

    @contextmanager
    def _naming_the_directory(self) -> Iterator[None]:
        """TensorBoard's errors do not name the directory of a full disk."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path.parent)) from error


def _tensorboard(directory: Path, first_epoch: int, config: TrainConfig) -> Any:
    """A writer of TensorBoard events, or None if tensorboard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams
    except ImportError:
        return None
    events = SummaryWriter(str(directory), purge_step=first_epoch)
    table = as_table(config)
    table |= {f"options.{key}": value for key, value in table.pop("options").items()}
    table["imports"] = " ".join(table["imports"])
    # Not events.add_hparams, which would create a directory for a separate run inside this one.
    experiment, session, _ = hparams(table, {"run/top1": None})  # type: ignore[no-untyped-call]
    for summary in (experiment, session):
        events.file_writer.add_summary(summary)  # type: ignore[attr-defined]
    return events


def _scalars(entry: dict[str, Any]) -> list[tuple[str, float]]:
    """TensorBoard groups curves by the part of the name before the slash: one group per measure, one curve per
    layer."""
    scalars = [(f"run/{key}", value) for key, value in entry.items() if isinstance(value, float)]
    for layer, measures in entry["layers"].items():
        scalars += [(f"{key}/{layer}", value) for key, value in measures.items()]
    return scalars
