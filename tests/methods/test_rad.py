"""RAD: plain signs, and the penalty on the outputs of batch norms."""

import copy

import numpy as np
import pytest
import torch
from formulas import SHAPES, assert_activation, assert_weight, made, numbers, signs
from torch import nn

import rbnn
from rbnn.errors import ConfigError
from rbnn.methods.rad import distribution_loss
from rbnn.nn import BinaryConv2d, BinaryLinear, binary_layers


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_signs_by_identity_and_a_clamp(shape: tuple[int, ...]) -> None:
    w, g = numbers(*shape), numbers(*shape, seed=1)
    rad = made("rad", w)
    assert_weight(rad, w, signs(w), g, g)
    assert_activation(rad, "ste")
    latent = torch.from_numpy(3 * w)
    rad.after_step(latent)
    np.testing.assert_array_equal(latent, np.clip(3 * w, -1, 1))
    assert rad.penalty(latent) is None  # it is not part of a network yet


def loss_by_loops(x: np.ndarray) -> float:
    total = 0.0
    for c in range(x.shape[1]):
        values = x[:, c].ravel()
        mu = values.sum() / len(values)
        sigma = np.sqrt(((values - mu) ** 2).sum() / len(values) + 1e-10)
        total += max(2 - abs(mu) - sigma, 0) ** 2 + max(sigma - 4, 0) ** 2 + max(mu**2 - sigma**2, 0)
    return total / x.shape[1]


@pytest.mark.parametrize("shape", [(6, 5, 3, 2), (7, 5)])
def test_the_loss_and_its_gradient(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape)
    # A channel for each part: mismatch, saturation, degeneration, none, and a constant one.
    spread = np.array([0.3, 9.0, 0.5, 3.0, 0.0]).reshape(-1, *[1] * (x.ndim - 2))
    x = x * spread + np.array([0.1, 0.0, 4.0, -0.5, 0.7]).reshape(-1, *[1] * (x.ndim - 2))
    tensor = torch.from_numpy(x.copy()).requires_grad_()
    value = distribution_loss(tensor)
    assert float(value.detach()) == pytest.approx(loss_by_loops(x), rel=1e-12)
    value.backward()
    assert tensor.grad is not None
    for index in [(0, 0), (1, 1), (2, 2), (3, 3), (5, 0)]:
        where = index + (1,) * (x.ndim - 2)
        up, down = x.copy(), x.copy()
        up[where] += 1e-6
        down[where] -= 1e-6
        assert float(tensor.grad[where]) == pytest.approx((loss_by_loops(up) - loss_by_loops(down)) / 2e-6, abs=1e-7)


class Residual(nn.Module):
    """Two binary layers followed by batch norms (one after a pool), and one without."""

    def __init__(self, **options: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = BinaryConv2d(8, 8, 3, padding=1, method="rad", options=options)
        self.bn2 = nn.BatchNorm2d(8)
        self.conv3 = BinaryConv2d(8, 16, 3, method="rad", options=options)
        self.pool = nn.MaxPool2d(2)
        self.bn3 = nn.BatchNorm2d(16)
        self.bare = BinaryLinear(16, 12, method="rad", options=options)
        self.fc = nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.bn1(self.conv1(x)).clamp(-1, 1)
        x = (x + self.bn2(self.conv2(x))).clamp(-1, 1)
        x = self.bn3(self.pool(self.conv3(x))).clamp(-1, 1)
        return self.fc(self.bare(x.mean((2, 3))))  # type: ignore[no-any-return]


def built(**options: float) -> tuple[Residual, torch.optim.SGD, rbnn.BinarySchedule]:
    model = Residual(**options).double()
    with torch.no_grad():
        for norm in (model.bn2, model.bn3):
            nn.init.normal_(norm.weight, 1.0, 2.0)
            nn.init.normal_(norm.bias, 0.0, 2.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    return model, optimizer, rbnn.BinarySchedule(model, optimizer, 4)


X = torch.from_numpy(np.random.default_rng(1).standard_normal((5, 1, 8, 8)))


def test_the_penalty_is_the_mean_over_the_batch_norms_behind_binary_layers() -> None:
    model, _, schedule = built(strength=3.0)
    schedule.step(0)
    seen = {}
    for name in ("bn1", "bn2", "bn3"):
        norm = model.get_submodule(name)
        norm.register_forward_hook(lambda m, i, out, name=name: seen.__setitem__(name, out.detach().numpy().copy()))
    model(X)
    penalty = torch.as_tensor(rbnn.penalty(model))
    expected = 3 * (loss_by_loops(seen["bn2"]) + loss_by_loops(seen["bn3"])) / 2
    assert float(penalty.detach()) == pytest.approx(expected, rel=1e-10)
    penalty.backward()
    assert model.bn2.weight.grad is not None
    assert float(model.bn2.weight.grad.abs().max()) > 0.01


def test_it_is_off_at_the_end_and_outside_training() -> None:
    model, optimizer, schedule = built(until=0.5)
    schedule.step(1)
    model(X)
    assert float(torch.as_tensor(rbnn.penalty(model)).detach()) > 0
    optimizer.step()
    model(X).sum().backward()
    with pytest.raises(ConfigError, match=r"rbnn\.penalty"):
        optimizer.step()  # this time without being requested
    schedule.step(2)
    model(X)
    assert rbnn.penalty(model) == 0.0
    schedule.step(1)
    model.eval()(X)
    with torch.no_grad():
        model.train()(X)
    assert rbnn.penalty(model) == 0.0


def test_a_second_schedule_does_not_count_twice_and_a_copy_counts_for_itself() -> None:
    model, optimizer, _ = built()
    schedule = rbnn.BinarySchedule(model, optimizer, 4)
    schedule.step(0)
    assert len(model.bn2._forward_hooks) == 1
    model(X)
    twin = copy.deepcopy(model)  # in the middle of a step
    assert rbnn.penalty(twin) == 0.0
    before = float(torch.as_tensor(rbnn.penalty(model)).detach())
    twin(2 * X + 1)
    assert float(torch.as_tensor(rbnn.penalty(model)).detach()) == before
    assert float(torch.as_tensor(rbnn.penalty(twin)).detach()) != before


def test_networks_that_cannot_be_penalised_are_refused() -> None:
    bare = nn.Sequential(nn.Linear(3, 8), BinaryLinear(8, 8, method="rad"), nn.Linear(8, 2))
    with pytest.raises(ConfigError, match="batch norms that follow binary layers"):
        rbnn.BinarySchedule(bare, torch.optim.SGD(bare.parameters(), 0.1), 2)
    pinned = nn.Sequential(BinaryLinear(8, 8, method="rad"), nn.BatchNorm1d(8, affine=False))
    with pytest.raises(ConfigError, match="learned gamma"):
        rbnn.BinarySchedule(pinned, torch.optim.SGD(pinned.parameters(), 0.1), 2)


@pytest.mark.parametrize("name", ["resnet20", "resnet20-bireal", "resnet18-cifar", "vgg-small", "resnet18"])
def test_every_binary_layer_of_a_named_network_has_its_batch_norm(name: str) -> None:
    model = rbnn.create_model(name, "rad")
    layers = [layer for _, layer in binary_layers(model)]
    norms = [layer.method.norm_behind(model) for layer in layers]  # type: ignore[operator]
    assert None not in norms
    assert len(set(map(id, norms))) == len(layers)
