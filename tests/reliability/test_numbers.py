"""Numerical problems are caught and named where they arise."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import Fault
from runs import log_of, small
from torch import Tensor, nn

import rbnn
from rbnn.errors import TrainingError
from rbnn.functional import optimise_rotation
from rbnn.nn import binary_layers
from rbnn.schedule import changed_behind_the_schedule
from rbnn.training.diagnosis import constant_filters, gradients_finite, notices
from rbnn.training.loop import Progress, _Run, train


class Poison(Progress):
    """Modify the model after a step."""

    def __init__(self, at: int, change: Any) -> None:
        self.at, self.change, self.steps = at, change, 0

    def step(self, images: int, loss: float, top1: float) -> None:
        self.steps += 1
        if self.steps == self.at:
            self.change()


@pytest.fixture
def model_of_the_run(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """The model, once the run has created it."""
    made: list[nn.Module] = []
    begin = _Run.train

    def seen(self: _Run, stop: Any) -> Any:
        made.append(self.model)
        return begin(self, stop)

    monkeypatch.setattr(_Run, "train", seen)
    return made


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight(value: float, model_of_the_run: list[nn.Module], tmp_path: Path, fault: Fault) -> None:
    def poison() -> None:
        with torch.no_grad():
            model_of_the_run[0].get_parameter("layers.1.0.conv2.method.scale")[3] = value

    with (
        fault("NaN or infinity"),
        pytest.raises(
            TrainingError, match=r"loss is nan at step 2 of epoch 1, first layers\.1\.0\.conv2\.method\.scale:"
        ),
    ):
        train(small(tmp_path), Poison(2, poison))


def test_an_output(model_of_the_run: list[nn.Module], tmp_path: Path, fault: Fault) -> None:
    """Finite weights that are so large that their sum is not finite."""

    def poison() -> None:
        with torch.no_grad():
            model_of_the_run[0].get_parameter("conv1.weight").fill_(3e38)

    with (
        fault("NaN or infinity"),
        pytest.raises(TrainingError, match=r"nan .*, first the output of conv1: lower"),
    ):
        train(small(tmp_path), Poison(1, poison))


def test_a_gradient(model_of_the_run: list[nn.Module], tmp_path: Path, fault: Fault) -> None:
    """The loss is finite but the gradient is not; the weights stay unchanged."""

    def poison() -> None:
        model = model_of_the_run[0]
        convolution = model.get_submodule("layers.1.1.conv1")
        convolution.register_full_backward_hook(lambda module, to, came: (to[0] * math.nan,))
        poisoned.update({name: value.clone() for name, value in model.named_parameters()})

    poisoned: dict[str, Tensor] = {}
    # The layer's input has no finite gradient; the layer before it in the network is the last finite one.
    with fault("NaN or infinity"), pytest.raises(TrainingError) as stopped:
        train(small(tmp_path), Poison(3, poison))
    assert str(stopped.value).startswith("the gradient of layers.1.0.bn2.bias is not finite at step 3 of epoch 1: ")
    for name, value in model_of_the_run[0].named_parameters():
        assert torch.equal(value, poisoned[name]), name


@pytest.mark.parametrize("broken", ["weight", "rotation"])
def test_a_rotation(broken: str, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 16, 3), nn.Conv2d(16, 4, 1))
    rbnn.binarize_(model, relu="keep")
    schedule = rbnn.BinarySchedule(model, torch.optim.SGD(model.parameters(), 0.1), epochs=2)
    if broken == "weight":
        model[2].weight.data[0, 0, 0, 0] = math.nan
    else:

        def not_finite(w: Tensor, *rest: Any) -> Any:
            return optimise_rotation(w, *rest) if w is seen.setdefault("first", w) else (w.new_tensor(math.nan),) * 2

        seen: dict[str, Tensor] = {}
        monkeypatch.setattr("rbnn.methods.rbnn.optimise_rotation", not_finite)
    with (
        fault("NaN or infinity"),
        pytest.raises(TrainingError, match=r"^binary layer '2' .*epoch 0: .*not finite"),
    ):
        schedule.step(0)


def test_gradients_of_zeros_and_large_numbers() -> None:
    parameters = [nn.Parameter(torch.zeros(3)) for _ in range(3)]
    assert parameters[0].grad is None
    for parameter, value in zip(parameters[:2], (0.0, 1e18), strict=True):
        parameter.grad = torch.full((3,), value)
    assert gradients_finite(parameters)
    parameters[2].grad = torch.tensor([0.0, -math.inf, 0.0])
    assert not gradients_finite(parameters)


def test_constant_filters_are_counted() -> None:
    weight = torch.randn(5, 4, 3, 3)
    weight[1] = 0.3
    weight[3] = 0
    assert constant_filters(weight) == 2
    assert constant_filters(weight * 1e-20) == 2
    assert constant_filters(torch.randn(7, 1)) == 0


def test_layers_that_stand_still_are_in_the_log(tmp_path: Path, fault: Fault) -> None:
    with fault("a layer that learns nothing"):
        train(small(tmp_path, epochs=1, lr=0.0))
        assert log_of(tmp_path)[0]["notices"] == []  # nothing can move without a learning rate
    model = rbnn.create_model("resnet20-bireal", method="rbnn", num_classes=10)
    names = [name for name, _ in binary_layers(model)]
    figures = {name: {"epoch_flips": 0.0 if name == names[3] else 0.01} for name in names}
    layer = dict(binary_layers(model))[names[5]]
    with torch.no_grad():
        layer.weight[2:4] = 1.0
    with fault("a layer that learns nothing"):
        assert notices(model, figures, 0.5) == [
            f"no sign of {names[3]} changed in this epoch",
            f"2 of {len(layer.weight)} filters of {names[5]} are constant, and so are their signs",
        ]
        assert len(notices(model, figures, 0.005)) == 1  # at the end of the cosine, signs should not change


def test_a_run_logs_its_notices(model_of_the_run: list[nn.Module], tmp_path: Path) -> None:
    def freeze() -> None:
        layer = dict(binary_layers(model_of_the_run[0]))["layers.2.1.conv1"]
        with torch.no_grad():
            layer.weight[5] = 0.25

    train(small(tmp_path, epochs=1, weight_decay=0.0), Poison(4, freeze))
    (entry,) = (json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines())
    assert "1 of 64 filters of layers.2.1.conv1 are constant, and so are their signs" in entry["notices"]


def trained_a_step() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.Linear(256, 4)
    )
    rbnn.binarize_(model, relu="keep")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs=2)
    schedule.step(0)
    x = torch.randn(2, 3, 8, 8)
    model(x).square().sum().backward()
    optimizer.step()
    return model.eval(), x


def test_weights_written_behind_the_schedule(tmp_path: Path, fault: Fault) -> None:
    model, x = trained_a_step()
    with fault("weights written behind the schedule's back"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            rbnn.export(model, tmp_path / "net.rbnn", x)
        with torch.no_grad():
            model[2].weight.mul_(-1)
        assert changed_behind_the_schedule(model) == ["2"]
        with pytest.warns(UserWarning, match=r"weight of '2' .*was written after the last step of the optimiser"):
            rbnn.export(model, tmp_path / "net.rbnn", x)
        model.load_state_dict(trained_a_step()[0].state_dict())  # a complete checkpoint contains its own rotations
        assert changed_behind_the_schedule(model) == []
