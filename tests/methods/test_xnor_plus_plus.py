"""XNOR-Net++: four shapes of Γ against explicit sums, and images of the wrong size."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from formulas import numbers, signs
from torch import nn

import rbnn
from rbnn.errors import ConfigError
from rbnn.methods import create_method
from rbnn.nn import BinaryConv2d, BinaryLinear

CASES = [1, 2, 3, 4]
FACTORS = {1: ["alpha"], 2: ["dense"], 3: ["alpha", "beta"], 4: ["alpha", "beta", "gamma"]}


def layer_of(case: int) -> Any:
    return BinaryConv2d(
        5, 3, (3, 2), (2, 1), (1, 0), bias=False, method="xnor++", options={"case": case}, dtype=torch.float64
    )


@pytest.mark.parametrize("case", CASES)
def test_forward_and_every_gradient(case: int) -> None:
    layer = layer_of(case)
    x = numbers(2, 5, 7, 6, seed=1)
    with torch.no_grad():
        layer.eval()(torch.from_numpy(x))
    method = layer.train().method
    method.begin_epoch(layer.weight, 0, 2)
    assert [name for name, _ in method.named_parameters()] == FACTORS[case]
    w = layer.weight.detach().numpy()
    start = np.abs(w).reshape(3, -1).mean(1)
    shape = (3, 4, 5)  # (7 + 2 − 3)//2 + 1, 6 − 2 + 1
    gamma = np.broadcast_to(start[:, None, None], shape)
    if case == 2:
        np.testing.assert_allclose(method.dense.detach(), gamma)
    else:
        np.testing.assert_allclose(method.alpha.detach(), start)
    random = np.random.default_rng(3)
    for parameter in method.parameters():
        parameter.data = torch.from_numpy(random.standard_normal(tuple(parameter.shape)))
    held = {name: p.detach().clone().requires_grad_() for name, p in method.named_parameters()}
    whole = {
        1: lambda: held["alpha"][:, None, None].expand(shape),
        2: lambda: held["dense"],
        3: lambda: torch.einsum("o,hw->ohw", held["alpha"], held["beta"]),
        4: lambda: torch.einsum("o,h,w->ohw", held["alpha"], held["beta"], held["gamma"]),
    }[case]()
    # Σ over taps by hand, from signs padded with zeros.
    tensor = torch.from_numpy(x).requires_grad_()
    out = layer(tensor)
    a, b = torch.from_numpy(signs(x)).requires_grad_(), torch.from_numpy(signs(w)).requires_grad_()
    padded = nn.functional.pad(a, (0, 0, 1, 1))
    taps = [
        torch.einsum("nchw,oc->nohw", padded[:, :, i : i + 7 : 2, j : j + 5], b[:, :, i, j])
        for i in range(3)
        for j in range(2)
    ]
    expected = whole * torch.stack(taps).sum(0)
    np.testing.assert_allclose(out.detach(), expected.detach(), atol=1e-12)
    g = torch.from_numpy(numbers(*out.shape, seed=4))
    out.backward(g)
    expected.backward(g)
    np.testing.assert_allclose(tensor.grad, a.grad.numpy() * (np.abs(x) <= 1), atol=1e-12)  # type: ignore[union-attr]
    np.testing.assert_allclose(layer.weight.grad, b.grad.numpy() * (np.abs(w) <= 1), atol=1e-12)  # type: ignore[union-attr]
    for name, parameter in method.named_parameters():
        np.testing.assert_allclose(parameter.grad, held[name].grad, atol=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_a_linear_layer_has_no_positions(case: int) -> None:
    layer = BinaryLinear(9, 5, False, method="xnor++", options={"case": case}, dtype=torch.float64).eval()
    x = numbers(4, 9)
    w = layer.weight.detach().numpy()
    expected = signs(x) @ signs(w).T * np.abs(w).mean(1)
    np.testing.assert_allclose(layer(torch.from_numpy(x)).detach(), expected)


@pytest.mark.parametrize("case", [2, 3, 4])
def test_other_sizes_are_refused(case: int) -> None:
    layer = layer_of(case).eval()
    layer(torch.zeros(1, 5, 7, 6, dtype=torch.float64))
    with pytest.raises(ConfigError, match="each of 4×5 positions, but this image gives 4×6"):
        layer(torch.zeros(1, 5, 7, 7, dtype=torch.float64))


def test_case_1_takes_any_size() -> None:
    layer = layer_of(1).eval()
    assert [layer(torch.zeros(1, 5, 7, w, dtype=torch.float64)).shape[3] for w in (6, 7)] == [5, 6]


@pytest.mark.parametrize("case", [2, 3, 4])
def test_parameters_that_an_optimizer_cannot_hold_are_refused(case: int) -> None:
    layer = layer_of(case)
    with pytest.raises(ConfigError, match="one batch through the model before creating the optimizer"):
        rbnn.BinarySchedule(layer, torch.optim.SGD(layer.parameters(), 0.1), 2)


@pytest.mark.parametrize("case", [2, 3, 4])
def test_the_example_may_be_a_forward_in_train_mode(case: int) -> None:
    """This is not training yet: there is no warning, and the schedule can be created afterwards."""
    layer = layer_of(case)
    assert layer.training
    x = torch.randn(1, 5, 7, 6, dtype=torch.float64)
    layer(x)
    assert not layer.method.needs_example
    schedule = rbnn.BinarySchedule(layer, torch.optim.SGD(layer.parameters(), 0.1), 2)
    schedule.step(0)
    layer(x).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


@pytest.mark.parametrize("case", CASES)
def test_a_network_by_name_is_complete_and_survives_restart_and_state(case: int) -> None:
    model = rbnn.create_model("resnet20-bireal", "xnor++", in_channels=1, image_size=9, case=case)
    assert model.training
    assert float(model.bn1.running_mean.abs().max()) == 0.0  # type: ignore[operator, union-attr]
    count = sum(p.numel() for p in model.parameters())
    for module in model.modules():
        if isinstance(module, BinaryConv2d):
            assert not module.method.needs_example
            module.restart_method()
    assert sum(p.numel() for p in model.parameters()) == count
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.rand_like(parameter))
    layer = model.layers[1][0].conv1  # type: ignore[index, union-attr]
    fresh = create_method("xnor++", layer.weight, case=case)
    fresh.load_state_dict(layer.method.state_dict())
    for name, value in layer.method.named_parameters():
        assert torch.equal(value, fresh.get_parameter(name))
    model.eval()
    x = torch.randn(2, 1, 9, 9)
    assert torch.equal(copy.deepcopy(model)(x), model(x))


def test_gamma_is_not_decayed() -> None:
    layer = layer_of(4).eval()
    layer(torch.zeros(1, 5, 7, 6, dtype=torch.float64))
    assert layer.method.decay_factors() == {"alpha": 0.0, "beta": 0.0, "gamma": 0.0}
