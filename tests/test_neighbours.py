"""What `binarize_` says of the ReLUs before binary layers and of the norms after them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from convertible_networks import NETWORKS, Dynamic, Functional, Residual
from torch import Tensor, nn

import rbnn
from rbnn.convert import Conversion
from rbnn.methods import create_method

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
    assert "cannot be traced" in (note := str(report).splitlines()[-1])
    assert note.endswith("nor whether a binary layer feeds an output")
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
    with pytest.warns(UserWarning, match="no norm follows binary layers 'conv2', 'conv3', 'conv4', .* each of them$"):
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
