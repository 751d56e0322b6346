"""binarize_ and the layers at the ends of a network: several outputs, and a ``keep`` that leaves the last layer out."""

from typing import Any

import pytest
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn


def body(channels: int = 16) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.Hardtanh(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.Hardtanh(),
    )  # fmt: skip


class TwoHeads(nn.Module):
    """A class and a mask.  ``end`` makes the mask of the scores, ``give`` the answer of both."""

    def __init__(self, end: Any = lambda x: x, give: Any = lambda scores, mask: (scores, mask)) -> None:
        super().__init__()
        self.body, self.mask = body(), nn.Conv2d(16, 2, 1)
        self.cls = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
        self.end, self.give = end, give

    def forward(self, x: Tensor) -> Any:
        x = self.body(x)
        return self.give(self.cls(x), self.end(self.mask(x)))


HEADS = {"body.0": "first convolution", "mask": "feeds an output", "cls.2": "last linear layer"}


@pytest.mark.parametrize(
    "end",
    [
        lambda x: x,
        nn.Sequential(nn.Upsample(scale_factor=2), nn.Sigmoid()),
        lambda x: F.interpolate(x, size=x.shape[-2:]).flatten(2).softmax(1),
        lambda x: x.permute(0, 2, 3, 1)[..., 0].unsqueeze(1),
    ],
)
def test_every_layer_that_feeds_an_output_stays_float(end: Any) -> None:
    report = rbnn.binarize_(TwoHeads(end))
    assert report.changed == ["body.3"]
    assert report.kept == HEADS


def test_outputs_in_a_dictionary() -> None:
    model = TwoHeads(give=lambda scores, mask: {"scores": scores, "more": [mask]})
    assert rbnn.binarize_(model).kept == HEADS


@pytest.mark.parametrize(
    "give",
    [
        lambda scores, mask: scores + mask.mean((2, 3)).sum(1, keepdim=True),
        lambda scores, mask: mask,
        lambda scores, mask: (mask, mask),
    ],
)
def test_a_single_output_keeps_the_first_and_the_last_layer(give: Any) -> None:
    report = rbnn.binarize_(TwoHeads(give=give))
    assert report.kept == {"body.0": "first convolution", "cls.2": "last linear layer"}


class Features(nn.Module):
    """Also returns what it computes before its last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = body(), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return self.fc(features.mean((2, 3))), features


def test_a_layer_with_a_norm_before_the_output_becomes_binary() -> None:
    assert rbnn.binarize_(Features()).changed == ["body.3"]


# keep


def classifier(*between: nn.Module) -> nn.Module:
    return nn.Sequential(body(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 32), *between, nn.Linear(32, 4))


def test_the_advice_after_a_missing_norm_can_be_followed() -> None:
    with pytest.warns(UserWarning, match=r'it, or keep it float with keep=\["0.0", "3", "5"\]$'):
        rbnn.binarize_(classifier(nn.Hardtanh()))
    report = rbnn.binarize_(classifier(nn.Hardtanh()), keep=["0.0", "3", "5"])
    assert report.changed == ["0.3"]
    assert report.warnings == []


def test_the_advice_after_a_missing_norm_repeats_the_patterns() -> None:
    with pytest.warns(UserWarning, match=r'keep it float with keep=\["0.0\*", "5", "3"\]$'):
        rbnn.binarize_(classifier(nn.Hardtanh()), keep=["0.0*", "5"])


def test_a_keep_without_the_last_layer_is_warned_of() -> None:
    words = (
        r"^layer '5' at the end of the network is binary, because keep leaves it out, .* pass keep=\[\"3\", \"5\"\]$"
    )
    with pytest.warns(UserWarning, match=words):
        report = rbnn.binarize_(classifier(nn.BatchNorm1d(32)), keep=["3"])
    assert report.changed == ["0.3", "5"]
    assert len(report.warnings) == 1


def test_a_keep_without_the_heads_is_warned_of() -> None:
    words = r"^layers 'mask', 'cls.2' at the end of the network are binary, because keep leaves them out"
    with pytest.warns(UserWarning, match=words):
        rbnn.binarize_(TwoHeads(), keep=["body.0"])


def test_an_empty_keep_and_a_single_binary_layer_are_deliberate() -> None:
    assert rbnn.binarize_(classifier(nn.BatchNorm1d(32)), keep=[]).warnings == []
    assert rbnn.binarize_(classifier(nn.BatchNorm1d(32)), keep=["0.*", "3"]).warnings == []


class Reads(nn.Module):
    """The weight of one layer is read without a call, that of another in both ways."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(8, 16)
        self.called, self.read, self.both = (nn.Linear(16, 16) for _ in range(3))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.linear(self.called(self.stem(x)).tanh(), self.read.weight, self.read.bias).tanh()
        made: Tensor = self.head(self.both(x).tanh() + F.linear(x, self.both.weight))
        return made


def test_a_layer_that_is_never_called_stays_float() -> None:
    report = rbnn.binarize_(Reads())
    assert report.changed == ["called", "both"]
    assert report.kept["read"] == "the forward reads its weight without calling it"
    assert rbnn.binarize_(Reads(), keep=[]).changed == ["stem", "called", "both", "head"]
