"""Costs: against numbers derived by hand, and on models that nobody foresaw."""

import pytest
import torch
from torch import Tensor, nn

import rbnn
from rbnn.analysis.costs import Costs, LayerCost, costs
from rbnn.errors import ConfigError
from rbnn.models import create_model


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
    assert found.training_only == 0  # XNOR-Net holds nothing beside the latent weights


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
    assert bare.bytes == 2 + 5 * 8  # 15 bits fill two bytes
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
    assert (layers["b"].binary_macs, layers["b"].bytes) == (81, 11 + 9 * 8)


@pytest.mark.parametrize("example", [torch.zeros(0, 3, 8, 8), torch.tensor(1.0), [torch.zeros(1, 3, 8, 8)]])
def test_an_example_that_is_none(example: Tensor) -> None:
    with pytest.raises(ConfigError, match="example_input"):
        costs(nn.Identity(), example)
