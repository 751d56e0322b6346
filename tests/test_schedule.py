"""BinarySchedule: what it does in a user's training loop."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rbnn
from rbnn.errors import ConfigError
from rbnn.methods import METHODS, Method, register_method
from rbnn.nn import BinaryLinear


class Counting(Method):
    """A toy method that counts the calls of its functions."""

    def __init__(self, weight: Tensor, *, penalised: bool = False) -> None:
        super().__init__()
        self.penalised, self.steps = penalised, 0
        self.epochs_begun: list[float] = []

    def weight(self, w: Tensor) -> Tensor:
        return w

    def activation(self, x: Tensor) -> Tensor:
        return x

    def penalty(self, w: Tensor) -> Tensor | None:
        return w.square().sum() if self.penalised else None

    def begin_epoch(self, w: Tensor, epoch: float, epochs: int) -> None:
        super().begin_epoch(w, epoch, epochs)
        assert not torch.is_grad_enabled()
        self.epochs_begun.append(epoch)

    def after_step(self, w: Tensor) -> None:
        assert not torch.is_grad_enabled()
        self.steps += 1
        w.fill_(7.0)


@pytest.fixture(autouse=True)
def counting() -> Iterator[None]:
    register_method("counting")(Counting)
    yield
    del METHODS["counting"]


def built(penalised: bool = False, epochs: int = 4) -> tuple[nn.Sequential, torch.optim.SGD, rbnn.BinarySchedule]:
    options = {"penalised": penalised}
    model = nn.Sequential(nn.Linear(3, 8), BinaryLinear(8, 8, method="counting", options=options), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return model, optimizer, rbnn.BinarySchedule(model, optimizer, epochs)


def method_of(model: nn.Sequential) -> Counting:
    layer = model[1]
    assert isinstance(layer, BinaryLinear)
    assert isinstance(layer.method, Counting)
    return layer.method


def test_every_optimizer_step_is_followed_by_the_methods_own() -> None:
    model, optimizer, schedule = built()
    schedule.step(0)
    for _ in range(3):
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
    assert method_of(model).steps == 3
    assert model[1].weight.eq(7).all()


class Wrapped(torch.optim.Optimizer):
    """A wrapper around an optimiser, as in accelerate, that does not call its base class's constructor."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.skip = False

    @property
    def param_groups(self) -> list[dict[str, object]]:  # type: ignore[override]
        return self.optimizer.param_groups

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        if not self.skip:
            self.optimizer.step()


@pytest.mark.parametrize("layers", [1, 2])
def test_the_steps_of_a_wrapped_optimizer_are_seen(layers: int) -> None:
    model, optimizer, _ = built()
    wrapped = Wrapped(optimizer if layers == 1 else Wrapped(optimizer))
    rbnn.BinarySchedule(model, wrapped, epochs=2).step(0)
    steps = method_of(model).steps
    for wrapped.skip in (False, True, False):
        model(torch.randn(2, 3)).sum().backward()
        wrapped.step()
    assert method_of(model).steps - steps == 2 * 2  # two schedules see two steps


def test_an_optimizer_of_accelerate_is_seen() -> None:
    accelerate = pytest.importorskip("accelerate")
    model, optimizer, _ = built()
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    prepared, wrapped = accelerator.prepare(model, optimizer)
    rbnn.BinarySchedule(model, wrapped, epochs=2).step(0)
    for _ in range(4):
        with accelerator.accumulate(prepared):
            accelerator.backward(prepared(torch.randn(2, 3)).sum())
            wrapped.step()
            wrapped.zero_grad()
    assert method_of(model).steps == 2 * 2


def test_a_schedule_shows_where_it_stands() -> None:
    _, _, schedule = built()
    schedule.step(1.5)
    assert repr(schedule) == "BinarySchedule(binary layers: 1, epoch 1.5 of 4)"


def test_a_closure_and_a_scaled_loss_pass_the_hook_too() -> None:
    model, _, _ = built()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    schedule = rbnn.BinarySchedule(model, optimizer, 2)
    schedule.step(0)

    def closure() -> float:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().sum()
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    assert method_of(model).steps == 1


def test_a_forgotten_penalty_is_refused_and_nothing_is_stepped() -> None:
    model, optimizer, schedule = built(penalised=True)
    schedule.step(0)
    before = [p.detach().clone() for p in model.parameters()]
    model(torch.randn(2, 3)).sum().backward()
    with pytest.raises(ConfigError, match=r"layer '1' .* rbnn\.penalty\(model\)"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert method_of(model).steps == 0


def test_the_penalty_may_be_asked_for_inside_the_step() -> None:
    model, optimizer, schedule = built(penalised=True)
    schedule.step(0)

    def closure(*terms: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = sum(terms, start=model(torch.randn(2, 3)).sum())
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(lambda: closure(rbnn.penalty(model)))
        optimizer.step(closure=lambda: closure(rbnn.penalty(model)))
    with pytest.raises(ConfigError, match="penalty"):
        optimizer.step(closure)


def test_the_penalty_has_to_be_asked_for_at_every_step() -> None:
    model, optimizer, schedule = built(penalised=True)
    schedule.step(0)
    for _ in range(2):
        (model(torch.randn(2, 3)).sum() + rbnn.penalty(model)).backward()
        optimizer.step()
    model(torch.randn(2, 3)).sum().backward()
    with pytest.raises(ConfigError, match="penalty"):
        optimizer.step()


def test_step_takes_fractions_and_reaches_every_layer() -> None:
    model, _, schedule = built()
    for epoch in (0, 0.5, 1, 3.5):
        schedule.step(epoch)
        assert method_of(model).progress == epoch / 4
    assert method_of(model).epochs_begun == [0, 0.5, 1, 3.5]


def test_the_end_of_the_schedule_is_reached_with_a_warning() -> None:
    model, _, schedule = built()
    with pytest.warns(UserWarning, match="epoch 4 is past the last epoch of the schedule, 3: count epochs from 0"):
        schedule.step(4)
    assert method_of(model).progress == 1


@pytest.mark.parametrize("epoch", [-1, 4.5, 5])
def test_epochs_outside_are_refused(epoch: float) -> None:
    with pytest.raises(ConfigError, match="outside the schedule: expected 0 to 3"):
        built()[2].step(epoch)


def test_swapped_arguments_are_named() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ConfigError, match="takes the model first, then its optimizer, got SGD"):
        rbnn.BinarySchedule(optimizer, model, 3)  # type: ignore[arg-type]


def test_a_schedule_needs_an_epoch() -> None:
    with pytest.raises(ConfigError, match="at least one epoch"):
        built(epochs=0)


@pytest.mark.parametrize("epochs", [2.5, float("inf"), float("nan"), "3", None])
def test_epochs_are_counted_in_whole_numbers(epochs: Any) -> None:
    with pytest.raises(ConfigError, match=f"needs a whole number of epochs, got {epochs!r}$"):
        built(epochs=epochs)
    assert built(epochs=3.0)[2].epochs == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("epoch", ["a", None, [0]])
def test_an_epoch_is_a_number(epoch: Any) -> None:
    schedule = built()[2]
    with pytest.raises(ConfigError, match=f"step takes the number of the epoch, 0 to 3, got {re.escape(repr(epoch))}$"):
        schedule.step(epoch)
    schedule.step(torch.tensor(2))  # type: ignore[arg-type]
    assert schedule.epoch == 2


def test_a_model_that_was_not_binarized_causes_a_warning() -> None:
    model = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.warns(UserWarning, match="^the model has no binary layers: call rbnn.binarize_ first"):
        rbnn.BinarySchedule(model, optimizer, 3).step(0)
    rbnn.BinarySchedule(model, optimizer, 3, float_twin=True).step(0)  # warnings are errors


def test_an_optimizer_made_before_binarizing_is_refused() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rbnn.binarize_(model)
    with pytest.raises(ConfigError, match="create the optimizer after binarize_"):
        rbnn.BinarySchedule(model, optimizer, 4)
    rbnn.BinarySchedule(model, torch.optim.SGD(model.parameters(), 0.1), 4)


def test_an_optimizer_of_another_model_is_refused() -> None:
    model, other = built()[0], built()[0]
    with pytest.raises(ConfigError, match="'weight' of binary layer '1'"):
        rbnn.BinarySchedule(model, torch.optim.SGD(other.parameters(), 0.1), 4)


def test_frozen_layers_need_no_optimizer() -> None:
    model = built()[0]
    model[1].requires_grad_(False)
    rbnn.BinarySchedule(model, torch.optim.SGD(model[0].parameters(), 0.1), 4)


def test_state_says_where_the_schedule_stands() -> None:
    _, _, schedule = built()
    schedule.step(2.5)
    state = schedule.state_dict()
    assert state == {"epoch": 2.5, "epochs": 4}
    other = built()[2]
    other.load_state_dict(state)
    assert other.epoch == 2.5
    with pytest.raises(ConfigError, match="saved with 4 epochs, but this one has only 3"):
        built(epochs=3)[2].load_state_dict(state)


def test_a_schedule_goes_on_over_more_epochs() -> None:
    model, _, schedule = built(epochs=8)
    schedule.load_state_dict({"epoch": 4.0, "epochs": 4})
    schedule.step(4)
    assert model[1].method.progress == 0.5


def test_a_resumed_training_ends_in_the_same_weights() -> None:
    """Model, optimizer and schedule saved in the middle of an epoch and loaded into fresh ones."""

    def fresh() -> tuple[nn.Module, torch.optim.SGD, rbnn.BinarySchedule]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(3, 16), BinaryLinear(16, 16), nn.Linear(16, 2))
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        return model, optimizer, rbnn.BinarySchedule(model, optimizer, 4)

    def train(state: tuple[nn.Module, torch.optim.SGD, rbnn.BinarySchedule], steps: list[float]) -> None:
        model, optimizer, schedule = state
        for epoch in steps:
            schedule.step(epoch)
            x = torch.randn(8, 3, generator=torch.Generator().manual_seed(int(10 * epoch)))
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    steps = [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]
    whole, first, second = fresh(), fresh(), fresh()
    train(whole, steps)
    train(first, steps[:3])
    torch.manual_seed(99)
    for old, new in zip(first, second, strict=True):
        new.load_state_dict(old.state_dict())
    train(second, steps[3:])
    assert not torch.equal(whole[0].state_dict()["1.weight"], first[0].state_dict()["1.weight"])
    for name, value in whole[0].state_dict().items():
        assert torch.equal(value, second[0].state_dict()[name]), name


def test_a_schedule_without_an_optimizer_says_so() -> None:
    model = nn.Sequential(rbnn.BinaryConv2d(8, 8, 3))
    with pytest.raises(ConfigError, match="a schedule takes an optimizer second, got NoneType"):
        rbnn.BinarySchedule(model, None, 3)  # type: ignore[arg-type]
