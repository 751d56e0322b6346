"""Binary layers against convolutions of explicit signs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn
from rbnn.errors import ConfigError, UnknownName
from rbnn.methods import METHODS, Method, method_names, register_method
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryLinear, binary_layers, evaluation_mode, show_example

PLAIN = {"rotation": "none", "alpha": "none", "standardise": False}


def explicit_signs(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, 1.0, -1.0)


def loop_convolution(
    a: np.ndarray, w: np.ndarray, bias: np.ndarray | None, stride: int, padding: int, dilation: int, groups: int
) -> np.ndarray:
    """A convolution as six loops; taps outside the image count as 0."""
    filters, channels, height, width = w.shape
    size = [(a.shape[d] + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for d, k in ((2, height), (3, width))]
    out = np.zeros((len(a), filters, *size))
    for n, o, y, x in np.ndindex(*out.shape):
        first = o // (filters // groups) * channels
        for c, i, j in np.ndindex(channels, height, width):
            row, column = y * stride - padding + i * dilation, x * stride - padding + j * dilation
            if 0 <= row < a.shape[2] and 0 <= column < a.shape[3]:
                out[n, o, y, x] += a[n, first + c, row, column] * w[o, c, i, j]
        out[n, o, y, x] += 0 if bias is None else bias[o]
    return out


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "bias"),
    [(1, 1, 1, 1, False), (2, 1, 1, 1, True), (1, 0, 2, 1, False), (2, 2, 2, 2, True), (3, 1, 1, 4, False)],
)
@pytest.mark.parametrize("method", ["rbnn", "xnor-net"])
def test_convolution_is_a_loop_over_signs(
    stride: int, padding: int, dilation: int, groups: int, bias: bool, method: str
) -> None:
    options = PLAIN if method == "rbnn" else {}
    layer = BinaryConv2d(
        8, 4, 3, stride, padding, dilation, groups, bias, method=method, options=options, dtype=torch.float64
    ).eval()
    x = torch.randn(2, 8, 7, 6, dtype=torch.float64)
    w = layer.weight.detach().numpy()
    centred = w - w.reshape(4, -1).mean(1)[:, None, None, None] if method == "rbnn" else w
    signs = explicit_signs(centred) * np.abs(w).reshape(4, -1).mean(1)[:, None, None, None]
    b = layer.bias.detach().numpy() if layer.bias is not None else None
    expected = loop_convolution(explicit_signs(x.numpy()), signs, b, stride, padding, dilation, groups)
    np.testing.assert_allclose(layer(x).detach(), expected, atol=1e-12)


WINDOWS: dict[str, dict[str, Any]] = {
    "on bits": {"padding": 2},
    "on bits, in steps": {"stride": 2, "bias": False},
    "dilated": {"padding": 3, "dilation": 3},
    "in groups": {"padding": 1, "groups": 2},
    "same": {"padding": "same"},
}


def as_picture(window: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a 1-d convolution, for images of height 1."""
    alone = {"padding": 0, "stride": 1, "dilation": 1}
    return {key: (alone[key], value) if key in alone and value != "same" else value for key, value in window.items()}


@pytest.mark.parametrize("length", [24, 100])  # rows longer than a word are convolved as floats
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("method", method_names())
def test_a_signal_is_a_picture_of_height_one(method: str, window: str, length: int) -> None:
    if method == "float":
        return
    made = WINDOWS[window]
    signal = BinaryConv1d(16, 8, 5, method=method, **made)
    picture = BinaryConv2d(16, 8, (1, 5), method=method, **as_picture(made))
    picture.weight.data = signal.weight.detach()[:, :, None].clone()
    if signal.bias is not None:
        picture.bias.data = signal.bias.detach().clone()
    picture.restart_method()
    x = torch.randn(3, 16, length, requires_grad=True)
    as_pictures = x.detach()[:, :, None].requires_grad_()
    for layer, values in ((signal, x), (picture, as_pictures)):
        show_example(layer, values)
        layer.method.begin_epoch(layer.weight.detach(), 3, 10)
    signs, expected = signal(x), picture(as_pictures)
    torch.testing.assert_close(signs, expected[:, :, 0])
    direction = torch.randn_like(signs)
    (signs * direction).sum().backward()
    (expected * direction[:, :, None]).sum().backward()
    torch.testing.assert_close(x.grad, as_pictures.grad[:, :, 0])
    torch.testing.assert_close(signal.weight.grad, picture.weight.grad[:, :, 0])
    for name, parameter in signal.method.named_parameters():
        other = picture.method.get_parameter("gamma" if name == "beta" and method == "xnor++" else name)
        torch.testing.assert_close(parameter.grad, other.grad)


def test_a_signal_without_a_batch() -> None:
    layer = BinaryConv1d(8, 8, 3).eval()
    x = torch.randn(8, 20)
    torch.testing.assert_close(layer(x), layer(x[None])[0])


def test_short_signals_are_convolved_on_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = BinaryConv1d(8, 8, 3, padding=1)
    layer.method.progress = 0.0
    expected = layer(torch.arange(8.0 * 62).sin().reshape(1, 8, 62))
    monkeypatch.setattr(layer, "_linear", None)
    torch.testing.assert_close(layer(torch.arange(8.0 * 62).sin().reshape(1, 8, 62)), expected)
    with pytest.raises(TypeError):
        layer(torch.randn(1, 8, 63))


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
def test_padding_pads_the_signs(mode: str) -> None:
    layer = BinaryConv2d(8, 4, 3, padding=1, padding_mode=mode, bias=False, method="xnor-net")
    x = torch.randn(1, 8, 5, 5)
    a = torch.where(x > 0, 1.0, -1.0)
    pads = (1, 1, 1, 1)
    a = F.pad(a, pads) if mode == "zeros" else F.pad(a, pads, mode=mode)
    w = layer.weight
    expected = F.conv2d(a, torch.where(w > 0, 1.0, -1.0) * w.abs().mean((1, 2, 3), keepdim=True))
    layer.method.progress = 0.0
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_a_product_of_signs(bias: bool) -> None:
    layer = BinaryLinear(9, 5, bias, method="rbnn", options=PLAIN, dtype=torch.float64).eval()
    x = torch.randn(4, 9, dtype=torch.float64)
    w = layer.weight.detach().numpy()
    signs = explicit_signs(w - w.mean(1, keepdims=True)) * np.abs(w).mean(1, keepdims=True)
    expected = explicit_signs(x.numpy()) @ signs.T + (layer.bias.detach().numpy() if bias else 0)
    np.testing.assert_allclose(layer(x).detach(), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("layer", "one"),
    [(BinaryConv2d(8, 4, 3), torch.randn(8, 5, 5)), (BinaryLinear(9, 5), torch.randn(9))],
)
def test_one_image_without_a_batch_is_a_batch_of_one(layer: BinaryConv2d | BinaryLinear, one: torch.Tensor) -> None:
    one = one + torch.arange(len(one)).reshape(-1, *[1] * (one.dim() - 1))  # channels differ in their means
    layer.eval()
    assert torch.equal(layer(one), layer(one[None])[0])


def test_an_empty_batch_gives_an_empty_batch() -> None:
    assert BinaryConv2d(8, 4, 3).eval()(torch.zeros(0, 8, 5, 5)).shape == (0, 4, 3, 3)


def test_every_module_gets_its_own_mode_back() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), BinaryConv2d(4, 4, 3, method="xnor++"), nn.Dropout())
    model[0].eval()

    def modes() -> list[bool]:
        return [module.training for module in model]

    with evaluation_mode(model):
        assert modes() == [False, False, False]
    assert modes() == [False, True, True]
    assert model.training
    show_example(model, torch.randn(2, 4, 5, 5))
    assert modes() == [False, True, True]
    with pytest.raises(RuntimeError), evaluation_mode(model):
        model(torch.randn(2, 3, 5, 5))
    assert modes() == [False, True, True]


def test_training_without_a_schedule_warns_once() -> None:
    layer = BinaryConv2d(8, 4, 3)
    x = torch.randn(1, 8, 5, 5)
    with torch.no_grad():
        layer(x)
    layer.eval()(x)
    with pytest.warns(UserWarning, match=r"schedule\.step\(epoch\)") as caught:
        layer.train()(x)
    assert caught[0].filename == __file__  # it points at the user's line
    layer(x)  # a second warning would be an error here


def test_one_warning_about_the_schedule_covers_all_layers_of_a_model() -> None:
    def network() -> torch.nn.Sequential:
        return torch.nn.Sequential(*(BinaryConv2d(8, 8, 3, padding=1) for _ in range(3)))

    x = torch.randn(1, 8, 5, 5)
    for _ in range(2):  # a model that is created after the warning gets its own warning
        model = network()
        with pytest.warns(UserWarning, match="binary layers are being trained without a schedule") as caught:
            model(x)
        assert len(caught) == 1
        model(x)
        assert [layer.method.progress for _, layer in binary_layers(model)] == [0.0] * 3


def test_a_schedule_that_has_not_begun_is_named() -> None:
    """The warning points at the line that calls the model, not into torch."""
    model = torch.nn.Sequential(torch.nn.Sequential(BinaryConv2d(8, 8, 3)))
    rbnn.BinarySchedule(model, torch.optim.SGD(model.parameters(), 0.1), epochs=2)
    with pytest.warns(UserWarning, match="the schedule of the binary layers has not begun: call schedule") as caught:
        model(torch.randn(1, 8, 5, 5))
    assert caught[0].filename == __file__


def test_method_is_shown_and_can_be_changed() -> None:
    layer = BinaryConv2d(8, 4, 3)
    assert "method='rbnn'" in repr(layer)
    layer.set_method("xnor-net")
    assert "method='xnor-net'" in repr(layer)
    with pytest.raises(UnknownName):
        layer.set_method("nor-net")


def test_restarting_a_method_takes_the_present_weight() -> None:
    layer = BinaryConv2d(8, 4, 3, options={"cycles": 2})
    torch.nn.init.constant_(layer.weight, 0.5)
    layer.restart_method()
    assert layer.method.scale.tolist() == [0.5] * 4  # type: ignore[operator, union-attr]
    assert layer.method.cycles == 2


def test_layers_are_found_by_name_in_order() -> None:
    model = torch.nn.Sequential(BinaryConv2d(8, 8, 3), torch.nn.ReLU(), torch.nn.Sequential(BinaryLinear(8, 2)))
    assert [name for name, _ in binary_layers(model)] == ["0", "2.0"]


class Squares(Method):
    """A toy method: unchanged weight and activation, and the sum of squares as a penalty."""

    def __init__(self, weight: torch.Tensor, *, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def weight(self, w: torch.Tensor) -> torch.Tensor:
        return w

    def activation(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def output(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return y + x.mean()

    def penalty(self, w: torch.Tensor) -> torch.Tensor | None:
        return self.factor * w.square().sum()


@pytest.fixture
def squares() -> Iterator[None]:
    register_method("squares")(Squares)
    yield
    del METHODS["squares"]


@pytest.mark.usefixtures("squares")
def test_penalty_is_the_sum_over_layers_and_has_a_gradient() -> None:
    first = BinaryLinear(9, 5, method="squares")
    second = BinaryLinear(5, 3, method="squares", options={"factor": 2.0})
    model = torch.nn.Sequential(first, BinaryLinear(5, 5, method="xnor-net"), second)
    total = rbnn.penalty(model)
    assert isinstance(total, torch.Tensor)
    torch.testing.assert_close(total, first.weight.square().sum() + 2 * second.weight.square().sum())
    total.backward()
    torch.testing.assert_close(second.weight.grad, 4 * second.weight.detach())


def test_no_penalty_is_zero() -> None:
    assert rbnn.penalty(torch.nn.Sequential(BinaryLinear(9, 5))) == 0.0


def test_the_penalty_of_a_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"penalty takes the model, got Tensor: write loss \+ rbnn.penalty\(model\)$"):
        rbnn.penalty(torch.ones(1))  # type: ignore[arg-type]


@pytest.mark.usefixtures("squares")
def test_output_sees_the_layers_input() -> None:
    layer = BinaryLinear(9, 5, method="squares").eval()
    x = torch.randn(2, 9)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias) + x.mean())


def test_a_method_without_a_word_about_activations_says_what_it_lacks() -> None:
    class WeightsAlone(Method):
        def weight(self, w: Tensor) -> Tensor:
            return w

    layer = BinaryConv2d(1, 1, 1)
    layer.adopt(WeightsAlone())
    with pytest.raises(ConfigError, match=r"WeightsAlone .* define its method binarization"):
        layer.eval()(torch.ones(1, 1, 2, 2))
