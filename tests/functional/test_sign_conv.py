"""Convolution on bits against torch's convolution of the signs in float64."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rbnn import _core
from rbnn.errors import ConfigError
from rbnn.functional import Binarization, ScaledSigns, as_tensor, estimator, sign, sign_conv2d, sign_conv_possible
from rbnn.methods import BNN
from rbnn.nn import BinaryConv2d, show_example

channels = st.sampled_from([8, 16, 24, 32, 40, 64, 72, 136])
small = st.integers(1, 3)
pairs = st.tuples(small, small)
paddings = st.tuples(st.integers(0, 4), st.integers(0, 4))
kernels = st.tuples(st.integers(1, 5), st.integers(1, 5))
sizes = st.tuples(st.integers(1, 17), st.integers(1, 40))
derivatives = st.sampled_from(["ste", "ppf", "training-aware", "ede"])

KERNELS = [name for name, supported in _core.kernels() if supported]

TENT = Binarization(estimator("training-aware", 1.0, 1.0))
STANDARDISED = Binarization(estimator("training-aware", 1.0, 1.0), standardised=True)


def signed(shape: tuple[int, ...], seed: int) -> ScaledSigns:
    """A different scale for each filter: the first is zero, some are negative."""
    random = torch.Generator().manual_seed(seed)
    signs = torch.where(torch.randn(shape, generator=random) > 0, 1.0, -1.0)
    scale = torch.randn(shape[0], generator=random)
    scale[0] = 0
    return ScaledSigns(signs, scale)


def parts(weight: ScaledSigns) -> list[Tensor]:
    return [part for part in (weight.signs, weight.scale, weight.soft) if part is not None]


def with_gradients(y: Tensor, x: Tensor, weight: ScaledSigns) -> list[Tensor]:
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(y)
    asked = [tensor for tensor in (x, *parts(weight)) if tensor.requires_grad]
    return [y.detach(), *torch.autograd.grad(y, asked, grad)]


def check(x: Tensor, w: ScaledSigns, how: Binarization, stride: tuple[int, int], padding: tuple[int, int]) -> None:
    """Gradients by the product rule, or only for the soft weight if there is one."""
    x.requires_grad_()
    for part in parts(w) if w.soft is None else [w.soft]:
        part.requires_grad_()
    assert sign_conv_possible(x, w.signs, how, padding)
    found = with_gradients(sign_conv2d(x, w, how, stride, padding), x, w)
    x64, *others = (t.detach().double().requires_grad_(t.requires_grad) for t in (x, *parts(w)))
    held = [name for name in ("signs", "scale", "soft") if getattr(w, name) is not None]
    w64 = ScaledSigns(**dict(zip(held, others, strict=True)))
    wanted = with_gradients(F.conv2d(how(x64), w64.product(), None, stride, padding), x64, w64)
    for name, a, b in zip(["y", "grad_x", *held], found, wanted, strict=False):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=2e-5 * float(b.abs().max()) + 1e-12, msg=name)
    assert len(found) == len(wanted) == (2 + len(held) if w.soft is None else 3)


@pytest.mark.parametrize("isa", KERNELS)
@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 19), channels, channels, sizes, kernels, pairs, paddings, derivatives, st.booleans(), st.booleans()
)
def test_values_and_gradients(
    isa: str,
    images: int,
    inputs: int,
    outputs: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    derivative: str,
    standardised: bool,
    last: bool,
) -> None:
    assume(all(n + 2 * p >= k for n, p, k in zip(size, padding, kernel, strict=True)))
    assume(images * inputs * size[0] * size[1] < 200_000)
    how = Binarization(estimator(derivative, 0.5, 2.0), standardised and derivative != "ede")
    x = torch.randn(images, inputs, *size, generator=torch.Generator().manual_seed(images))
    x = x.to(memory_format=torch.channels_last) if last else x
    with patch.dict("os.environ", RBNN_KERNELS=isa):
        check(x, signed((outputs, inputs, *kernel), seed=outputs), how, stride, padding)


@pytest.mark.parametrize("isa", KERNELS)
@pytest.mark.parametrize("width", [56, 62])
def test_the_widest_row(width: int, isa: str) -> None:
    x = torch.randn(2, 8, 3, width, generator=torch.Generator().manual_seed(0))
    with patch.dict("os.environ", RBNN_KERNELS=isa):
        check(x, signed((16, 8, 3, 3), seed=1), STANDARDISED, (1, 1), (1, 1))


@pytest.mark.parametrize("form", ["no scale", "one scale", "soft", "soft with one scale"])
def test_forms_of_the_weight(form: str) -> None:
    x = torch.randn(3, 16, 6, 6, generator=torch.Generator().manual_seed(0))
    given = signed((24, 16, 3, 3), seed=1)
    weight = {
        "no scale": ScaledSigns(given.signs),
        "one scale": ScaledSigns(given.signs, torch.tensor([0.3])),
        "soft": ScaledSigns(given.signs, given.scale, torch.randn(24, 16, 3, 3)),
        "soft with one scale": ScaledSigns(given.signs, torch.tensor(0.3), torch.randn(24, 16, 3, 3)),
    }[form]
    check(x, weight, TENT, (2, 1), (1, 1))


def test_a_large_kernel() -> None:
    """Most of its (31 + 1)⁴ ways to overlap the padding do not occur, so they take no memory."""
    x = torch.randn(1, 8, 32, 32, generator=torch.Generator().manual_seed(0))
    check(x, signed((8, 8, 31, 31), seed=1), TENT, (1, 1), (15, 15))
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to see how much memory is used")
    code = """
import re
from pathlib import Path
import numpy as np
from rbnn import _core

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024

def pictures(*shape):
    return np.ones(shape, np.float32).transpose(0, 3, 1, 2)

x, weight, none = pictures(1, 32, 32, 8), pictures(64, 31, 31, 8), np.empty(0, np.float32)
out, planes = pictures(1, 32, 32, 64), np.zeros(32 * 8, np.int64)
before = peak()
_core.sign_conv_forward(x, weight, None, (1, 1), (15, 15), out, planes, none, none, 1)
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 40  # MB; a table of all ways would take 256


def test_zero_is_minus_one() -> None:
    y = sign_conv2d(torch.zeros(1, 8, 1, 1), ScaledSigns(torch.ones(8, 8, 1, 1)), TENT, (1, 1), (0, 0))
    assert y.flatten().tolist() == [-8.0] * 8


def test_memory_order_is_that_of_the_input() -> None:
    x, w = torch.randn(2, 8, 4, 4), signed((8, 8, 3, 3), seed=0)
    assert sign_conv2d(x, w, TENT, (1, 1), (1, 1)).is_contiguous()
    x = x.to(memory_format=torch.channels_last)
    assert sign_conv2d(x, w, TENT, (1, 1), (1, 1)).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("isa", KERNELS)
def test_the_number_of_threads_changes_no_bit(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RBNN_KERNELS", isa)
    x, w = torch.randn(37, 16, 9, 9).requires_grad_(), signed((24, 16, 3, 3), seed=0)
    w.signs.requires_grad_()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(with_gradients(sign_conv2d(x, w, STANDARDISED, (1, 1), (1, 1)), x, w))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_only_the_gradients_that_are_asked_for() -> None:
    x, w = torch.randn(2, 8, 4, 4), signed((8, 8, 3, 3), seed=0)
    w.signs.requires_grad_()
    (grad_w,) = torch.autograd.grad(sign_conv2d(x, w, TENT, (1, 1), (1, 1)).sum(), w.signs)
    w.signs.requires_grad_(False)
    (grad_x,) = torch.autograd.grad(sign_conv2d(x.requires_grad_(), w, TENT, (1, 1), (1, 1)).sum(), x)
    assert grad_w.shape == w.signs.shape
    assert grad_x.shape == x.shape


def test_what_it_leaves_to_torch() -> None:
    x, w = torch.randn(2, 8, 6, 6), torch.ones(8, 8, 3, 3)
    padding = (1, 1)
    assert sign_conv_possible(x, w, TENT, padding)
    assert not sign_conv_possible(x.double(), w.double(), TENT, padding)
    assert not sign_conv_possible(x[:, :7], w[:, :7], TENT, padding)
    assert not sign_conv_possible(x, w[:7], TENT, padding)
    assert not sign_conv_possible(x.repeat(1, 1, 1, 11), w, TENT, padding)
    assert not sign_conv_possible(x[:0], w, TENT, padding)
    smooth = Binarization(estimator("swish-sign", 1.0, 1.0), standardised=True)
    assert not sign_conv_possible(x, w, smooth, padding)


@pytest.mark.parametrize("options", [{"dilation": 2}, {"groups": 2}, {"padding": "same"}, {"padding_mode": "circular"}])
def test_a_layer_that_is_more_than_plain(options: dict[str, object]) -> None:
    layer = BinaryConv2d(16, 16, 3, bias=False, method="bnn", **options).eval()
    x = torch.randn(2, 16, 8, 8)
    weight = as_tensor(layer.method.weight(layer.weight))
    torch.testing.assert_close(layer(x), layer._linear(layer.method.activation(x), weight))


@pytest.mark.parametrize("method", ["rbnn", "bi-real", "xnor-net", "ir-net", "xnor++", "bnn"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_layer_is_the_same_in_float64(method: str, stride: int) -> None:
    """In float64 the layer uses torch's convolution, with the same signs and the same gradients of all parameters."""
    torch.manual_seed(0)
    layer = BinaryConv2d(16, 24, 3, stride, 1, method=method, bias=True)
    x = torch.randn(4, 16, 9, 9)
    show_example(layer, x)
    layer.method.begin_epoch(layer.weight, 2, 10)
    found = []
    for kind in (torch.float32, torch.float64):
        layer = layer.to(kind)
        given = x.to(kind).requires_grad_()
        y = layer(given)
        grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(kind)
        inputs = (given, *layer.parameters())
        found.append([y.detach().double(), *[g.double() for g in torch.autograd.grad(y, inputs, grad)]])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=3e-5 * float(b.abs().max()) + 1e-12)


def test_an_activation_of_its_own_is_used() -> None:
    class Doubled(BNN):
        def binarization(self) -> None:  # type: ignore[override]
            return None

        def activation(self, x: Tensor) -> Tensor:
            return 2 * sign(x)

    layer = BinaryConv2d(8, 8, 3, bias=False, method="bnn").eval()
    x = torch.randn(1, 8, 5, 5)
    once = layer(x)
    layer.adopt(Doubled(layer.weight))
    torch.testing.assert_close(layer(x), 2 * once)


def test_an_activation_beside_an_inherited_binarization_is_refused() -> None:
    """Layers that compute with bits would never call it."""
    with pytest.raises(ConfigError, match="Doubled defines an activation but inherits a binarization"):

        class Doubled(BNN):
            def activation(self, x: Tensor) -> Tensor:
                return 2 * super().activation(x)


def test_a_weight_of_several_bases_is_computed_with_floats() -> None:
    layer = BinaryConv2d(8, 8, 3, bias=False, method="abc-net", options={"weight_bases": 3}).eval()
    weight, x = layer.method.weight(layer.weight), torch.randn(1, 8, 5, 5)
    assert isinstance(weight, Tensor)
    torch.testing.assert_close(layer(x), F.conv2d(layer.method.activation(x), weight))
