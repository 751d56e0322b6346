"""Bop flips the right signs, and a pair of optimisers behaves like one."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rbnn
from rbnn.errors import ConfigError
from rbnn.nn import BinaryLinear
from rbnn.optim import Bop, Pair, split


def test_it_flips_exactly_where_w_times_m_exceeds_the_threshold() -> None:
    random = np.random.default_rng(0)
    start = random.standard_normal((7, 5))
    w = nn.Parameter(torch.from_numpy(start.copy()))
    bop = Bop([w], threshold=0.02, gamma=0.1)
    expected, m = np.where(start > 0, 1.0, -1.0), np.zeros((7, 5))
    np.testing.assert_array_equal(w.detach(), expected)
    flips = 0
    for _ in range(20):
        g = random.standard_normal((7, 5))
        w.grad = torch.from_numpy(g.copy())
        bop.step()
        m = 0.9 * m + 0.1 * g
        flip = expected * m > 0.02
        flips += int(flip.sum())
        expected = np.where(flip, -expected, expected)
        np.testing.assert_array_equal(w.detach(), expected)
    assert 50 < flips < 600


def test_at_the_threshold_nothing_flips() -> None:
    w = nn.Parameter(torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0]))
    bop = Bop([w], threshold=0.5, gamma=0.5)
    w.grad = torch.tensor([1.0, 1.001, -1.0, -1.001, -9.0])  # m = g/2
    bop.step()
    assert w.tolist() == [1, -1, -1, 1, 1]


def test_half_precision_weights_keep_an_average_that_can_be_small() -> None:
    w = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    bop = Bop([w])
    w.grad = torch.tensor([2e-4, 5e-5, -1.0], dtype=torch.bfloat16)  # m = 2e-8, 5e-9
    bop.step()
    assert w.tolist() == [-1, 1, 1]
    assert bop.state[w]["average"].dtype is torch.float32


@pytest.mark.parametrize("values", [{"threshold": -1.0}, {"gamma": 0.0}, {"gamma": 1.5}])
def test_values_that_cannot_be(values: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="Bop"):
        Bop([nn.Parameter(torch.ones(1))], **values)


def built() -> tuple[nn.Sequential, Pair, rbnn.BinarySchedule]:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), BinaryLinear(16, 16, bias=False, method="bnn"),
        nn.BatchNorm1d(16), nn.Linear(16, 3),
    )  # fmt: skip
    bits, rest = split(model)
    assert [w.shape for w in bits] == [(16, 16)]
    assert len(bits) + len(rest) == len(list(model.parameters()))
    optimizer = Pair(Bop(bits, threshold=1e-4, gamma=0.05), torch.optim.Adam(rest, 0.01))
    return model, optimizer, rbnn.BinarySchedule(model, optimizer, 4)


X = torch.randn(64, 6, generator=torch.Generator().manual_seed(3))
Y = (X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] > 1).long()


def train(state: Any, steps: int) -> list[float]:
    model, optimizer, schedule = state
    schedule.step(0)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_a_network_learns_with_weights_that_are_bits_throughout() -> None:
    state = built()
    before = state[0][2].weight.detach().clone()
    losses = train(state, 60)
    after = state[0][2].weight.detach()
    assert set(after.unique().tolist()) == {-1.0, 1.0}
    assert 0 < int((before != after).sum()) < 200
    assert losses[-1] < 0.6 * losses[0]


def test_a_pair_resumes_bit_for_bit_and_shares_its_groups() -> None:
    whole, first, second = built(), built(), built()
    train(whole, 8)
    train(first, 5)
    second[0].load_state_dict(first[0].state_dict())
    second[1].load_state_dict(first[1].state_dict())
    train(second, 3)
    for name, value in whole[0].state_dict().items():
        assert torch.equal(value, second[0].state_dict()[name]), name
    for group in second[1].param_groups:
        group["lr"] = 0.125
    assert second[1].both[1].param_groups[0]["lr"] == 0.125


def test_a_closure_is_called_once() -> None:
    model, optimizer, schedule = built()
    schedule.step(0)
    calls = []

    def closure() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), Y)
        loss.backward()
        calls.append(float(loss.detach()))
        return calls[-1]

    assert optimizer.step(closure) == calls[0]
    assert len(calls) == 1


def test_a_scheduler_of_learning_rates_takes_a_pair() -> None:
    model, optimizer, schedule = built()
    schedule.step(0)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    before = optimizer.both[1].param_groups[0]["lr"]
    nn.functional.cross_entropy(model(X), Y).backward()
    optimizer.step()
    rates.step()
    assert 0 < optimizer.both[1].param_groups[0]["lr"] < before
