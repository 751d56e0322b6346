"""BinarySchedule: what a binary network needs at the start of an epoch and after a step, in any training loop."""

import warnings
from typing import Any, SupportsFloat

import torch
from torch import nn
from torch.optim import Optimizer

from rbnn.errors import ConfigError, TrainingError
from rbnn.functional import whole
from rbnn.nn import binary_layers
from rbnn.text import quoted


class BinarySchedule:
    """Does what the binary layers of a model need during training.  ``step`` updates rotations and the sharpness of the
    gradient.  A hook on the optimiser does what a method needs after each step, such as clipping weights.

        schedule = rbnn.BinarySchedule(model, optimizer, epochs=120)
        for epoch in range(120):
            schedule.step(epoch)
            ...                       # loss = criterion(...) + rbnn.penalty(model)

    ``step`` also takes fractions of an epoch: they update the sharpness, while rotations change at whole epochs only.

    A model without binary layers causes a warning, unless ``float_twin`` says that it is the twin of a binary one.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, epochs: int, *, float_twin: bool = False) -> None:
        if not isinstance(model, nn.Module):
            raise ConfigError(f"a schedule takes the model first, then its optimizer, got {type(model).__name__}")
        if not isinstance(epochs, SupportsFloat) or not float(epochs).is_integer():
            raise ConfigError(f"a schedule needs a whole number of epochs, got {quoted(epochs)}")
        if epochs < 1:
            raise ConfigError(f"a schedule needs at least one epoch, got {epochs}")
        self.layers = list(binary_layers(model))
        if not self.layers and not float_twin:
            warnings.warn(
                "the model has no binary layers: call rbnn.binarize_ first, or pass float_twin=True", stacklevel=2
            )
        self.epochs, self.epoch = int(epochs), 0.0
        optimizer = _innermost(optimizer)
        if not hasattr(optimizer, "param_groups"):
            raise ConfigError(f"a schedule takes an optimizer second, got {type(optimizer).__name__}")
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for name, layer in self.layers:
            if layer.method.needs_example:
                raise ConfigError(
                    f"the method of binary layer {name!r} has parameters whose size depends on the image: run one "
                    "batch through the model before creating the optimizer and the schedule"
                )
            for part, parameter in layer.named_parameters():
                if parameter.requires_grad and id(parameter) not in held:
                    raise ConfigError(
                        f"the optimizer does not hold {part!r} of binary layer {name!r}: "
                        "create the optimizer after binarize_, which makes new parameters"
                    )
        for _, layer in self.layers:
            layer.has_schedule = True
            layer.method.see_network(model)
        optimizer.register_step_pre_hook(self._before_optimizer_step)
        optimizer.register_step_post_hook(self._after_optimizer_step)

    def __repr__(self) -> str:
        return f"BinarySchedule(binary layers: {len(self.layers)}, epoch {self.epoch:g} of {self.epochs})"

    def step(self, epoch: float) -> None:
        """Begin ``epoch`` (0 … epochs − 1), or a fraction of an epoch.  ``epochs`` itself is the end of the
        schedule."""
        if not isinstance(epoch, SupportsFloat):
            raise ConfigError(f"step takes the number of the epoch, 0 to {self.epochs - 1}, got {quoted(epoch)}")
        if not 0 <= epoch <= self.epochs:
            raise ConfigError(f"epoch {epoch} is outside the schedule: expected 0 to {self.epochs - 1}")
        if epoch == self.epochs:
            warnings.warn(
                f"epoch {epoch} is past the last epoch of the schedule, {self.epochs - 1}: count epochs from 0",
                stacklevel=2,
            )
        self.epoch = float(epoch)
        with torch.no_grad():
            for name, layer in self.layers:
                try:
                    with torch.autocast(layer.weight.device.type, enabled=False):
                        layer.method.begin_epoch(whole(layer.filters), epoch, self.epochs)
                except (TrainingError, torch.linalg.LinAlgError) as error:  # type: ignore[attr-defined]
                    reason = str(error).partition("\n")[0]
                    raise TrainingError(f"binary layer {name!r} at the start of epoch {epoch:g}: {reason}") from None

    def _before_optimizer_step(self, _: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # the first is the optimiser
        if closure is None:  # otherwise the loss is computed inside the step, as in Lightning
            self._refuse_without_penalty()

    @torch.no_grad()
    def _after_optimizer_step(self, *hook: Any) -> None:
        self._refuse_without_penalty()
        for _, layer in self.layers:
            layer.method.penalty_asked = False
            filters = layer.filters
            if filters is not layer.weight and layer.weight.grad is not None:  # a view has no gradient of its own
                filters.grad = layer.as_filters(layer.weight.grad)
            layer.method.after_step(filters)
            # Autograd counts the writes to a tensor; torch has no public name for the counter.
            layer.method.version_of_weight = layer.weight._version

    def _refuse_without_penalty(self) -> None:
        for name, layer in self.layers:
            if not layer.method.penalty_asked and layer.method.penalty(layer.filters) is not None:
                raise ConfigError(f"the method of layer {name!r} has a penalty: add rbnn.penalty(model) to the loss")

    def state_dict(self) -> dict[str, float]:
        """The position of the schedule.  The state of each layer is in the model's own state_dict."""
        return {"epoch": self.epoch, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue where ``state_dict`` was taken, with as many epochs or more.  With more epochs, the sharpness drops
        to its value in the longer schedule.  The rotations are part of the model's state."""
        if int(state["epochs"]) > self.epochs:
            raise ConfigError(
                f"the schedule was saved with {int(state['epochs'])} epochs, but this one has only {self.epochs}"
            )
        self.epoch = float(state["epoch"])


def _innermost(optimizer: Optimizer) -> Optimizer:
    """The optimiser inside wrappers such as accelerate's and Lightning's.  Only its steps are real: the wrapper skips
    steps while gradients accumulate, or when they are not finite."""
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer


def changed_behind_the_schedule(model: nn.Module) -> list[str]:
    """The binary layers whose weight was written since the optimiser's last step by something else.  Their scales and
    rotations belong to other weights.  Loading a whole checkpoint does not count."""
    return [
        name
        for name, layer in binary_layers(model)
        if layer.method.version_of_weight not in (None, layer.weight._version)
    ]
