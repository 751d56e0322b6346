"""Costs against numbers derived by hand, and on arbitrary models."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rbnn
from rbnn.costs.model import Costs, LayerCost, costs
from rbnn.errors import ConfigError
from rbnn.methods import METHODS, Method
from rbnn.models import ACTIVATIONS, SHORTCUTS, RPReLU, create_model
from rbnn.packed import file as packfile


def by_name(found: Costs) -> dict[str, LayerCost]:
    return {layer.name: layer for layer in found.layers}


def test_resnet20_by_hand() -> None:
    found = costs(create_model("resnet20", "rbnn"), torch.zeros(1, 3, 32, 32))
    # Each 3×3 layer between stages of c channels: 9c² weights at (32·16/c)² positions.
    stages = 6 * 2304, 4608 + 5 * 9216, 18432 + 5 * 36864
    positions = 32 * 32, 16 * 16, 8 * 8
    assert found.binary_macs == sum(w * p for w, p in zip(stages, positions, strict=True)) == 40_108_032
    assert found.float_macs == 3 * 16 * 9 * 32 * 32 + 64 * 10 == 443_008
    channels = 16 + 6 * 16 + 6 * 32 + 6 * 64 + 64
    float_bytes = 4 * (432 + 650) + 8 * channels
    assert found.bytes == sum(stages) // 8 + float_bytes == 43_752
    assert found.float_bytes == sum(stages) * 4 + float_bytes == 1_079_400
    assert found.bytes_ratio == pytest.approx(1_079_400 / 43_752)
    assert found.binary_mac_share == pytest.approx(40_108_032 / 40_551_040)
    assert found.parameters == sum(stages) + 432 + 650 + 2 * channels
    assert found.float_parts() == [
        ("affines", 8 * channels, 8 * channels / 43_752),
        ("fc", 2600, 2600 / 43_752),
        ("conv1", 1728, 1728 / 43_752),
    ]


def test_resnet18_for_imagenet_by_hand() -> None:
    found = costs(create_model("resnet18", "xnor-net", num_classes=1000), torch.zeros(1, 3, 224, 224))
    layers = by_name(found)
    stem = layers["conv1"]
    assert (stem.kind, stem.bits, stem.weight, stem.output) == ("conv", 32, (64, 3, 7, 7), (64, 112, 112))
    assert stem.float_macs == 64 * 3 * 49 * 112 * 112 == 118_013_952
    shortcut = layers["layers.1.0.shortcut.0"]
    assert (shortcut.bits, shortcut.float_macs, shortcut.bytes) == (32, 64 * 128 * 28 * 28, 4 * 64 * 128)
    inner = layers["layers.3.1.conv2"]
    assert (inner.bits, inner.weight, inner.output) == (1, (512, 512, 3, 3), (512, 7, 7))
    assert (inner.binary_macs, inner.float_macs, inner.bytes) == (512 * 512 * 9 * 49, 0, 512 * 512 * 9 // 8)
    assert layers["fc"].bytes == 4 * 513_000
    assert found.binary_macs == 1_676_279_808
    assert found.float_macs == 118_013_952 + 3 * 6_422_528 + 512_000
    bits = 147_456 + 516_096 + 2_064_384 + 8_257_536
    channels = 64 + 4 * 64 + 5 * 128 + 5 * 256 + 5 * 512 + 512
    assert found.bytes == bits // 8 + 4 * (9408 + 8192 + 32768 + 131072 + 513_000) + 8 * channels
    assert found.training_only == 0  # XNOR-Net has no parameters besides the latent weights


def test_signals_by_hand() -> None:
    model = nn.Sequential(
        nn.Conv1d(6, 16, 5), nn.BatchNorm1d(16), nn.Conv1d(16, 24, 3, 2), nn.AdaptiveAvgPool1d(1), nn.BatchNorm1d(24),
        nn.Flatten(), nn.Linear(24, 4),
    )  # fmt: skip
    rbnn.binarize_(model, "bnn")
    found = costs(model, torch.zeros(1, 6, 100))
    binary = by_name(found)["2"]
    assert (binary.kind, binary.bits, binary.weight, binary.output) == ("conv", 1, (24, 16, 3), (24, 47))
    assert (binary.binary_macs, binary.float_macs) == (24 * 16 * 3 * 47, 0)
    assert binary.bytes == 24 * 16 * 3 // 8  # its scale and shift are those of the batch norm after the pool
    assert found.float_macs == 16 * 6 * 5 * 96 + 24 * 4


def test_what_the_method_holds_does_not_outlive_training() -> None:
    found = costs(create_model("resnet20", "rbnn", rotation="filter", alpha="filter"), torch.zeros(1, 3, 32, 32))
    filters = 6 * 16 + 6 * 32 + 6 * 64
    # n = 9c values: 144 = 12·12, 288 = 16·18, 576 = 24·24.
    rotations = 7 * (12**2 + 12**2) + 6 * (16**2 + 18**2) + 5 * (24**2 + 24**2)
    assert found.training_only == 2 * filters + rotations
    twin = costs(create_model("resnet20", "float"), torch.zeros(1, 3, 32, 32))
    assert (found.parameters, found.float_bytes) == (twin.parameters, twin.bytes)
    assert found.binary_macs + found.float_macs == twin.float_macs
    assert (twin.bytes_ratio, twin.binary_mac_share) == (1.0, 0.0)


# ResNet-20: six binary layers of 16, six of 32 and six of 64 filters, at 32², 16² and 8² positions.
PLANE_BYTES, FILTERS, POSITIONS = 267_264 // 8, 6 * (16 + 32 + 64), 6 * (32**2 + 16**2 + 8**2)
REST = 43_752 - PLANE_BYTES
ONE_PASS = 40_108_032


@pytest.mark.parametrize(
    ("method", "options", "weight_planes", "input_planes"),
    [
        ("abc-net", {"weight_bases": 3, "activation_bases": 3}, 3, 3),
        ("abc-net", {"weight_bases": 5, "activation_bases": 5}, 5, 5),
        ("abc-net", {"weight_bases": 3}, 3, 1),
        ("abc-net", {"activation_bases": 2}, 1, 2),
        ("abc-net", {}, 1, 1),
        ("dorefa", {"activation_bits": 1}, 1, 1),
        ("dorefa", {"activation_bits": 2}, 1, 3),  # 2 bits have four levels, so three thresholds
        ("dorefa", {"activation_bits": 4}, 1, 15),
    ],
)
def test_every_plane_counts(method: str, options: dict[str, Any], weight_planes: int, input_planes: int) -> None:
    found = costs(create_model("resnet20-bireal", method, **options), torch.zeros(1, 3, 32, 32))
    passes = weight_planes * input_planes
    assert found.binary_macs == passes * ONE_PASS
    assert found.float_macs == 443_008
    # A scale per pass and filter; the batch norm's affine takes in one of them.
    scales = 4 * FILTERS * (passes - 1)
    assert found.bytes == weight_planes * PLANE_BYTES + scales + REST
    channels = 16 + FILTERS + 64
    parts = {name: size for name, size, _ in found.float_parts()}
    assert parts == {"affines": 8 * channels + scales, "fc": 2600, "conv1": 1728}
    # ABC-Net has a threshold and a factor per input plane in each of 18 layers: several planes do not merge.
    assert found.training_only == (36 if method == "abc-net" and input_planes == 1 else 0)
    assert {layer.bits for layer in found.layers if layer.name.startswith("layers.") and layer.kind == "conv"} == {1}


@pytest.mark.parametrize(
    ("case", "factors", "scales", "training_only"),
    [
        (1, 0, 0, FILTERS),  # α goes into the affine, like any scale
        (2, 6 * (16 * 32**2 + 32 * 16**2 + 64 * 8**2), 0, FILTERS),  # dense; the start of α is not needed any more
        (3, POSITIONS, FILTERS, 0),  # α must be multiplied before the positions are
        (4, POSITIONS, FILTERS, 0),  # β_h γ_w multiplied out
    ],
)
def test_factors_per_position_stay(case: int, factors: int, scales: int, training_only: int) -> None:
    found = costs(create_model("resnet20-bireal", "xnor++", case=case), torch.zeros(1, 3, 32, 32))
    assert found.bytes == 43_752 + 4 * (factors + scales)
    assert (found.binary_macs, found.float_macs) == (ONE_PASS, 443_008)
    parts = {name: size for name, size, _ in found.float_parts()}
    assert parts.get("position factors", 0) == 4 * factors
    assert parts["affines"] == 8 * (16 + FILTERS + 64) + 4 * scales
    assert found.training_only == training_only


def test_the_map_of_magnitudes_is_a_float_convolution() -> None:
    found = costs(create_model("resnet20-bireal", "xnor-net", k_map=True), torch.zeros(1, 3, 32, 32))
    assert found.bytes == 43_752 + 18 * 4 * 9 + 4 * FILTERS  # a 3×3 box in each layer, and α before the map
    assert found.binary_macs == ONE_PASS
    assert found.float_macs == 443_008 + 9 * POSITIONS
    options = {"k_map": True}
    grouped = rbnn.BinaryConv2d(8, 6, (3, 2), groups=2, bias=False, method="xnor-net", options=options)
    (layer,) = costs(grouped, torch.zeros(1, 8, 5, 5)).layers
    weights = 6 * 4 * 3 * 2  # with groups each filter has a box of its own
    assert (layer.binary_macs, layer.float_macs) == (weights * 3 * 4, weights * 3 * 4)
    assert layer.bytes == 6 * 3 * 2 + 4 * weights + 4 * 6  # the 4 channels of a tap take a byte
    linear = rbnn.BinaryLinear(16, 5, method="xnor-net", options=options)
    (layer,) = costs(linear, torch.zeros(1, 16)).layers
    assert (layer.float_macs, layer.bytes) == (1, 10 + 4 + 4 * 5 + 8 * 5)  # a box of 1, α, and an affine for the bias


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in METHODS),
    ("rbnn", {"standardise": False}),
    ("xnor-net", {"k_map": True}),
    ("dorefa", {"activation_bits": 2}),
    ("abc-net", {"weight_bases": 3, "activation_bases": 2}),
    *(("xnor++", {"case": case}) for case in (1, 2, 3)),
]


@pytest.mark.parametrize(("method", "options"), VARIANTS, ids=str)
def test_the_packed_file_has_these_bytes(method: str, options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    inner = {"method": method, "options": options, "padding": 1, "bias": False}
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardtanh(),
        rbnn.BinaryConv2d(16, 24, 3, **inner), nn.BatchNorm2d(24), nn.Hardtanh(),
        rbnn.BinaryConv2d(24, 32, 3, stride=2, **inner), nn.BatchNorm2d(32), nn.Hardtanh(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5),
    ).eval()  # fmt: skip
    images = torch.randn(2, 3, 12, 12)
    for norm in (module for module in model if isinstance(module, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
    model(images)  # xnor++ needs one forward pass
    rbnn.export(model, tmp_path / "net.rbnn", images)
    tensors = sum(tensor.nbytes for tensor in packfile.read(tmp_path / "net.rbnn").tensors.values())
    counted = costs(model, images).bytes
    assert counted <= (tmp_path / "net.rbnn").stat().st_size
    # If only a sign follows, a threshold replaces scale and shift, which saves 4 bytes per channel; a sign with a
    # level other than 0 may store it per channel, 4 bytes more.  Signs are taken of 16 and of 24 channels.
    assert abs(tensors - counted) <= 4 * (16 + 24)


@pytest.mark.parametrize("method", ["bi-real", "rbnn"])
@pytest.mark.parametrize("shortcut", SHORTCUTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_networks_with_other_activations_and_shortcuts(
    activation: str, shortcut: str, method: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = create_model("resnet20-bireal", method, activation=activation, shortcut=shortcut).eval()
    for module in model.modules():  # a shift of 0 and a scale of 1 would be left out of the file
        for values in module.parameters(recurse=False) if isinstance(module, nn.BatchNorm2d | RPReLU) else ():
            nn.init.normal_(values)
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, 3, 32, 32))
    packed = sum(tensor.nbytes for tensor in packfile.read(tmp_path / "net.rbnn").tensors.values())
    # No sign reads the last activation: its second shift goes into the batch norm behind it.
    last = {"rprelu": 64 * (8 if method == "rbnn" else 4)}.get(activation, 0)
    channels = 16 + 6 * (16 + 32 + 64)
    learned = {"prelu": 4, "rprelu": 12 if method == "rbnn" else 8}.get(activation, 0) * channels
    projections = 4 * (16 * 32 + 32 * 64) + 8 * (32 + 64) if shortcut in ("pool-conv", "conv") else 0
    found = costs(model, torch.zeros(1, 3, 32, 32)).bytes
    assert found == packed + last == 43_752 + learned + projections


def test_a_layer_that_has_no_form_in_bits_counts_as_float() -> None:
    class ThreeValues(Method):
        def weight(self, w: Tensor) -> Tensor:
            return w.sign() * (w.abs() > w.abs().mean())

        def activation(self, x: Tensor) -> Tensor:
            return x.sign()

    layer = rbnn.BinaryConv2d(8, 4, 3, bias=False)
    layer.adopt(ThreeValues())
    (found,) = costs(layer, torch.randn(1, 8, 5, 5)).layers
    assert (found.bits, found.bytes, found.binary_macs, found.float_macs) == (32, 4 * 288, 0, 288 * 9)


def test_a_weight_that_is_stored_already_counts_its_scale_alone() -> None:
    model = nn.Sequential(rbnn.BinaryLinear(8, 8, bias=False), rbnn.BinaryLinear(8, 8, bias=False))
    model[1].weight = model[0].weight
    found = costs(model, torch.zeros(1, 8))
    assert [(layer.bits, layer.bytes) for layer in found.layers] == [(1, 8 + 64), (1, 64)]
    assert found.float_parts() == [("affines", 128, 128 / 136)]


@pytest.mark.parametrize("method", ["rbnn", "xnor-net"])
@pytest.mark.parametrize("name", ["resnet20-bireal", "resnet18-cifar", "vgg-small"])
def test_every_batch_norm_takes_the_scale_of_the_binary_layer_before_it(name: str, method: str) -> None:
    found = costs(create_model(name, method), torch.zeros(1, 3, 32, 32))
    for layer in found.layers:
        assert layer.calls == 1
        if layer.bits == 1:
            assert layer.bytes == -(-layer.parameters // 8), layer.name


def test_a_binary_layer_without_a_batch_norm_behind_it_has_an_affine_of_its_own() -> None:
    model = nn.Sequential(
        rbnn.BinaryConv2d(8, 3, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(3), rbnn.BinaryConv2d(3, 5, 1)
    )
    normed, norm, bare = costs(model, torch.zeros(2, 8, 6, 6)).layers
    assert normed.bytes == 27  # 8·3·9 = 216 bits; scale and bias are in the norm's affine
    assert norm.bytes == 3 * 8
    assert bare.bytes == 5 + 5 * 8  # the 3 channels of a filter take a byte
    assert bare.float_bytes == 4 * (15 + 5)


def test_a_binary_layer_that_is_never_called_keeps_its_affine() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.idle = rbnn.BinaryLinear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x

    (idle,) = costs(Idle(), torch.zeros(1, 8)).layers
    assert (idle.calls, idle.binary_macs, idle.output, idle.bytes) == (0, 0, (), 4 + 4 * 8)


def test_an_output_that_a_norm_does_not_take_needs_the_affine() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = rbnn.BinaryConv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> Tensor:
            return self.bn(self.conv(x)) + self.conv(-x)

    conv = by_name(costs(Branches(), torch.zeros(1, 8, 4, 4)))["conv"]
    assert (conv.calls, conv.binary_macs, conv.bytes) == (2, 2 * 64 * 16, 8 + 8 * 8)


def test_a_binary_transposed_convolution() -> None:
    layer = rbnn.BinaryConvTranspose2d(16, 5, 2, stride=2, method="bi-real")
    cost = by_name(costs(nn.Sequential(layer), torch.zeros(1, 16, 3, 3)))["0"]
    assert (cost.kind, cost.bits, cost.output) == ("conv", 1, (5, 6, 6))
    assert cost.binary_macs == 9 * 16 * 5 * 4  # each input pixel meets the whole filter
    assert (cost.bit_bytes, cost.bytes) == (16 * 5 * 4 // 8, 16 * 5 * 4 // 8 + 8 * 5)


def test_models_of_others() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.offset = nn.Parameter(torch.zeros(7))
            self.up = nn.ConvTranspose2d(4, 6, 2, stride=2, bias=False)
            self.grouped = nn.Conv2d(6, 12, 3, groups=3, bias=False)
            self.normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(12, 5, 1))
            self.tied = nn.Conv2d(12, 5, 1)
            self.tied.weight = nn.Parameter(torch.zeros(5, 12, 1, 1))
            self.again = nn.Conv2d(12, 5, 1, bias=False)
            self.again.weight = self.tied.weight
            self.unused = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.grouped(input=self.up(x))
            return self.normed(x) + self.tied(x) + self.again(x)

    found = costs(Odd(), torch.zeros(1, 4, 3, 3))
    layers = by_name(found)
    assert layers["Odd"].bytes == 28  # parameters of the model itself
    assert layers["up"].float_macs == 9 * 4 * 6 * 4  # each input pixel meets the whole filter
    assert (layers["grouped"].output, layers["grouped"].float_macs) == ((12, 4, 4), 16 * 12 * 2 * 9)
    assert (layers["normed"].weight, layers["normed"].parameters) == ((5, 12, 1, 1), 65)
    assert (layers["tied"].parameters, layers["again"].parameters) == (65, 0)  # stored once
    assert layers["again"].float_macs == layers["tied"].float_macs > 0
    assert (layers["unused"].calls, layers["unused"].float_macs, layers["unused"].bytes) == (0, 0, 48)
    assert list(layers) == ["Odd", "up", "grouped", "normed", "tied", "again", "unused"]
    assert found.bytes_ratio == 1.0


def test_only_one_example_counts_and_the_model_stays_as_it_was() -> None:
    model = create_model("resnet20-bireal", "rbnn").train()
    model.bn1.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    many = costs(model, torch.randn(3, 3, 16, 16))
    assert many == costs(model, torch.zeros(1, 3, 16, 16))
    assert model.training
    assert not model.bn1.training
    assert model.bn2.training
    assert all(
        torch.equal(value, before[name]) or name.endswith("_extra_state") for name, value in model.state_dict().items()
    )
    assert not any(module._forward_hooks for module in model.modules())


def test_a_forward_that_fails_leaves_no_hooks() -> None:
    model = create_model("resnet20", "float").train()
    with pytest.raises(RuntimeError):
        costs(model, torch.zeros(1, 4, 16, 16))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_several_inputs_and_a_converted_model() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 9), nn.Linear(9, 9), nn.Linear(9, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.c(self.b(self.a(x) + y))

    model = Two()
    rbnn.binarize_(model, "xnor-net")
    layers = by_name(costs(model, (torch.zeros(2, 6), torch.zeros(2, 9))))
    assert {name: layer.bits for name, layer in layers.items()} == {"a": 32, "b": 1, "c": 32}
    assert (layers["b"].binary_macs, layers["b"].bytes) == (81, 9 * 2 + 9 * 8)


@pytest.mark.parametrize("example", [torch.zeros(0, 3, 8, 8), torch.tensor(1.0), [torch.zeros(1, 3, 8, 8)]])
def test_an_example_that_is_none(example: Tensor) -> None:
    with pytest.raises(ConfigError, match="example_input"):
        costs(nn.Identity(), example)


@pytest.mark.parametrize("width", [0.3, 0.6, 1.0, 1.1])
def test_channels_that_are_no_whole_bytes(width: float, tmp_path: Path) -> None:
    """In the file each tap of each filter begins a new byte."""
    model = create_model("resnet20", "bnn", width=width).eval()
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, 3, 32, 32))
    graph = packfile.read(tmp_path / "net.rbnn")
    stored = [each.tensors["weight"] for each in graph.operations if each.kind == "binary_conv"]
    found = costs(model, torch.zeros(1, 3, 32, 32))
    assert sum(layer.bit_bytes for layer in found.layers) == sum(each.nbytes for each in stored)
