"""What torch users expect of any module, for a network of every method."""

import copy
import io
import re
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from test_every_method import every_variant
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import rbnn
from rbnn.methods import METHODS
from rbnn.nn import binary_layers, show_example

every_method = pytest.mark.parametrize("name", METHODS)


def network(name: str, options: dict[str, Any] | None = None, seed: int = 0) -> nn.Sequential:
    """Channels in multiples of eight, so that convolutions can be computed with bits, and one that cannot."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardtanh(), nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16),
        nn.Hardtanh(), nn.Conv2d(16, 9, 3, stride=2), nn.BatchNorm2d(9), nn.Flatten(), nn.Linear(36, 24),
        nn.BatchNorm1d(24), nn.Linear(24, 4),
    )  # fmt: skip
    rbnn.binarize_(model, name, **(options or {}))
    show_example(model, PICTURES)
    return model


PICTURES = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(3))
LABELS = torch.arange(8) % 4


def train(model: nn.Module, steps: int = 3, lr: float = 0.05) -> list[float]:
    torch.manual_seed(5)  # DoReFa draws noise
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr, momentum=0.9)
    schedule = rbnn.BinarySchedule(model, optimizer, steps)
    losses = []
    kind = next(model.parameters()).dtype
    for step in range(steps):
        schedule.step(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(PICTURES.to(kind)).float(), LABELS)
        (loss + rbnn.penalty(model)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def answers(model: nn.Module) -> Tensor:
    kind = next(model.parameters()).dtype
    with torch.no_grad():
        return model.eval()(PICTURES.to(kind))  # type: ignore[no-any-return]


@every_variant
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_trains(name: str, options: dict[str, Any], kind: torch.dtype) -> None:
    """Binary layers compute in float32, whatever their input; the others in the lower precision."""
    model = network(name, options)
    seen: dict[str, set[torch.dtype]] = {}
    for part, module in model.named_children():
        module.register_forward_hook(lambda m, x, y, part=part: seen.setdefault(part, set()).add(y.dtype))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", enabled=kind == torch.float16)
    losses = []
    with torch.autocast("cpu", kind):  # the whole loop; the schedule in it must not matter either
        schedule = rbnn.BinarySchedule(model, optimizer, 4)
        for step in range(4):
            schedule.step(step)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(PICTURES), LABELS) + rbnn.penalty(model)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(float(loss.detach()))
    assert losses[-1] < losses[0], losses
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    binary = {part for part, _ in binary_layers(model)}
    assert {part for part, kinds in seen.items() if kinds == {torch.float32}} >= binary
    assert seen["0"] == seen["11"] == {kind}  # the first and the last layer, which are float


@every_method
def test_a_binary_layer_under_autocast_computes_as_without(name: str) -> None:
    model = network(name)
    layer = model[3]
    x = torch.randn(2, 8, 6, 6).bfloat16()
    layer.method.begin_epoch(layer.weight, 0, 2)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    assert torch.equal(found, layer(x.float()))


@every_variant
def test_a_state_dict_is_a_safetensors_file(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = network(name, options)
    train(model)
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = network(name, options, seed=1)
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert torch.equal(answers(other), answers(model))
    assert [layer.method.progress for _, layer in binary_layers(other)] == [2 / 3] * 3


@every_variant
def test_torch_saves_states_and_networks(name: str, options: dict[str, Any]) -> None:
    model = network(name, options)
    train(model)
    state, whole = io.BytesIO(), io.BytesIO()
    torch.save(model.state_dict(), state)
    torch.save(model, whole)
    state.seek(0), whole.seek(0)
    other = network(name, options, seed=1)
    other.load_state_dict(torch.load(state, weights_only=True))
    pickled = torch.load(whole, weights_only=False)
    assert torch.equal(answers(other), answers(model))
    assert torch.equal(answers(pickled), answers(model))
    assert train(pickled.train()) == train(model.train())


@every_variant
def test_a_deep_copy_is_independent(name: str, options: dict[str, Any]) -> None:
    model = network(name, options)
    train(model)
    twin = copy.deepcopy(model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    train(twin.train())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for (_, layer), (_, copied) in zip(binary_layers(model), binary_layers(twin), strict=True):
        assert copied.method.linear.__self__ is copied  # type: ignore[union-attr]
        assert layer.method.linear.__self__ is layer  # type: ignore[union-attr]


@every_variant
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_another_dtype_trains(name: str, options: dict[str, Any], kind: torch.dtype) -> None:
    model = network(name, options).to(kind)
    losses = train(model)
    assert all(map(isfinite, losses))
    assert losses[-1] < losses[0], losses
    assert {p.dtype for p in model.parameters()} == {kind}
    assert answers(model).dtype == kind
    assert {v.dtype for k, v in model.state_dict().items() if k.endswith("_extra_state")} == {torch.uint8}


@every_method
def test_a_network_is_made_on_the_device_of_its_weights_and_moves(name: str) -> None:
    model = network(name).to("meta")
    assert {tensor.device.type for tensor in [*model.parameters(), *model.buffers()]} == {"meta"}
    model = model.to_empty(device="cpu")
    trained = network(name)
    train(trained)
    model.load_state_dict(trained.state_dict())
    assert torch.equal(answers(model), answers(trained))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "rbnn"])
def test_the_state_of_another_method_is_refused(name: str) -> None:
    """Even if the names of the tensors would match."""
    given, taken = network("rbnn"), network(name)
    with pytest.raises(
        RuntimeError, match=rf"3.method._extra_state \(saved with method = 'rbnn', .* '{re.escape(name)}'"
    ):
        taken.load_state_dict(given.state_dict())
    with pytest.raises(RuntimeError, match=rf"saved with method = '{re.escape(name)}', .* method = 'rbnn'"):
        given.load_state_dict(taken.state_dict())


@every_method
def test_the_state_of_another_method_gives_its_weights_when_asked(name: str) -> None:
    given, taken = network("bnn", seed=1), network(name)
    taken.load_state_dict(given.state_dict(), strict=False)
    for part, value in given.named_parameters():
        assert torch.equal(taken.get_parameter(part), value)
    train(taken)


@every_method
def test_parametrizations_of_other_layers_stay(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16),
        nn.Flatten(), parametrizations.weight_norm(nn.Linear(64, 4)),
    )  # fmt: skip
    parametrizations.spectral_norm(model[0])
    parametrizations.orthogonal(model[1])
    report = rbnn.binarize_(model, name, keep=["0"])
    assert report.changed == ["3"]
    assert "its weight is computed" in report.kept["1"]
    show_example(model, PICTURES)
    losses = train(model, steps=5)
    assert losses[-1] < losses[0], losses
    assert all(parametrize.is_parametrized(model[i]) for i in (0, 1, 6))
    other = copy.deepcopy(model)
    other.load_state_dict(model.state_dict())
    expected = answers(model)
    assert torch.equal(answers(other), expected)
    parametrize.remove_parametrizations(model[6], "weight")
    torch.testing.assert_close(answers(model), expected)
