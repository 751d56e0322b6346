"""Random networks: fusion keeps the values, whatever operations it meets in whatever order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import rbnn
from rbnn.packed.session import Session

CHANNELS = 10
METHODS = ["bnn", "xnor-net", "rbnn", "dorefa", "abc-net"]


class Reversed(nn.Module):
    """The last channel first."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1)


PIECES = {
    "norm": lambda method: nn.BatchNorm2d(CHANNELS),
    "hardtanh": lambda method: nn.Hardtanh(),
    "relu": lambda method: nn.ReLU(inplace=True),
    "prelu": lambda method: nn.PReLU(CHANNELS),
    "hardswish": lambda method: nn.Hardswish(),
    "max pool": lambda method: nn.MaxPool2d(3, stride=1, padding=1),
    "avg pool": lambda method: nn.AvgPool2d(3, stride=1, padding=1),
    "reversed": lambda method: Reversed(),
    "conv": lambda method: nn.Conv2d(CHANNELS, CHANNELS, 1),
    "binary": lambda method: rbnn.BinaryConv2d(CHANNELS, CHANNELS, 3, padding=1, method=method),
    "binary too": lambda method: rbnn.BinaryConv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False, method=method),
    "binary upwards": lambda method: nn.Sequential(
        nn.AvgPool2d((2, 1)), rbnn.BinaryConvTranspose2d(CHANNELS, CHANNELS, (4, 3), (2, 1), 1, method=method)
    ),
}
"""All of them keep the shape, so that any two values can be added."""


ENDINGS: dict[str, Callable[[list[Tensor]], Any]] = {
    "a map": lambda values: values[-1],
    "one pixel": lambda values: values[-1].mean((2, 3), keepdim=True),
    "a vector": lambda values: values[-1].mean((2, 3)),
    "pixels first": lambda values: values[-1].flatten(2).transpose(1, 2),
    "several": lambda values: (values[-1], values[-1].mean(1), values[0].amax((2, 3), keepdim=True)),
    "nested": lambda values: {"last": values[-1] + 1, "others": [values[0] * 2, values[-1].flatten(2)]},
}
"""What a network returns of its values."""


class Composed(nn.Module):
    """A sequence of pieces; before some of them an earlier value is added."""

    def __init__(self, pieces: list[tuple[str, int | None]], method: str, ending: str = "a map") -> None:
        super().__init__()
        self.ending = ENDINGS[ending]
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.pieces = nn.ModuleList(PIECES[name](method) for name, _ in pieces)
        self.added = [back for _, back in pieces]

    def forward(self, x: Tensor, more: Tensor | None = None) -> Any:
        values = [self.stem(x) if more is None else self.stem(x) * more]
        for piece, back in zip(self.pieces, self.added, strict=True):
            last = values[-1] if back is None else values[-1] + values[max(len(values) - 2 - back, 0)]
            values.append(piece(last))
        return self.ending(values)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random") / "net.rbnn"


pieces_of_a_network = st.lists(
    st.tuples(st.sampled_from(list(PIECES)), st.sampled_from([None, None, None, 0, 1, 3])), max_size=9
)


def composed(pieces: list[tuple[str, int | None]], method: str, seed: int, ending: str = "a map") -> Composed:
    torch.manual_seed(seed)
    model = Composed(pieces, method, ending).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.1, 3)
    return model


def differing(wanted: Any, got: Any) -> Tensor:
    """Which images have another answer; both answers are nested alike and have the same shapes."""
    if isinstance(wanted, Tensor):
        assert tuple(wanted.shape) == got.shape
        apart = (wanted - torch.from_numpy(got)).abs().flatten(1).amax(1)
        return apart > 1e-4 * wanted.abs().flatten(1).amax(1).clamp_min(1)
    keys = list(wanted) if isinstance(wanted, dict) else range(len(wanted))
    assert len(wanted) == len(got)
    return torch.stack([differing(wanted[key], got[key]) for key in keys]).any(0)


@settings(max_examples=80, suppress_health_check=list(HealthCheck))
@given(
    pieces=pieces_of_a_network,
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 1000),
    ending=st.sampled_from(list(ENDINGS)),
    two=st.booleans(),
)
def test_a_random_network_answers_like_torch(
    path: Path, pieces: list[tuple[str, int | None]], method: str, seed: int, ending: str, two: bool
) -> None:
    model = composed(pieces, method, seed, ending)
    images = [torch.randn(3, 3, 6, 5), *([torch.randn(3, CHANNELS, 1, 5)] if two else [])]
    report = rbnn.export(model, path, tuple(images) if two else images[0])
    with torch.no_grad():
        wanted = model(*images)
    wrong = differing(wanted, Session(path)(*(each.numpy() for each in images)))
    assert int(wrong.sum()) <= report.images_with_near_ties


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    pieces=pieces_of_a_network,
    method=st.sampled_from(["bnn", "dorefa"]),
    seed=st.integers(0, 1000),
    ending=st.sampled_from(list(ENDINGS)),
)
def test_a_random_network_at_other_sizes(
    path: Path, pieces: list[tuple[str, int | None]], method: str, seed: int, ending: str
) -> None:
    """Signs may be near-ties at these sizes, too, of which no report says how many: few images may differ."""
    model = composed(pieces, method, seed, ending)
    rbnn.export(model, path, torch.randn(3, 3, 6, 5), free_size=True)
    images = torch.randn(4, 3, 8, 9)
    with torch.no_grad():
        wanted = model(images)
    assert int(differing(wanted, Session(path)(images.numpy())).sum()) <= 1
