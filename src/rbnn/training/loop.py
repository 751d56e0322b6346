"""The training loop.  It knows no method: the schedule does what each method needs."""

import gc
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from rbnn import _core, data
from rbnn.errors import CheckpointError, ConfigError, DataError, LostWorker, RbnnError, TrainingError
from rbnn.files import keep_as, write_whole
from rbnn.methods import against_paper
from rbnn.nn import binary_layers, penalty
from rbnn.schedule import BinarySchedule
from rbnn.training import checkpoint
from rbnn.training.averaging import Average
from rbnn.training.batches import Batches
from rbnn.training.config import CONFIG_NAME, TrainConfig, as_toml, with_all_options
from rbnn.training.contract import InputContract
from rbnn.training.diagnosis import before_training, broken_gradient, broken_output, gradients_finite, notices
from rbnn.training.directory import RunDirectory, cannot_write, run_directory
from rbnn.training.distillation import Teacher, distillation_loss
from rbnn.training.distributed import Processes, all_reduce_batch_norm_, processes
from rbnn.training.evaluate import evaluate
from rbnn.training.forward import Forward
from rbnn.training.held_out import split
from rbnn.training.layer_measures import INITIAL, initial_signs, layer_measures, present_signs, save_signs
from rbnn.training.log import RunLog
from rbnn.training.optimizer import create_optimizer, learning_rate, set_learning_rate
from rbnn.training.progress import Progress, progress_here
from rbnn.training.result import Result
from rbnn.training.resume import Stopped, fingerprint, read_stopped
from rbnn.training.silent_weights import SilentWeights
from rbnn.training.start import as_it_knows_them, as_the_network_takes_them, start
from rbnn.training.stopping import Stop, stop_on_signal


@dataclass
class Sums:
    """Sums over the images of an epoch so far, over all processes.  The seconds are those of this process."""

    images: float = 0.0
    loss: float = 0.0
    hit1: float = 0.0
    seconds: float = 0.0


Opener = Callable[[Path], checkpoint.Network]
"""Opens what ``start_from`` names."""


def train(
    config: TrainConfig, progress: Progress | None = None, open_network: Opener = checkpoint.load_network
) -> Result:
    """Train as ``config`` says.  All results are in the run directory.  A notebook shows a progress bar, unless
    ``progress`` is given."""
    _core.keep_freed_memory()  # every step reuses the same memory
    config = with_all_options(config)
    with processes(config.device) as those, run_directory(config, those) as directory:
        run = _Run(config, directory, those, progress or progress_here(), open_network)
        gc.freeze()  # existing objects stay, so Python need not scan all of torch's objects every few steps
        try:
            with stop_on_signal() as stop:
                return run.train(stop)
        finally:
            gc.unfreeze()
            run.close()


class _Run:
    def __init__(
        self,
        config: TrainConfig,
        directory: RunDirectory,
        those: Processes,
        progress: Progress,
        open_network: Opener = checkpoint.load_network,
    ) -> None:
        self.config, self.processes, self.progress = config, those, progress
        self.directory, self.out = directory, directory.path
        last = self.out / checkpoint.LAST
        resuming = config.resume and directory.begun
        (seen_by,) = those.sum([float(resuming)])
        if seen_by not in (0, those.world):
            raise CheckpointError(
                f"only {seen_by:.0f} of {those.world} processes found {last}: put the run directory on a shared disk"
            )
        if config.threads:
            torch.set_num_threads(config.threads)
        before = None if config.start_from is None or resuming else open_network(config.start_from)
        torch.manual_seed(config.seed)

        expected = None if before is None else before.contract
        if resuming and (config.start_from is not None or config.data == "image-folder"):
            expected = checkpoint.load_contract(self.out)
        train_set = as_it_knows_them(data.load(config.data, config.data_dir, "train"), expected)
        if expected is None:
            train_set, said = as_the_network_takes_them(train_set, config)
            if said and those.first:
                progress.notice(said)
        self.contract = InputContract.of(train_set, config.image_size)
        shares: dict[str, Any] = {"seed": config.seed, "rank": those.rank, "world": those.world}
        shares |= {"workers": config.workers, "image_size": self.contract.image_size}
        learnt, held_out = split(train_set, config.validation) if config.validation else (None, None)
        limit = config.limit or None
        self.batches = Batches(
            train_set, config.batch_size, train=True, augmented=config.augment == "standard", limit=limit, only=learnt,
            **shares,
        )  # fmt: skip
        test_set = as_it_knows_them(data.load(config.data, config.data_dir, "test"), expected)
        if test_set.classes != train_set.classes:
            raise DataError(
                f"the training and test sets of {config.data} have different classes: they must be the same"
            )
        self.pictures = {"training": fingerprint(train_set), "test": fingerprint(test_set)}
        self.test_batches = self.judges = Batches(test_set, config.batch_size, train=False, **shares)
        if held_out is not None:
            self.judges = Batches(train_set, config.batch_size, train=False, only=held_out, **shares)

        self.model = checkpoint.build(config, self.contract)
        continued: set[str] = set()
        if before is not None:
            taken = start(self.model, config, before, self.contract, self.batches)
            continued = taken.continued
            if those.first:
                for sentence in filter(None, (taken.head, *taken.notices)):
                    progress.notice(sentence)
        if those.first and not resuming:
            for sentence in before_training(self.model):
                progress.notice(sentence)
        if config.batch_norm == "all-reduced":
            all_reduce_batch_norm_(self.model)
        self.model.to(those.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = create_optimizer(self.model, config)
        twin = config.method == "float"
        self.schedule = BinarySchedule(self.model, self.optimizer, config.epochs, float_twin=twin)
        self.silent = SilentWeights(
            self.model, self.optimizer, floor=config.gradient_floor, decay=config.silent_decay,
            memory=config.silent_memory, below=config.silent_below,
        )  # fmt: skip
        self.epoch, self.step, self.best_top1, self.sums = 0, 0, -1.0, Sums()
        self.rate = config.lr
        self.average = Average(self.model, config.average) if config.average else None
        self.initial = self.previous = initial_signs(self.model, continued)
        stopped = self._resume() if resuming else None
        self.teacher = config.teacher and Teacher(config.teacher, self.contract, those.device)
        self.taught_by = config.distillation_share, config.temperature
        if those.first:
            self._tidy(stopped.trouble) if stopped else self._prepare_directory()
        those.share_from_first(self.model)
        self.forward = Forward(self.model, config, those)
        self.log = RunLog(self.out, stopped.log if stopped else [], self.epoch, config) if those.first else None

    def _prepare_directory(self) -> None:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            self.directory.hold()
            self.directory.check(self.config)
            self.directory.remove_leftovers()
            self._write_config()
            save_signs(self.out / INITIAL, self.initial)
        except OSError as error:
            raise cannot_write(self.out, error) from None

    def _write_config(self) -> None:
        write_whole(self.out / CONFIG_NAME, lambda file: file.write(as_toml(self.config).encode()))

    def _resume(self) -> Stopped:
        """Restore the state in which the run stopped.  Nothing is written, because later checks may still fail."""
        stopped = read_stopped(
            self.out,
            self.config,
            self.contract,
            self.pictures,
            self.model,
            self.optimizer,
            self.initial,
            len(self.batches),
            self._beside_the_weights(),
        )
        place = stopped.place
        checkpoint.load_weights(self.model, stopped.weights, self.out / checkpoint.LAST)
        if self.average is not None:
            self.average.load(stopped.beside["average"])
        if self.config.silent_decay:
            self.silent.load_state_dict(stopped.beside["silent"])
        self.optimizer.load_state_dict(place.optimizer)
        self.schedule.load_state_dict(place.schedule)
        self.epoch, self.step, self.best_top1, self.sums = place.epoch, place.step, place.best_top1, Sums(**place.sums)
        self.previous, self.initial = place.previous_signs, stopped.initial
        torch.set_rng_state(place.rng)
        if self.step > 0:  # logged even if all steps of the epoch are done
            self.rate = learning_rate(self.config, self.epoch + (self.step - 1) / len(self.batches))
        return stopped

    def _beside_the_weights(self) -> dict[str, dict[str, Any]]:
        """What some runs save in addition to the network: tensors by name."""
        average = {} if self.average is None else {"average": self.average.values}
        return average | ({"silent": self.silent.state_dict()} if self.config.silent_decay else {})

    def _tidy(self, trouble: str) -> None:
        """Clean up after an earlier process: temporary files, the configuration of a shorter run or of another
        directory, and perhaps a damaged last checkpoint."""
        try:
            self.directory.remove_leftovers()
            self._write_config()
            if trouble:
                self.progress.notice(f"{trouble}, {self._place(self.step)}")
                keep_as(self.out / checkpoint.PREVIOUS, self.out / checkpoint.LAST)
        except OSError as error:
            raise cannot_write(self.out, error) from None

    def _save(self) -> None:
        if self.processes.first:
            checkpoint.keep_previous(self.out)
            checkpoint.save(
                self.out / checkpoint.LAST,
                self.config,
                self.contract,
                self.model,
                optimizer=self.optimizer.state_dict(),
                schedule=self.schedule.state_dict(),
                epoch=self.epoch,
                step=self.step,
                best_top1=self.best_top1,
                sums=asdict(self.sums),
                previous_signs={name: torch.from_numpy(words) for name, words in self.previous.items()},
                rng=torch.get_rng_state(),
                pictures=self.pictures,
                **self._beside_the_weights(),
            )

    def train(self, stop: Stop) -> Result:
        self.progress.begin(self.config, len(self.batches), self.epoch, self.step)
        while self.epoch < self.config.epochs:
            try:
                self._train_epoch(stop)
                self._end_epoch()
            except (DataError, LostWorker) as error:
                self._stop_without_pictures(error, stop)
            if self.processes.any(stop.asked):
                raise KeyboardInterrupt
        last = self.log.epochs[-1] if self.log is not None and self.log.epochs else {}
        return Result(self.out, self.best_top1, last, len(self.contract.classes))

    def close(self) -> None:
        """Close the log's files, whatever happened, so that the process group can end."""
        del self.forward
        if self.log is not None:
            self.log.close()

    def _train_epoch(self, stop: Stop) -> None:
        if self.step == 0:
            self.schedule.step(self.epoch)
            self.processes.share_from_first(self.model)
            self.processes.require_same(self._agreed(), f"at the start of epoch {self.epoch + 1}")
        self.model.train()
        began = time.perf_counter()
        for images, labels in self.batches.epoch(self.epoch, start=self.step):
            self._train_step(images.to(self.processes.device), labels.to(self.processes.device))
            self.step += 1
            now = time.perf_counter()
            self.sums.seconds += now - began  # including the time to prepare the batch
            began = now
            self.progress.step(len(labels), self.sums.loss / self.sums.images, 100 * self.sums.hit1 / self.sums.images)
            # A signal reaches one process before another.  They stop together; otherwise one would wait forever.
            if self.processes.any(stop.asked) and self.step < len(self.batches):
                self._require_finite_weights()
                self._save()
                self.processes.any(
                    False
                )  # torchrun kills the others once one has exited: exit after the file is written
                raise KeyboardInterrupt

    def _stop_without_pictures(self, error: RbnnError, stop: Stop) -> NoReturn:
        """The run waits for images only between steps, where it can be saved and continued."""
        if self.step > 0:
            self._require_finite_weights()
            self._save()
        if stop.asked:  # a worker that has just started is killed by the signal that is meant for the run
            raise KeyboardInterrupt
        if not (self.out / checkpoint.LAST).exists():
            raise error
        raise type(error)(
            f"{error}; the run was saved at {self._place(self.step)}; continue with: "
            f"rbnn train {shlex.quote(str(self.out))} --resume"
        ) from None

    def _place(self, step: int) -> str:
        """``step 3 of epoch 1``: people count epochs from 1."""
        return f"step {step} of epoch {self.epoch + 1}"

    def _train_step(self, images: Tensor, labels: Tensor) -> None:
        self.rate = learning_rate(self.config, self.epoch + self.step / len(self.batches))
        set_learning_rate(self.optimizer, self.rate)
        self.optimizer.zero_grad(set_to_none=True)
        parts = self.config.accumulate
        if len(labels) % parts:
            raise ConfigError(f"the {len(labels)} images of a process cannot be split into {parts} equal micro-batches")
        seen = [0.0, 0.0, 0.0]  # images, loss, hits
        for part, (some, wanted) in enumerate(zip(images.chunk(parts), labels.chunk(parts), strict=True), 1):
            with self.forward.keeping_gradients(part < parts):
                with self.forward.precision():
                    logits = self.forward(some)
                    loss = (
                        distillation_loss(logits, self.teacher(some), wanted, *self.taught_by)
                        if self.teacher
                        else F.cross_entropy(logits, wanted)
                    )
                ((loss + penalty(self.model)) / parts).backward()  # type: ignore[no-untyped-call]
            seen[0] += len(wanted)
            seen[1] += float(loss.detach()) * len(wanted)
            seen[2] += float((logits.detach().argmax(1) == wanted).sum())
        count, total, hits = self.processes.sum(seen)
        if not isfinite(total):
            with self.forward.precision():
                where = broken_output(self.model, images)
            first = f", first {where}" if where else ""
            raise self._diverged(f"the loss is {total / count} at {self._place(self.step)}{first}")
        if not gradients_finite([p for group in self.optimizer.param_groups for p in group["params"]]):
            gradient = f"the gradient of {broken_gradient(self.model)}"
            raise self._diverged(f"{gradient} is not finite at {self._place(self.step)}")
        self.sums.images += count
        self.sums.loss += total
        self.sums.hit1 += hits
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model, self.epoch * len(self.batches) + self.step)

    def _require_finite_weights(self) -> None:
        """A checkpoint must be worth resuming from.  If the last step diverged, the previous checkpoint stays."""
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if not bool(torch.isfinite(tensor).all()):
                raise self._diverged(f"{name} is not finite after {self._place(self.step - 1)}")

    def _agreed(self) -> dict[str, Tensor | float]:
        """What all processes must agree on: weights, rotations and scales, and the position of the schedule."""
        values: dict[str, Tensor | float] = dict(self.model.named_parameters())
        for name, layer in self.schedule.layers:
            values |= {f"{name}.method.{part}": tensor for part, tensor in layer.method.named_buffers()}
            values[f"the progress of {name}"] = -1.0 if layer.method.progress is None else layer.method.progress
        values["the learning rate"] = self.rate
        return values

    def _diverged(self, what: str) -> TrainingError:
        kept = (self.out / checkpoint.LAST).exists()
        saved = f"the last good checkpoint stays in {self.out}" if kept else "there was no checkpoint yet"
        return TrainingError(f"{what}: lower lr (now {self.config.lr:g}); {saved}")

    def _end_epoch(self) -> None:
        """Validate, log, save, in this order: a run that is killed in between does the epoch again and logs it once."""
        self._require_finite_weights()
        self.processes.require_same(self._agreed(), f"at the end of epoch {self.epoch + 1}")
        sums = self.sums
        self.processes.share_from_first(self.model)  # running statistics of batch norm
        kept = self.model
        if self.average is not None:
            kept = self.average.refresh(self.model)
            self.processes.share_from_first(kept)
        tested = evaluate(kept, self.judges, self.processes)
        last_look = self.config.validation and self.epoch + 1 == self.config.epochs
        at_last = evaluate(kept, self.test_batches, self.processes) if last_look else {}
        if not isfinite(tested["loss"]):
            raise self._diverged(f"the test loss is {tested['loss']} after {self._place(self.step - 1)}")
        if self.log is not None:
            layers = layer_measures(kept, self.initial, self.previous)
            entry = {
                "epoch": self.epoch,
                **({"method": against_paper(self.config.method, self.config.options)} if self.epoch == 0 else {}),
                "evaluated_on": "validation" if self.config.validation else "test",
                "lr": self.rate,
                "loss": sums.loss / sums.images,
                "train_top1": 100 * sums.hit1 / sums.images,
                "test_loss": tested["loss"],
                "top1": tested["top1"],
                "top5": tested["top5"],
                **{f"last_test_{key}": value for key, value in at_last.items()},
                "images_per_second": sums.images / sums.seconds,
                "layers": layers,
                "notices": notices(kept, layers, self.rate / self.config.lr if self.config.lr else 0.0),
            }
            self.log.add(entry, {name: layer.weight for name, layer in binary_layers(kept)})
            self.progress.epoch(entry)
        self.previous = present_signs(kept)
        better = tested["top1"] > self.best_top1
        self.best_top1 = max(tested["top1"], self.best_top1)
        if better and self.processes.first:
            checkpoint.save(self.out / checkpoint.BEST, self.config, self.contract, kept, epoch=self.epoch, **tested)
        self.epoch, self.step, self.sums = self.epoch + 1, 0, Sums()
        self._save()
