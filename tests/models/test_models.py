"""Every registered network with every method: its parts, counted by hand from the architecture."""

import re
from dataclasses import dataclass
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn
from rbnn.errors import ConfigError, UnknownName
from rbnn.models import ACTIVATIONS, MODELS, SHORTCUTS, OptionA, RPReLU, model_names
from rbnn.models.cifar_resnet import BasicBlock, BiRealBlock
from rbnn.models.vgg import VGGSmall
from rbnn.nn import BinaryConv2d, binary_layers

METHODS = ["rbnn", "xnor-net", "float"]


@dataclass(frozen=True)
class Facts:
    """The expected counts of a network with 3 input channels."""

    classes: int
    binary: int  # weights in binary layers
    filters: int  # of binary layers: rbnn has one scale and one β for each
    rest: int  # parameters in float layers and batch norms
    layers: int  # binary layers
    features: tuple[int, int]  # channels and side of the last feature map at the pictures' own size
    tiny_gammas: bool


FACTS = {
    # stem 3·16·9 = 432 and norm 2·16; 16 → 16 six times 2,304; 16 → 32 4,608 and five times 9,216; 32 → 64 18,432 and
    # five times 36,864; norms 6·2·(16 + 32 + 64) = 1,344; last norm 2·64, linear 64·10 + 10.
    "resnet20": Facts(
        classes=10,
        binary=6 * 2304 + 4608 + 5 * 9216 + 18432 + 5 * 36864,  # 267,264
        filters=6 * (16 + 32 + 64),
        rest=432 + 32 + 1344 + 128 + 650,
        layers=18,
        features=(64, 8),
        tiny_gammas=True,
    ),
    # The same weights: only the shortcuts differ, and they have none.
    "resnet20-bireal": Facts(
        classes=10,
        binary=267_264,
        filters=672,
        rest=2586,
        layers=18,
        features=(64, 8),
        tiny_gammas=True,
    ),
    # stem 1,728 and norm 128; 3×3: four times 64·64·9 = 36,864, then for c = 128, 256, 512 channels c/2·c·9 once and
    # c·c·9 three times; binary 1×1 shortcuts c/2·c; norms 2·64·4 and 2·c·5; last norm 1,024; linear 5,130.
    "resnet18-cifar": Facts(
        classes=10,
        binary=4 * 36864
        + (73728 + 3 * 147456 + 8192)
        + (294912 + 3 * 589824 + 32768)
        + (1179648 + 3 * 2359296 + 131072),  # 11,157,504
        filters=4 * 64 + 5 * (128 + 256 + 512),
        rest=1728 + 128 + 512 + 1280 + 2560 + 5120 + 1024 + 5130,
        layers=16 + 3,
        features=(512, 4),
        tiny_gammas=False,
    ),
    # stem 3·128·9 = 3,456; 128 → 128 → 256 → 256 → 512 → 512 times 9; norms 2·(2·128 + 2·256 + 2·512) = 3,584;
    # linear 512·4·4·10 + 10.
    "vgg-small": Facts(
        classes=10,
        binary=9 * (128 * 128 + 128 * 256 + 256 * 256 + 256 * 512 + 512 * 512),  # 4,571,136
        filters=128 + 2 * 256 + 2 * 512,
        rest=3456 + 3584 + 81930,
        layers=5,
        features=(512, 4),
        tiny_gammas=False,
    ),
    # stem 3·64·49 = 9,408 and norm 128; 3×3 as in resnet18-cifar; float 1×1 shortcuts 8,192 + 32,768 + 131,072; norms
    # 9,472 and 1,024; linear 512·1000 + 1000.  Without the last norm it is the usual 11,689,512.
    "resnet18": Facts(
        classes=1000,
        binary=11_157_504 - 172_032,
        filters=4 * (64 + 128 + 256 + 512),
        rest=9408 + 128 + 172_032 + 9472 + 1024 + 513_000,
        layers=16,
        features=(512, 7),
        tiny_gammas=True,
    ),
    # 6, 8, 12 and 6 convolutions of 64, 128, 256 and 512 channels; norms 6·128 + 9·256 + 13·512 + 7·1,024 = 16,896.
    # Without the last norm it is the usual 21,797,672.
    "resnet34": Facts(
        classes=1000,
        binary=6 * 36864 + 73728 + 7 * 147456 + 294912 + 11 * 589824 + 1179648 + 5 * 2359296,  # 21,086,208
        filters=6 * 64 + 8 * 128 + 12 * 256 + 6 * 512,
        rest=9408 + 128 + 172_032 + 16_896 + 1024 + 513_000,
        layers=32,
        features=(512, 7),
        tiny_gammas=True,
    ),
}


def count(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def test_sums_that_are_known_from_elsewhere() -> None:
    assert FACTS["resnet18"].binary + FACTS["resnet18"].rest == 11_689_512 + 1024
    assert FACTS["resnet34"].binary + FACTS["resnet34"].rest == 21_797_672 + 1024
    assert FACTS["resnet18-cifar"].binary + FACTS["resnet18-cifar"].rest == 11_173_962 + 1024
    assert FACTS["resnet20"].binary == 267_264
    assert FACTS["resnet20"].rest == 2586


def test_every_network_is_counted_here() -> None:
    assert model_names() == list(MODELS)
    assert set(model_names()) == set(FACTS)
    assert all(entry.summary.endswith(".") for entry in MODELS.values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_network(name: str, method: str) -> None:
    facts, entry = FACTS[name], MODELS[name]
    model = rbnn.create_model(name, method=method, num_classes=facts.classes).eval()

    # Parameters.
    binary = [layer for _, layer in binary_layers(model)]
    assert len(binary) == (0 if method == "float" else facts.layers)
    own = count([p for layer in binary for p in layer.method.parameters()])
    assert own == {"rbnn": 2 * facts.filters, "xnor-net": 0, "float": 0}[method]
    if method != "float":
        assert count([layer.weight for layer in binary]) == facts.binary
    assert count(list(model.parameters())) - own == facts.binary + facts.rest

    # Binary layers.
    floats = [n for n, m in model.named_modules() if type(m) is nn.Conv2d]
    convolutions = [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    if method != "float":
        shortcuts = [n for n in convolutions if "shortcut" in n] if name in ("resnet18", "resnet34") else []
        assert floats == [convolutions[0], *shortcuts]
    assert type(model.fc) is nn.Linear
    activation, other = (nn.ReLU, nn.Hardtanh) if method == "float" else (nn.Hardtanh, nn.ReLU)
    assert any(isinstance(m, activation) for m in model.modules())
    assert not any(isinstance(m, other) for m in model.modules())

    # Initial values.
    for norm_name, norm in model.named_modules():
        if isinstance(norm, nn.BatchNorm2d):
            in_branch = re.fullmatch(r"layers\.\d+\.\d+\.bn[12]", norm_name)  # not those of the stem or a shortcut
            expected = 1e-8 if facts.tiny_gammas and in_branch and method != "float" else 1.0
            assert torch.equal(norm.weight.detach(), torch.full_like(norm.weight, expected)), norm_name
    assert all(m.weight.eq(1).all() for m in model.modules() if isinstance(m, nn.BatchNorm1d))
    widest = max((m for m in model.modules() if isinstance(m, nn.Conv2d)), key=lambda m: m.weight.numel())
    assert float(widest.weight.detach().std()) == pytest.approx(sqrt(2 / widest.weight[0].numel()), rel=0.05)
    for layer in binary if method == "rbnn" else []:
        torch.testing.assert_close(layer.method.scale.detach(), layer.weight.detach().abs().flatten(1).mean(1))

    # Outputs.
    seen: list[torch.Size] = []
    trunk = model.features if name == "vgg-small" else model.layers
    assert isinstance(trunk, nn.Module)
    trunk.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    side = entry.image_size if entry.image_size == 32 else 64
    with torch.no_grad():
        logits = model(torch.randn(2, 3, side, side))
    assert logits.shape == (2, facts.classes)
    assert logits.isfinite().all()
    channels, last = facts.features
    assert seen == [(2, channels, last * side // entry.image_size, last * side // entry.image_size)]


@pytest.mark.parametrize("name", ["resnet20", "resnet20-bireal", "vgg-small"])
@pytest.mark.parametrize(("channels", "classes", "size"), [(1, 2, 28), (5, 37, 17), (2, 100, 8)])
def test_other_pictures_and_classes(name: str, channels: int, classes: int, size: int) -> None:
    model = rbnn.create_model(name, num_classes=classes, in_channels=channels, image_size=size).eval()
    with torch.no_grad():
        assert model(torch.randn(3, channels, size, size)).shape == (3, classes)


def test_options_reach_every_layer() -> None:
    model = rbnn.create_model("resnet20", cycles=5, rotation="layer", alpha="layer")
    assert {layer.method.cycles for _, layer in binary_layers(model)} == {5}
    # 64·64·9 = 192², rotated as one.
    assert {tuple(layer.method.R1.shape) for name, layer in binary_layers(model) if "2.2" in name} == {(192, 192)}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"name": "resnet-20"}, UnknownName, "did you mean 'resnet20'"),
        ({"name": "resnet20", "method": "rbn"}, UnknownName, "did you mean 'rbnn'"),
        ({"name": "resnet20", "cycle": 3}, UnknownName, "did you mean 'cycles'"),
        ({"name": "resnet20", "method": "float", "cycles": 3}, ConfigError, "no options"),
        ({"name": "resnet20", "num_classes": 1}, ConfigError, "num_classes must be at least 2"),
        ({"name": "resnet20", "in_channels": 0}, ConfigError, "in_channels at least 1"),
        ({"name": "vgg-small", "image_size": 7}, ConfigError, "image_size must be at least 8"),
        ({"name": "resnet20", "activation": "relu"}, UnknownName, "did you mean 'prelu'"),
        ({"name": "resnet20", "shortcut": "pool-pads"}, UnknownName, "did you mean 'pool-pad'"),
        ({"name": "vgg-small", "shortcut": "conv"}, ConfigError, "vgg-small has no shortcuts"),
        ({"name": "resnet20", "width": 0}, ConfigError, "width must be 0.125 to 16, got 0"),
        ({"name": "resnet20", "width": "2"}, ConfigError, "width must be 0.125 to 16, got '2'"),
        ({"name": "resnet20", "width": float("nan")}, ConfigError, "width must be 0.125 to 16, got nan"),
    ],
)
def test_wrong_arguments(arguments: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        rbnn.create_model(**arguments)  # type: ignore[arg-type]


# The blocks, against their formulas


def slow_option_a(x: Tensor, out_channels: int, stride: int) -> Tensor:
    images, channels, height, width = x.shape
    rows, columns = -(-height // stride), -(-width // stride)
    out = torch.zeros(images, out_channels, rows, columns, dtype=x.dtype)
    for n in range(images):
        for c in range(channels):
            for i in range(rows):
                for j in range(columns):
                    out[n, c + (out_channels - channels) // 2, i, j] = x[n, c, i * stride, j * stride]
    return out


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(6, 6), (7, 5), (1, 1)])
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_option_a_is_a_slow_loop(
    stride: int, size: tuple[int, int], order: torch.memory_format, dtype: torch.dtype
) -> None:
    x = torch.randn(2, 4, *size, dtype=dtype).contiguous(memory_format=order).requires_grad_()
    found, expected = OptionA(4, 8, stride)(x), slow_option_a(x, 8, stride)
    assert torch.equal(found, expected)
    grad = torch.randn_like(expected)
    ours, slow = (torch.autograd.grad(out, x, grad)[0] for out in (found, expected))
    assert torch.equal(ours, slow)


def hardtanh_or_relu(method: str, x: Tensor) -> Tensor:
    return x.clamp(-1, 1) if method != "float" else x.clamp_min(0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["resnet20", "resnet20-bireal"])
def test_blocks_have_their_shortcuts(name: str, method: str) -> None:
    """A basic block has one around both convolutions, a Bi-Real block has one around each."""
    model = rbnn.create_model(name, method=method).eval()
    kind = BasicBlock if name == "resnet20" else BiRealBlock
    block = next(m for m in model.modules() if isinstance(m, kind) and isinstance(m.shortcut, OptionA))
    for norm in (block.bn1, block.bn2):
        nn.init.normal_(norm.weight)
    x = torch.randn(2, 16, 8, 8)
    around = slow_option_a(x, 32, 2)
    with torch.no_grad():
        first, second = (0, around) if kind is BasicBlock else (around, None)
        y = hardtanh_or_relu(method, block.bn1(block.conv1(x)) + first)
        expected = hardtanh_or_relu(method, block.bn2(block.conv2(y)) + (y if second is None else second))
        torch.testing.assert_close(block(x), expected)


def slow_activation(activation: nn.Module, x: Tensor) -> Tensor:
    """In float64, from the learned numbers."""
    x = x.double()
    if isinstance(activation, nn.Hardtanh):
        return x.clamp(-1, 1)
    if isinstance(activation, nn.ReLU):
        return x.clamp_min(0)
    if isinstance(activation, nn.Identity):
        return x
    before = after = torch.zeros(())
    if isinstance(activation, RPReLU):
        before, after = activation.shift_in[:, None, None], activation.shift_out[:, None, None]
    moved, slope = x + before, activation.weight.double()[:, None, None]
    return torch.where(moved > 0, moved, moved * slope) + after


def slow_shortcut(name: str, module: nn.Module, x: Tensor) -> Tensor:
    x, (images, channels, height, width) = x.double(), x.shape
    if name.startswith("pool"):
        pooled = torch.zeros(images, channels, -(-height // 2), -(-width // 2), dtype=torch.float64)
        for i in range(pooled.shape[2]):
            for j in range(pooled.shape[3]):
                pooled[:, :, i, j] = x[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean((2, 3))
        x = pooled
    if name in ("option-a", "pool-pad"):
        return slow_option_a(x, 2 * channels, 1 if name == "pool-pad" else 2)
    conv, norm = module[-2:]  # type: ignore[index]
    x = x if name == "pool-conv" else x[:, :, ::2, ::2]
    y = torch.einsum("oc,nchw->nohw", conv.weight[:, :, 0, 0].double(), x)
    return (y - norm.running_mean.double()[:, None, None]) / (
        norm.running_var.double()[:, None, None] + norm.eps
    ).sqrt()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [8, 7])
@pytest.mark.parametrize("shortcut", SHORTCUTS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_shortcuts_by_their_formulas(activation: str, shortcut: str, size: int, method: str) -> None:
    model = rbnn.create_model("resnet20-bireal", method=method, activation=activation, shortcut=shortcut).eval()
    block = model.layers[1][0]
    for module in block.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.running_mean)
        if isinstance(module, nn.PReLU | RPReLU):
            assert module.weight.tolist() == [0.25] * 32
            for values in module.parameters():
                nn.init.normal_(values)
    kinds = {"hardtanh": nn.Hardtanh, "none": nn.Identity, "prelu": nn.PReLU, "rprelu": RPReLU}
    expected_kind = kinds[activation] if method != "float" or "prelu" in activation else nn.ReLU
    assert type(block.join1.activation) is type(block.join2.activation) is expected_kind
    assert block.join1.activation is not block.join2.activation
    x = torch.randn(2, 16, size, size)
    with torch.no_grad():
        short = slow_shortcut(shortcut, block.shortcut, x)
        y = slow_activation(block.join1.activation, block.bn1(block.conv1(x)) + short).float()
        expected = slow_activation(block.join2.activation, block.bn2(block.conv2(y)) + y)
        torch.testing.assert_close(block(x).double(), expected, rtol=1e-4, atol=1e-5)


def test_the_published_networks_are_the_default() -> None:
    for name, own in (("resnet20", "option-a"), ("resnet20-bireal", "option-a"), ("resnet18", "conv")):
        weights = []
        for options in ({}, {"activation": "hardtanh", "shortcut": own}):
            torch.manual_seed(3)
            weights.append(rbnn.create_model(name, "bi-real", **options).state_dict())
        assert weights[0].keys() == weights[1].keys()
        shared = [key for key in weights[0] if not key.endswith("_extra_state")]  # NaN before the first epoch
        assert all(torch.equal(weights[0][key], weights[1][key]) for key in shared)


@pytest.mark.parametrize(("width", "channels"), [(1.5, [24, 48, 96]), (0.125, [2, 4, 8]), (0.85, [14, 28, 54])])
@pytest.mark.parametrize("method", ["rbnn", "float"])
@pytest.mark.parametrize("name", ["resnet20", "resnet20-bireal"])
def test_the_width_multiplies_all_channels(name: str, method: str, width: float, channels: list[int]) -> None:
    model = rbnn.create_model(name, method, width=width)
    assert model.conv1.out_channels == channels[0]
    assert [stage[-1].conv2.out_channels for stage in model.layers] == channels
    assert model.fc.in_features == channels[-1]


@pytest.mark.parametrize("name", model_names())
def test_width_1_is_the_published_network(name: str) -> None:
    weights = []
    for options in ({}, {"width": 1.0}):
        torch.manual_seed(3)
        weights.append(rbnn.create_model(name, "bi-real", **options).state_dict())
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0] if "_extra_state" not in key)
    half = rbnn.create_model(name, "bi-real", width=0.5)
    assert [2 * m.num_features for m in half.modules() if isinstance(m, nn.BatchNorm2d)] == [
        m.num_features for m in rbnn.create_model(name, "bi-real").modules() if isinstance(m, nn.BatchNorm2d)
    ]


def test_tiny_gammas_leave_the_shortcuts_alone_at_the_start() -> None:
    model = rbnn.create_model("resnet20-bireal")
    x = torch.randn(4, 16, 8, 8).clamp(-1, 1)
    with torch.no_grad():
        torch.testing.assert_close(model.layers[0].eval()(x), x, atol=1e-5, rtol=0)


def test_vgg_pools_before_the_norm_of_its_layer() -> None:
    model = rbnn.create_model("vgg-small")
    assert isinstance(model, VGGSmall)
    kinds = [type(m).__name__ for m in model.features]
    plain, pooled = ["BatchNorm2d", "Hardtanh"], ["MaxPool2d", "BatchNorm2d", "Hardtanh"]
    conv = "BinaryConv2d"
    assert kinds == ["Conv2d", *plain, conv, *pooled, conv, *plain, conv, *pooled, conv, *plain, conv, *pooled]


@pytest.mark.parametrize("name", ["resnet18", "resnet18-cifar"])
def test_shortcut_convolutions_are_one_by_one_with_a_norm(name: str) -> None:
    model = rbnn.create_model(name)
    blocks = [m for m in model.modules() if isinstance(m, BasicBlock | BiRealBlock)]
    projections = [block.shortcut for block in blocks if isinstance(block.shortcut, nn.Sequential)]
    kind = nn.Conv2d if name == "resnet18" else BinaryConv2d
    assert [(type(p[0]), p[0].kernel_size, p[0].stride, type(p[1])) for p in projections] == [
        (kind, (1, 1), (2, 2), nn.BatchNorm2d)
    ] * 3
    assert sum(isinstance(block.shortcut, nn.Identity) for block in blocks) == 5


@pytest.mark.parametrize("name", ["resnet20", "resnet20-bireal"])
@pytest.mark.parametrize("method", ["rbnn", "xnor-net"])
def test_every_parameter_gets_a_gradient(name: str, method: str) -> None:
    model = rbnn.create_model(name, method=method)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rbnn.BinarySchedule(model, optimizer, epochs=2).step(0)
    F.cross_entropy(model(torch.randn(8, 3, 32, 32)), torch.arange(8)).backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # β starts where the sine is flat: it has a gradient, but a tiny one.
    assert [n for n in silent if not n.endswith("beta")] == []
