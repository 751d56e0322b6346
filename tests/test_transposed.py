"""The binary transposed convolution against loops over explicit signs and against plain binary convolutions."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn
from rbnn.errors import ConfigError
from rbnn.methods import method_names
from rbnn.nn import BinaryConv2d, BinaryConvTranspose2d
from rbnn.training.silent_weights import SilentWeights

PLAIN = {"rotation": "none", "alpha": "none", "standardise": False}
OPTIONS: dict[str, dict[str, Any]] = {
    "rbnn": PLAIN, "xnor-net": {"k_map": True}, "abc-net": {"weight_bases": 2, "activation_bases": 2},
}  # fmt: skip


def explicit_signs(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, 1.0, -1.0)


def loop(a: np.ndarray, w: np.ndarray, size: tuple[int, ...], stride: int, padding: int, dilation: int) -> np.ndarray:
    """Every input contributes to the outputs that its taps reach; w is (inputs, outputs, height, width)."""
    out = np.zeros((len(a), w.shape[1], *size))
    for n, c, y, x in np.ndindex(*a.shape):
        for o, i, j in np.ndindex(*w.shape[1:]):
            row, column = y * stride + i * dilation - padding, x * stride + j * dilation - padding
            if 0 <= row < size[0] and 0 <= column < size[1]:
                out[n, o, row, column] += a[n, c, y, x] * w[c, o, i, j]
    return out


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "more", "dilation", "bias"),
    [
        (3, 1, 1, 0, 1, True),
        (3, 2, 1, 1, 1, False),
        (4, 2, 1, 0, 1, True),
        (1, 3, 0, 2, 1, True),
        (3, 3, 2, 0, 2, False),
    ],
)
@pytest.mark.parametrize("method", ["bnn", "xnor-net"])
def test_it_is_a_loop_over_signs(
    kernel: int, stride: int, padding: int, more: int, dilation: int, bias: bool, method: str
) -> None:
    shape = 5, 4, kernel, stride, padding, more
    layer = BinaryConvTranspose2d(*shape, bias=bias, dilation=dilation, method=method, dtype=torch.float64).eval()
    x = torch.randn(2, 5, 4, 3, dtype=torch.float64)
    x[0, 0, 0, 0] = 0  # sign(0) = −1
    w = layer.weight.detach().numpy()
    assert w.shape == nn.ConvTranspose2d(5, 4, kernel).weight.shape
    magnitude = np.abs(w).mean((0, 2, 3))[:, None, None] if method == "xnor-net" else 1
    got = layer(x).detach().numpy()
    expected = loop(explicit_signs(x.numpy()), explicit_signs(w) * magnitude, got.shape[2:], stride, padding, dilation)
    expected += 0 if layer.bias is None else layer.bias.detach().numpy()[:, None, None]
    assert got.shape[2:] == nn.ConvTranspose2d(*shape, dilation=dilation)(x.float()).shape[2:]
    np.testing.assert_allclose(got, expected, atol=1e-12)


def as_transposed(weight: Tensor) -> Tensor:
    """The weight of an ordinary convolution that equals a transposed one of stride 1."""
    return weight.transpose(0, 1).flip(2, 3)


def trained(layer: nn.Module, x: Tensor, target: Tensor, silent: bool) -> nn.Module:
    model = nn.Sequential(layer, nn.BatchNorm2d(6, dtype=torch.float64))
    with torch.no_grad():
        model(x)  # XNOR-Net++ records the size
    optimizer = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs=2)
    if silent:
        SilentWeights(model, optimizer, floor=0.1, decay=0.1, memory=0.5, below=0.5)
    for epoch in (0, 1):
        schedule.step(epoch)
        for _ in range(2):
            loss = F.mse_loss(model(x), target) + rbnn.penalty(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return layer


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("method", [name for name in method_names() if name != "float"])
def test_it_trains_like_a_plain_convolution(method: str, silent: bool) -> None:
    options = OPTIONS.get(method, {})
    plain = BinaryConv2d(10, 6, 3, padding=1, method=method, options=options, dtype=torch.float64)
    turned = BinaryConvTranspose2d(10, 6, 3, padding=1, method=method, options=options, dtype=torch.float64)
    with torch.no_grad():
        turned.weight.copy_(as_transposed(plain.weight))
        turned.bias.copy_(plain.bias)
    turned.restart_method()
    before = plain.weight.detach().clone()
    x, target = torch.randn(3, 10, 5, 4, dtype=torch.float64), torch.randn(3, 6, 5, 4, dtype=torch.float64)
    trained(plain, x, target, silent)
    trained(turned, x, target, silent)
    assert not torch.equal(plain.weight, before)
    torch.testing.assert_close(turned.weight, as_transposed(plain.weight))
    torch.testing.assert_close(turned.eval()(x), plain.eval()(x))


def test_rotations_are_those_of_the_filters() -> None:
    layer = BinaryConvTranspose2d(12, 5, 3)
    torch.testing.assert_close(layer.method.scale, layer.weight.abs().mean((0, 2, 3)))
    assert layer.method.beta.shape == (5,)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    rbnn.BinarySchedule(layer, optimizer, epochs=1).step(0)
    layer(torch.randn(2, 12, 4, 4)).square().sum().backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in (layer.weight, layer.method.scale))


@pytest.mark.parametrize("how", ["position", "name"])
def test_an_output_size_chooses_the_padding(how: str) -> None:
    layer = BinaryConvTranspose2d(8, 4, 3, 2, 1, method="bnn").eval()
    x = torch.randn(2, 8, 5, 5)
    size = [10, 9]
    got = layer(x, size) if how == "position" else layer(x, output_size=size)
    longer = copy.deepcopy(layer)
    longer.output_padding = (1, 0)
    assert got.shape[2:] == (10, 9)
    torch.testing.assert_close(got, longer(x))
    torch.testing.assert_close(layer(x[0], size), got[0])


def test_xnor_nets_k_needs_the_layers_own_size() -> None:
    layer = BinaryConvTranspose2d(8, 4, 3, 2, 1, method="xnor-net", options={"k_map": True}).eval()
    with pytest.raises(ConfigError, match=r"K has the size \(9, 9\), but the output \(10, 9\).* output_padding"):
        layer(torch.randn(2, 8, 5, 5), [10, 9])


def test_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"takes groups=1, got 2: use one layer for each group"):
        BinaryConvTranspose2d(8, 8, 2, groups=2)


def test_a_float_state_loads() -> None:
    layer, trained_before = BinaryConvTranspose2d(6, 10, 2, method="bnn"), nn.ConvTranspose2d(6, 10, 2)
    layer.load_state_dict(trained_before.state_dict(), strict=False)
    assert torch.equal(layer.weight, trained_before.weight)
