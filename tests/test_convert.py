"""binarize_ on networks as people write them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import rbnn
from rbnn.convert import Conversion
from rbnn.errors import ConfigError, NotBinary, RbnnError, UnknownName
from rbnn.methods import create_method
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryConvTranspose2d, BinaryLinear, binary_layers


def sequential() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Hardtanh(),
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.Hardtanh(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.Hardtanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 24), nn.BatchNorm1d(24), nn.Hardtanh(), nn.Linear(24, 4),
    )  # fmt: skip


class Residual(nn.Module):
    """A user's block that uses its ReLU twice."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.1)
        self.middle = nn.Linear(channels, channels)
        self.fc = nn.Linear(channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)) + x)
        return self.fc(self.middle(self.drop(self.pool(y).flatten(1))))  # type: ignore[no-any-return]


class Functional(nn.Module):
    """ReLUs as functions and methods; a depthwise and a grouped convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 16, 3, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.conv3 = nn.Conv2d(16, 16, 1)
        self.conv4 = nn.Conv2d(16, 16, 3, padding=1, groups=2)
        self.narrow = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = torch.relu(self.depthwise(self.conv2(x)))
        x = self.conv3(F.dropout(x, 0.1, self.training)).relu()
        x = self.narrow(self.conv4(x))
        return self.fc(x.mean((2, 3)))  # type: ignore[no-any-return]


class Dynamic(nn.Module):
    """Its computation depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.relu, self.fc = nn.ReLU(), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        if x.mean() > 1e6:
            x = -x
        return self.fc(self.conv2(self.relu(x)).mean((2, 3)))  # type: ignore[no-any-return]


class Shared(nn.Module):
    """One convolution under two names, and a list that is not a ModuleList."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.twin = nn.Conv2d(16, 16, 3, padding=1)
        self.again = self.twin
        self.unregistered = [self.twin]
        self.fc = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.twin(self.conv1(x)))
        for layer in self.unregistered:
            x = layer(x)
        return self.fc(x.mean((2, 3)))  # type: ignore[no-any-return]


NETWORKS: list[Callable[[], nn.Module]] = [sequential, Residual, Functional, Dynamic, Shared]


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


# ReLU


def of_relus(report: Conversion) -> list[str]:
    return [text for text in report.warnings if "ReLU" in text]


UNCENTRED: list[tuple[str, dict[str, Any]]] = [
    ("rbnn", {"standardise": False}), ("rbnn", {"standardise": False, "scaled": True}), ("bnn", {}), ("xnor-net", {}),
    ("dorefa", {}), ("abc-net", {}), ("ir-net", {}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "options"), UNCENTRED)
def test_relus_are_warned_of_where_the_method_does_not_centre(method: str, options: dict[str, Any]) -> None:
    model = Residual()
    with pytest.warns(UserWarning, match="ReLUs feed binary layers") as caught:
        report = rbnn.binarize_(model, method, **options)
    assert {one.filename for one in caught} == {__file__}
    # middle is seen through pool, flatten and dropout
    assert of_relus(report) == [
        f"ReLUs feed binary layers 'conv2', 'middle', and {method} does not centre its inputs: a ReLU passes no "
        "gradient where its output is 0; whether hardtanh is better depends on the network, so try both "
        "relu='keep' and relu='hardtanh'"
    ]
    assert isinstance(model.relu, nn.ReLU)


@pytest.mark.parametrize("build", NETWORKS)
def test_relus_stay_in_silence_where_the_method_centres(build: Callable[[], nn.Module]) -> None:
    model = build()
    assert of_relus(rbnn.binarize_(model)) == []
    kept = build()
    rbnn.binarize_(kept, relu="keep")
    assert [type(module) for module in model.modules()] == [type(module) for module in kept.modules()]


def test_signs_behind_a_relu_say_something_where_the_method_centres() -> None:
    """All values are positive: only around the mean of the image are there two signs."""
    x = torch.rand(2, 16, 8, 8) + 0.1
    for standardise, share in ((True, 0.5), (False, 1.0)):
        method = create_method("rbnn", torch.randn(16, 16, 3, 3), standardise=standardise)
        assert (method.activation(x) > 0).float().mean() == pytest.approx(share, abs=0.05)


def test_relu_modules_are_replaced_on_request() -> None:
    model = Residual().eval()
    assert of_relus(rbnn.binarize_(model, relu="hardtanh")) == []
    assert isinstance(model.relu, nn.Hardtanh)
    assert model.relu.inplace
    assert not model.relu.training
    x = model.stem(torch.randn(1, 3, 8, 8))
    assert model.relu(x.clone()).min() < 0


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6])
def test_only_relus_that_feed_binary_layers_are_replaced(activation: type[nn.Module]) -> None:
    model = nn.Sequential(
        nn.Linear(8, 8), activation(), nn.Identity(), nn.Linear(8, 8), nn.BatchNorm1d(8), activation(), nn.Linear(8, 8)
    )
    rbnn.binarize_(model, relu="hardtanh")
    assert type(model[1]) is nn.Hardtanh
    assert type(model[5]) is activation  # feeds the last layer, which stays float


def test_batch_norm_between_is_enough() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 8))
    assert of_relus(rbnn.binarize_(model, "bnn")) == []


def test_a_relu_under_two_names_is_replaced_under_both() -> None:
    relu = nn.ReLU()
    model = nn.Sequential(nn.Linear(8, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 8), relu, nn.Linear(8, 8))
    rbnn.binarize_(model, relu="hardtanh")
    assert isinstance(model[1], nn.Hardtanh)
    assert model[1] is model[3] is model[5]


def test_relu_functions_cannot_be_replaced_and_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="cannot replace the ReLU"):
        report = rbnn.binarize_(Functional(), relu="hardtanh")
    assert of_relus(report) == [
        f"binarize_ cannot replace the ReLU that feeds binary layer {layer!r}, because it is called in a forward: call "
        "torch.nn.functional.hardtanh there instead"
        for layer in ("conv2", "conv3", "conv4")
    ]


class Concatenated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.relu = nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU()
        self.join, self.fc = nn.Linear(16, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.join(torch.cat([self.a(x), self.relu(self.b(x))], 1)))  # type: ignore[no-any-return]


def test_relus_are_found_through_a_concatenation() -> None:
    with pytest.warns(UserWarning, match="ReLUs feed binary layer 'join'"):
        rbnn.binarize_(Concatenated(), "bnn")


def test_keeping_relus_is_silent() -> None:
    for build in NETWORKS:
        assert of_relus(rbnn.binarize_(build(), "bnn", relu="keep")) == []


def test_a_forward_that_cannot_be_traced_is_said_in_the_report() -> None:
    report = rbnn.binarize_(Dynamic(), "bnn")
    assert report.changed == ["conv2"]
    assert report.warnings == []
    assert "cannot be traced" in str(report).splitlines()[-1]
    model = Dynamic()
    with pytest.warns(UserWarning, match="cannot be traced"):  # a replacement was requested and did not happen
        rbnn.binarize_(model, relu="hardtanh")
    assert isinstance(model.relu, nn.ReLU)


class LeavesTraces(nn.Module):
    """A forward with side effects: they must not reach the model."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(()))
        self.last: Tensor | None = None

    calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = self.b(self.a(x) + torch.ones(8))
        return self.c(self.last)  # type: ignore[no-any-return]


def test_looking_for_relus_leaves_nothing_behind() -> None:
    model = LeavesTraces()
    attributes = set(vars(model))
    rbnn.binarize_(model, "bnn")
    assert model.calls == 0
    assert model.last is None
    assert set(vars(model)) == attributes


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


# Norms


def followed_by(*after: nn.Module) -> nn.Module:
    """The binary layer is ``1``."""
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3), *after, nn.Linear(16, 4))


FLAT = nn.AdaptiveAvgPool2d(1), nn.Flatten()


@pytest.mark.parametrize(
    "after",
    [
        (nn.BatchNorm2d(16), nn.ReLU(), *FLAT),
        (nn.PReLU(), nn.BatchNorm2d(16), *FLAT),
        (nn.MaxPool2d(2), nn.Dropout(0.1), nn.GroupNorm(2, 16), *FLAT),
        (*FLAT, nn.LayerNorm(16)),
        (nn.Upsample(scale_factor=2), *FLAT),  # unknown here: no warning rather than a wrong one
    ],
)
def test_a_norm_after_a_binary_layer_is_found(after: tuple[nn.Module, ...]) -> None:
    assert rbnn.binarize_(followed_by(*after)).warnings == []


@pytest.mark.parametrize("after", [(), (nn.ReLU(),), (nn.Hardtanh(), nn.Dropout(0.1)), (nn.Tanh(), nn.MaxPool2d(2))])
def test_a_binary_layer_without_a_norm_is_warned_of(after: tuple[nn.Module, ...]) -> None:
    model = followed_by(*after, *FLAT)
    with pytest.warns(UserWarning, match="^no norm follows binary layer '1', .* training may diverge: put a BatchNorm"):
        report = rbnn.binarize_(model)
    assert len(report.warnings) == 1


def test_binary_layers_without_a_norm_are_warned_of_in_one_sentence() -> None:
    with pytest.warns(UserWarning, match="no norm follows binary layers 'conv2', 'conv3', 'conv4', .* keep them float"):
        report = rbnn.binarize_(Functional())
    assert len(report.warnings) == 1


class Preactivated(nn.Module):
    """The norm comes before each convolution and after the last sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fc = nn.Conv2d(3, 16, 3), nn.Linear(16, 4)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=False):
            x = x + conv(F.relu(norm(x)))
        return self.fc(F.relu(self.norms[2](x)).mean((2, 3)))  # type: ignore[no-any-return]


def test_a_norm_behind_a_sum_counts() -> None:
    assert rbnn.binarize_(Preactivated()).warnings == []


def test_the_last_layer_needs_no_norm() -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), *FLAT, nn.Linear(16, 4))
    assert rbnn.binarize_(model, keep=[]).warnings == []


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
