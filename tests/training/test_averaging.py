"""The average of the weights: its formula, and that a run evaluates it, saves it and resumes with it."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import log_of, small, state_of
from stopped_run import assert_resumes_bit_for_bit
from torch import nn

import rbnn
from rbnn import data
from rbnn.errors import ConfigError
from rbnn.training.averaging import Average
from rbnn.training.batches import Batches
from rbnn.training.checkpoint import load_network
from rbnn.training.distributed import processes
from rbnn.training.evaluate import evaluate
from rbnn.training.loop import train


def test_it_is_the_formula() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    average = Average(model, 0.9)
    wanted = {name: tensor.double().numpy() for name, tensor in model.state_dict().items() if "tracked" not in name}
    for step in range(200):
        for tensor in model.state_dict().values():
            tensor.copy_(torch.randn(tensor.shape) if tensor.is_floating_point() else tensor + 1)
        average.update(model, step)
        d = min(0.9, (1 + step) / (10 + step))
        wanted = {name: d * wanted[name] + (1 - d) * model.state_dict()[name].double().numpy() for name in wanted}
    found = average.refresh(model).state_dict()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name].double().numpy(), values, atol=1e-6)
    assert int(found["1.num_batches_tracked"]) == 200  # counts are not averaged


def test_rotations_are_the_networks_own() -> None:
    model = rbnn.create_model("resnet20-bireal", image_size=8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = rbnn.BinarySchedule(model, optimizer, 4)
    average = Average(model, 0.5)
    before = copy.deepcopy(model.state_dict())
    schedule.step(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    average.update(model, 100)
    kept = average.refresh(model)
    for name, tensor in kept.state_dict().items():
        if name.endswith(("R1", "R2", "rotated_at")):
            assert torch.equal(tensor, model.state_dict()[name])
        elif name.endswith(("weight", "beta", "scale")):
            torch.testing.assert_close(tensor, (before[name] + model.state_dict()[name]) / 2)
    assert [m.progress for m in kept.modules() if hasattr(m, "progress")] == [0.0] * 18


def test_what_is_logged_and_kept_is_the_average(tmp_path: Path) -> None:
    averaged, plain = tmp_path / "averaged", tmp_path / "plain"
    train(small(averaged, average=0.8))
    train(small(plain))
    last = state_of(averaged / "last.pt")
    own = state_of(plain / "last.pt")["model"]
    trained = {name: tensor for name, tensor in last["model"].items() if not name.endswith("_extra_state")}
    assert all(torch.equal(tensor, own[name]) for name, tensor in trained.items())  # training itself is the same
    kept = load_network(averaged / "last.pt").model.state_dict()
    assert all(torch.equal(kept[name], tensor) for name, tensor in last["average"].items())
    assert not torch.equal(kept["fc.weight"], last["model"]["fc.weight"])
    digits = data.load("digits", Path("data"), "test")
    for name, entry in (("last.pt", log_of(averaged)[-1]), ("best.pt", max(log_of(averaged), key=lambda e: e["top1"]))):
        with processes("cpu") as those:
            found = evaluate(load_network(averaged / name).model, Batches(digits, 64, train=False, seed=0), those)
        assert (found["top1"], found["loss"]) == (entry["top1"], pytest.approx(entry["test_loss"], rel=1e-5))


def test_a_run_with_an_average_resumes_bit_for_bit(tmp_path: Path) -> None:
    assert_resumes_bit_for_bit(tmp_path, average=0.9)


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_decays_that_cannot_be(decay: float, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="average must be 0 or more and below 1"):
        small(tmp_path, average=decay)
