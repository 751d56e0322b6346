"""Convolutions with their own padding: how they pad, and what they compute with signs."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from same_padding import MORE, PADDING, WEIGHED, Causal, Counting, Masked, Plain, SameByFunction, SameByModule
from torch import nn

import rbnn
from rbnn.errors import NotBinary
from rbnn.methods import method_names
from rbnn.nn import BinaryConv1d, BinaryConv2d
from rbnn.padding import padding_of


def test_what_is_padded_is_found() -> None:
    layer = SameByFunction(16, 12, (3, 4), 2)
    assert padding_of(layer, SameByFunction, (8, 8)) == [(0, 1), (1, 1)]
    assert padding_of(layer, SameByFunction, (7, 9)) == [(1, 1), (1, 2)]
    assert padding_of(SameByModule(16, 12, 3), SameByModule, (5, 6)) == [(1, 2), (0, 1)]
    assert padding_of(Causal(16, 12, 3, dilation=5), Causal, (20,)) == [(10, 0)]
    assert padding_of(nn.Conv2d(16, 12, 3, 2, padding=(1, 0)), nn.Conv2d, (9, 8)) == [(1, 1), (0, 0)]


@pytest.mark.parametrize("layer", PADDING, ids=repr)
@pytest.mark.parametrize("size", [(9, 8), (12, 7)])
def test_the_signs_are_padded_with_zeros(layer: nn.Conv2d, size: tuple[int, int]) -> None:
    model = nn.Sequential(copy.deepcopy(layer))
    assert rbnn.binarize_(model, "bnn", keep=[]).changed == ["0"]
    assert type(model[0]) is BinaryConv2d
    x = torch.randn(2, 16, *size)
    found = padding_of(layer, type(layer), size)
    assert found is not None
    (top, bottom), (left, right) = found
    signs = F.pad(torch.where(x > 0, 1.0, -1.0), (left, right, top, bottom))
    w = torch.where(layer.weight > 0, 1.0, -1.0)
    wanted = F.conv2d(signs, w, layer.bias, layer.stride, 0, layer.dilation, layer.groups)
    got = model.eval()(x)
    assert got.shape == layer(x).shape
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("layer", MORE, ids=repr)
def test_a_forward_that_does_more_stays_float(layer: nn.Conv2d) -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 3), copy.deepcopy(layer))
    report = rbnn.binarize_(model, keep=[])
    assert report.kept == {"1": f"{type(layer).__name__} has its own forward, which does more than pad with zeros"}
    assert type(model[1]) is type(layer)


def test_a_network_of_such_layers_says_so() -> None:
    with pytest.raises(NotBinary, match=r"1: Masked has its own forward.* write nn.Conv2d and nn.Linear in place"):
        rbnn.binarize_(nn.Sequential(nn.Conv2d(3, 16, 3), Masked(16, 16, 3), nn.Linear(8, 2)))


@pytest.mark.parametrize("layer", WEIGHED, ids=repr)
def test_the_method_takes_the_place_of_a_standardised_weight(layer: nn.Conv2d) -> None:
    model, x = nn.Sequential(copy.deepcopy(layer)).eval(), torch.randn(2, 16, 8, 9)
    report = rbnn.binarize_(model, "bnn", keep=[])
    assert report.changed == ["0"]
    assert report.notes == [
        f"{type(layer).__name__} computed another weight from its own, and the method takes the place of that: '0'"
    ]
    signs, w = (torch.where(each > 0, 1.0, -1.0) for each in (x, layer.weight))
    wanted = F.conv2d(signs, w, layer.bias, layer.stride, layer.padding, groups=layer.groups)
    torch.testing.assert_close(model(x), wanted)


def test_trying_a_forward_leaves_its_buffers_alone() -> None:
    model = nn.Sequential(Counting(16, 12, 3), nn.Flatten(), nn.Linear(12, 2))
    rbnn.binarize_(model, keep=["2"])
    assert isinstance(model[0], BinaryConv2d)
    assert float(model[0].seen) == 0


def test_a_padding_mode_that_a_forward_ignores_is_not_adopted() -> None:
    """It pads with zeros before and after, not circularly as it was told."""
    layer = Plain(16, 12, 3, padding=1, padding_mode="circular")
    model, x = nn.Sequential(copy.deepcopy(layer)).eval(), torch.randn(2, 16, 8, 9)
    report = rbnn.binarize_(model, "bnn", keep=[])
    signs, w = (torch.where(each > 0, 1.0, -1.0) for each in (x, layer.weight))
    torch.testing.assert_close(model(x), F.conv2d(signs, w, layer.bias, padding=1))
    assert report.notes == []


def test_a_forward_that_only_calls_torch_needs_no_note() -> None:
    model = nn.Sequential(Plain(16, 12, 3, padding=1))
    assert rbnn.binarize_(model, "bnn", keep=[]).notes == []
    assert model[0].pads_like is None  # it has the fast kernel


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("method", [name for name in method_names() if name not in ("float", "xnor++")])
def test_same_padding_without_a_stride_trains_like_torchs(method: str) -> None:
    """torch's padding "same" also puts an odd pixel at the end."""
    ours = nn.Sequential(SameByFunction(10, 6, (4, 3)))
    theirs = nn.Sequential(nn.Conv2d(10, 6, (4, 3), padding="same"))
    theirs.load_state_dict(ours.state_dict())
    x, target = torch.randn(3, 10, 5, 4), torch.randn(3, 6, 5, 4)
    for model in (ours, theirs):
        options = {"k_map": True} if method == "xnor-net" else {}
        rbnn.binarize_(model, method, keep=[], **options)
        if method == "rad":
            model.append(nn.BatchNorm2d(6))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        rbnn.BinarySchedule(model, optimizer, epochs=1).step(0)
        for _ in range(2):
            optimizer.zero_grad()
            (F.mse_loss(model(x), target) + rbnn.penalty(model)).backward()
            optimizer.step()
    torch.testing.assert_close(ours[0].weight, theirs[0].weight)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_it_is_copied_and_pickled() -> None:
    model = nn.Sequential(SameByFunction(16, 12, 3, 2)).eval()
    rbnn.binarize_(model, keep=[])
    x = torch.randn(2, 16, 8, 8)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(again(x), model(x))


def test_signals() -> None:
    model = nn.Sequential(Causal(16, 12, 3, dilation=2)).eval()
    rbnn.binarize_(model, "bnn", keep=[])
    assert type(model[0]) is BinaryConv1d
    x = torch.randn(2, 16, 9)
    with torch.no_grad():
        before = model(x)
        x[:, :, 5] = -x[:, :, 5]
        after = model(x)
    assert np.flatnonzero((before != after).any(0).any(0).numpy()).tolist() == [5, 7]  # 9 would be next


def test_trying_a_forward_leaves_no_trace() -> None:
    torch.manual_seed(0)
    layer, first = SameByFunction(16, 12, 3, 2), torch.randn(1)
    torch.manual_seed(0)
    again = SameByFunction(16, 12, 3, 2)
    rbnn.binarize_(nn.Sequential(again), "bnn", keep=[])
    assert torch.equal(torch.randn(1), first)
    assert torch.equal(again.weight, layer.weight)
