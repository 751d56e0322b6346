"""Random networks: fusion keeps the values, whatever operations it meets in whatever order."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import rbnn
from rbnn.packed.session import Session

CHANNELS = 10
METHODS = ["bnn", "xnor-net", "rbnn", "dorefa", "abc-net"]
PIECES = {
    "norm": lambda method: nn.BatchNorm2d(CHANNELS),
    "hardtanh": lambda method: nn.Hardtanh(),
    "relu": lambda method: nn.ReLU(inplace=True),
    "prelu": lambda method: nn.PReLU(CHANNELS),
    "hardswish": lambda method: nn.Hardswish(),
    "max pool": lambda method: nn.MaxPool2d(3, stride=1, padding=1),
    "avg pool": lambda method: nn.AvgPool2d(3, stride=1, padding=1),
    "conv": lambda method: nn.Conv2d(CHANNELS, CHANNELS, 1),
    "binary": lambda method: rbnn.BinaryConv2d(CHANNELS, CHANNELS, 3, padding=1, method=method),
    "binary too": lambda method: rbnn.BinaryConv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False, method=method),
    "binary upwards": lambda method: nn.Sequential(
        nn.AvgPool2d((2, 1)), rbnn.BinaryConvTranspose2d(CHANNELS, CHANNELS, (4, 3), (2, 1), 1, method=method)
    ),
}
"""All of them keep the shape, so that any two values can be added."""


class Composed(nn.Module):
    """A sequence of pieces; before some of them an earlier value is added."""

    def __init__(self, pieces: list[tuple[str, int | None]], method: str) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.pieces = nn.ModuleList(PIECES[name](method) for name, _ in pieces)
        self.added = [back for _, back in pieces]

    def forward(self, x: Tensor) -> Tensor:
        values = [self.stem(x)]
        for piece, back in zip(self.pieces, self.added, strict=True):
            last = values[-1] if back is None else values[-1] + values[max(len(values) - 2 - back, 0)]
            values.append(piece(last))
        return values[-1]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random") / "net.rbnn"


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    pieces=st.lists(st.tuples(st.sampled_from(list(PIECES)), st.sampled_from([None, None, None, 0, 1, 3])), max_size=9),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 1000),
)
def test_a_random_network_answers_like_torch(
    path: Path, pieces: list[tuple[str, int | None]], method: str, seed: int
) -> None:
    torch.manual_seed(seed)
    model = Composed(pieces, method).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.1, 3)
    images = torch.randn(3, 3, 6, 5)
    report = rbnn.export(model, path, images)
    with torch.no_grad():
        wanted = model(images).flatten(1)
    apart = (wanted - torch.from_numpy(Session(path)(images.numpy())).flatten(1)).abs().amax(1)
    wrong = apart > 1e-4 * wanted.abs().amax(1).clamp_min(1)
    assert int(wrong.sum()) <= report.images_with_near_ties
