"""binarize_ on networks as people write them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from convertible_networks import NETWORKS, Functional, Residual, Shared, sequential
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import rbnn
from rbnn.convert import Conversion
from rbnn.errors import ConfigError, NotBinary, RbnnError, UnknownName
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryConvTranspose2d, BinaryLinear, binary_layers


def same(a: nn.Module, b: nn.Module) -> bool:
    """Same modules of the same types, same tensors."""
    types = [[(name, type(m)) for name, m in model.named_modules()] for model in (a, b)]
    states = a.state_dict(), b.state_dict()
    return (
        types[0] == types[1]
        and states[0].keys() == states[1].keys()
        and all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    )


@pytest.mark.filterwarnings("ignore:.*ReLU")
@pytest.mark.parametrize("build", NETWORKS)
@pytest.mark.parametrize("method", ["rbnn", "xnor-net"])
def test_training_afterwards_lowers_the_loss(build: Callable[[], nn.Module], method: str) -> None:
    model = build()
    rbnn.binarize_(model, method, relu="hardtanh")
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    schedule = rbnn.BinarySchedule(model, optimizer, epochs=12)
    x = torch.randn(32, 3, 8, 8)
    y = torch.arange(32) % 4
    x += 2 * torch.randn(4, 3, 8, 8)[y]
    losses = []
    for epoch in range(12):
        schedule.step(epoch)
        loss = F.cross_entropy(model(x), y) + rbnn.penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert min(losses[-3:]) < 0.9 * losses[0]
    moved = [name for name, layer in binary_layers(model) if layer.weight.grad is not None]
    assert moved == [name for name, _ in binary_layers(model)]


def test_first_convolution_and_last_linear_stay_float() -> None:
    model = sequential()
    report = rbnn.binarize_(model)
    assert report == Conversion(["3", "7", "12"], {"0": "first convolution", "15": "last linear layer"}, [])
    assert [type(model[i]) for i in (0, 3, 7, 12, 15)] == [
        nn.Conv2d, BinaryConv2d, BinaryConv2d, BinaryLinear, nn.Linear
    ]  # fmt: skip


def test_a_network_that_is_binary_already_is_said_to_be() -> None:
    model = sequential()
    rbnn.binarize_(model)
    with pytest.raises(NotBinary, match=r"3 layers of Sequential are already binary"):
        rbnn.binarize_(model)


def test_without_linear_layers_the_last_convolution_stays_float() -> None:
    model = nn.Sequential(*[nn.Conv2d(8, 8, 3) for _ in range(3)])
    assert rbnn.binarize_(model).kept == {"0": "first convolution", "2": "last convolution"}


def test_without_convolutions_the_first_linear_layer_stays_float() -> None:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)])
    assert rbnn.binarize_(model).kept == {"0": "first linear layer", "2": "last linear layer"}


def test_weights_bias_and_everything_else_are_taken_over() -> None:
    model = sequential().double().eval()
    model[7].weight.requires_grad_(False)
    before = copy.deepcopy(model)
    seen: list[torch.Size] = []
    model[3].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    rbnn.binarize_(model, "rbnn", cycles=2)
    for i in (3, 7, 12):
        old, new = before[i], model[i]
        assert torch.equal(old.weight, new.weight)
        assert (old.bias is None) == (new.bias is None)
        assert old.bias is None or torch.equal(old.bias, new.bias)
        assert new.weight.dtype is new.method.scale.dtype is new.method.R1.dtype is torch.float64
        assert not new.training
        assert not new.method.training
        assert new.method.cycles == 2
        assert new.weight.requires_grad == new.method.scale.requires_grad == (i != 7)
        torch.testing.assert_close(new.method.scale.detach(), old.weight.detach().abs().flatten(1).mean(1))
    assert model[7].stride == (2, 2)
    model(torch.randn(2, 3, 8, 8, dtype=torch.float64))
    assert seen == [(2, 16, 8, 8)]
    model[3].restart_method()
    assert model[3].method.cycles == 2


def test_a_model_on_another_device_stays_there() -> None:
    model = sequential().to("meta")
    rbnn.binarize_(model, relu="keep")
    assert {value.device.type for name, value in model.state_dict().items() if "_extra_state" not in name} == {"meta"}


def test_binarized_layers_compute_signs_of_the_old_weights() -> None:
    model = sequential()
    w = model[3].weight.detach().clone()
    rbnn.binarize_(model, "xnor-net")
    x = torch.randn(2, 16, 5, 5)
    signs = torch.where(w > 0, 1.0, -1.0) * w.abs().mean((1, 2, 3), keepdim=True)
    model.eval()
    torch.testing.assert_close(model[3](x).detach(), F.conv2d(torch.where(x > 0, 1.0, -1.0), signs, padding=1))


def test_shared_modules_stay_shared() -> None:
    model = Shared()
    assert rbnn.binarize_(model).changed == ["twin"]
    assert model.twin is model.again is model.unregistered[0]
    assert isinstance(model.twin, BinaryConv2d)


def test_tied_weights_stay_tied() -> None:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
    model[2].weight = model[1].weight
    rbnn.binarize_(model)
    assert model[2].weight is model[1].weight


def test_binary_layers_are_left_alone() -> None:
    model = sequential()
    rbnn.binarize_(model, "xnor-net", keep=["0", "3", "15"])
    report = rbnn.binarize_(model, "rbnn", keep=["0", "15"])
    assert report.changed == ["3"]
    assert [layer.method.origin.method for _, layer in binary_layers(model)] == ["rbnn", "xnor-net", "xnor-net"]


# keep


@pytest.mark.filterwarnings("ignore:layer 'fc' at the end of the network")
@pytest.mark.parametrize(
    ("keep", "changed"),
    [
        ([], ["conv1", "conv2", "middle", "fc"]),  # the stem has three channels
        (["conv1"], ["conv2", "middle", "fc"]),
        ("conv1", ["conv2", "middle", "fc"]),
        (["conv*", "stem"], ["middle", "fc"]),
        (["*[12]", "fc"], ["middle"]),
    ],
)
def test_keep_takes_names_and_patterns(keep: list[str], changed: list[str]) -> None:
    assert rbnn.binarize_(Residual(), keep=keep, relu="keep").changed == changed


def test_kept_layers_say_why() -> None:
    report = rbnn.binarize_(Functional(), keep=["fc"], relu="keep")
    assert report.changed == ["conv2", "conv3", "conv4"]
    assert report.kept == {
        "conv1": "narrow: 3 input channels per group, fewer than 8",
        "depthwise": "depthwise: one input channel per filter",
        "narrow": "narrow: 4 input channels per group, fewer than 8",
        "fc": "kept by 'fc'",
    }


@pytest.mark.parametrize(("keep", "nearest"), [(["convv1"], "conv1"), (["middl?*?"], "middle"), (["conv1", "FC"], "")])
def test_a_pattern_that_matches_nothing_is_an_error(keep: list[str], nearest: str) -> None:
    model = Residual()
    before = copy.deepcopy(model)
    with pytest.raises(ConfigError, match=rf"no convolution or linear layer matches .*nearest name is '{nearest}"):
        rbnn.binarize_(model, keep=keep)
    assert same(model, before)


# Layers that cannot be binary


class Scaled(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class ThreeByThree(nn.Conv2d):
    """Only shortens the constructor."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1)


def pruned() -> nn.Module:
    layer = nn.Conv2d(8, 8, 3)
    prune.random_unstructured(layer, "weight", 0.5)
    return layer


@pytest.mark.parametrize(
    ("layer", "why"),
    [
        (Scaled(8, 8, 3), "Scaled has its own forward"),
        (parametrizations.weight_norm(nn.Conv2d(8, 8, 3)), "its weight is computed"),
        (parametrizations.spectral_norm(nn.Linear(8, 8)), "its weight is computed"),
        (pruned(), "its weight is computed"),
        (nn.LazyConv2d(8, 3), "no weight yet"),
        (nn.MultiheadAttention(8, 2), "MultiheadAttention reads its weight"),
        (nn.TransformerEncoderLayer(8, 2, 16), "reads its weight"),
    ],
)
def test_layers_that_compute_something_else_stay_float(layer: nn.Module, why: str) -> None:
    model = nn.Sequential(nn.Linear(8, 8), layer)
    report = rbnn.binarize_(model, keep=[], relu="keep")
    assert report.changed == ["0"]
    assert all(why in reason for reason in report.kept.values())
    assert len(report.kept) >= 1


def test_a_subclass_that_only_shortens_the_constructor_is_binarized() -> None:
    model = nn.Sequential(ThreeByThree(8))
    assert rbnn.binarize_(model, keep=[]).changed == ["0"]
    assert isinstance(model[0], BinaryConv2d)


def test_transposed_convolutions() -> None:
    layers = (
        nn.ConvTranspose2d(16, 8, 2, 2), nn.ConvTranspose2d(16, 16, 2, 2, groups=16), nn.ConvTranspose2d(4, 8, 2),
        nn.ConvTranspose2d(16, 8, 2, groups=2), nn.ConvTranspose2d(16, 8, 2, 2),
    )  # fmt: skip
    model = nn.Sequential(nn.Conv2d(3, 16, 3), *layers)
    report = rbnn.binarize_(model, keep=["0", "5"], relu="keep")
    assert report.changed == ["1"]
    assert type(model[1]) is BinaryConvTranspose2d
    assert report.kept == {
        "0": "kept by '0'", "2": "depthwise: one input channel per filter",
        "3": "narrow: 4 input channels per group, fewer than 8",
        "4": "transposed with 2 groups: only one group can be binary", "5": "kept by '5'",
    }  # fmt: skip


def test_the_last_convolution_may_be_transposed() -> None:
    model = nn.Sequential(*[nn.ConvTranspose2d(16, 16, 2, 2) for _ in range(3)])
    report = rbnn.binarize_(model, relu="keep")
    assert report.changed == ["1"]
    assert report.kept == {"0": "first convolution", "2": "last convolution"}


def test_other_convolutions_are_not_touched() -> None:
    others = nn.ConvTranspose1d(8, 8, 3), nn.Conv1d(8, 8, 3), nn.Conv3d(8, 8, 3), nn.Bilinear(8, 8, 8)
    model = nn.Sequential(nn.Conv2d(8, 8, 3), *others)
    rbnn.binarize_(model, keep=[], relu="keep")
    assert tuple(model[1:]) == others


def test_signals() -> None:
    model = nn.Sequential(
        nn.Conv1d(6, 16, 5), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(16, 16, 5), nn.Conv1d(16, 16, 3, groups=16),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    weight = model[3].weight
    with pytest.warns(UserWarning, match="ReLUs feed binary layer '3', and xnor-net"):
        report = rbnn.binarize_(model, "xnor-net")
    assert report.changed == ["3"]
    assert report.kept == {
        "0": "first convolution", "4": "depthwise: one input channel per filter", "7": "last linear layer",
    }  # fmt: skip
    assert type(model[3]) is BinaryConv1d
    assert model[3].weight is weight
    assert model.eval()(torch.randn(2, 6, 32)).shape == (2, 4)


class _Doubled(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_a_class_is_not_a_network() -> None:
    with pytest.raises(ConfigError, match=r"binarize_ takes a torch\.nn\.Module, got type"):
        rbnn.binarize_(nn.Sequential)  # type: ignore[arg-type]


def test_layers_with_their_own_forward_are_counted() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), _Doubled(8, 8), _Doubled(8, 8), nn.Linear(8, 2))
    words = r"\(.*; 1 and 1 more: _Doubled has its own forward; .* write nn.Conv2d and nn.Linear in place of layers"
    with pytest.raises(NotBinary, match=words):
        rbnn.binarize_(model)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.ReLU()), "Sequential has no float nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d or nn.Linear"),
        (nn.Sequential(nn.Conv2d(8, 8, 3), nn.Linear(8, 2)), r"first convolution.*last linear layer.*keep"),
        (nn.Sequential(nn.Conv2d(8, 8, 3, groups=8)), "first convolution"),
        (nn.Sequential(BinaryConv2d(8, 8, 3)), "1 layer of Sequential is already binary"),
    ],
)
def test_nothing_to_binarize_is_an_error(model: nn.Module, words: str) -> None:
    with pytest.raises(NotBinary, match=words):
        rbnn.binarize_(model)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"method": "rbn"}, UnknownName),
        ({"method": "float"}, ConfigError),
        ({"cycle": 3}, UnknownName),
        ({"cycles": "3"}, ConfigError),
        ({"cycles": 0}, ConfigError),
        ({"rotation": "none"}, ConfigError),
        ({"method": "xnor-net", "cycles": 3}, UnknownName),
        ({"method": "dsq", "cycles": 3}, ConfigError),
        ({"relu": "tanh"}, ConfigError),
        ({"keep": ["nothing like it"]}, ConfigError),
        ({"keep": ["*"]}, NotBinary),
    ],
)
def test_the_model_is_unchanged_after_an_error(arguments: dict[str, object], error: type[RbnnError]) -> None:
    model = Residual()
    before = copy.deepcopy(model)
    with pytest.raises(error):
        rbnn.binarize_(model, **arguments)  # type: ignore[arg-type]
    assert same(model, before)


def test_the_model_is_unchanged_where_warnings_are_errors() -> None:
    model = Residual()
    before = copy.deepcopy(model)
    with pytest.raises(UserWarning, match="ReLUs feed"):  # as pytest runs here
        rbnn.binarize_(model, "bnn")
    assert same(model, before)


def test_the_report_reads_well() -> None:
    with pytest.warns(UserWarning, match="feed"):
        report = rbnn.binarize_(Functional(), "bnn")
    lines = str(report).splitlines()
    assert lines[:9] == [
        "3 layers are binary now",
        "  conv2",
        "  conv3",
        "  conv4",
        "4 stay float",
        "  conv1      first convolution",
        "  depthwise  depthwise: one input channel per filter",
        "  narrow     narrow: 4 input channels per group, fewer than 8",
        "  fc         last linear layer",
    ]
    assert len(report.warnings) == 2
    assert len(lines) == 9  # Python has shown the warnings already
    assert "ReLU" not in report._repr_html_()


@pytest.mark.parametrize("name", ["vgg-small", "resnet20-bireal"])
def test_a_float_twin_becomes_the_binary_network(name: str) -> None:
    twin, ours = (rbnn.create_model(name, method=method) for method in ("float", "rbnn"))
    assert rbnn.binarize_(twin, relu="keep").changed == [layer for layer, _ in binary_layers(ours)]
    assert twin.state_dict().keys() == ours.state_dict().keys()


def test_the_float_twin_of_vgg_gets_its_hardtanhs() -> None:
    twin, ours = (rbnn.create_model("vgg-small", method=method) for method in ("float", "rbnn"))
    rbnn.binarize_(twin, relu="hardtanh")
    types = [[type(module) for module in model.modules()] for model in (twin, ours)]
    types[1][-2] = nn.ReLU  # the last one feeds the float linear layer, and stays
    assert types[0] == types[1]


@pytest.mark.parametrize("keep", [5, [None], [nn.ReLU()]])
def test_keep_takes_names(keep: Any) -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3))
    with pytest.raises(ConfigError, match="keep takes names or patterns of layers, got "):
        rbnn.binarize_(model, keep=keep)
