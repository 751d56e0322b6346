"""Each exportable operation on signals (N, C, L), as a module, a function and a method."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbnn
from rbnn import BinaryConv1d
from rbnn.errors import ExportError, InputError
from rbnn.packed.session import Session

CHANNELS, LENGTH = 5, 23


class Does(nn.Module):
    """A stem and a user's function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.norm, self.function = nn.Conv1d(CHANNELS, 8, 3, padding=1), nn.BatchNorm1d(8), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.norm(self.stem(x)))


WEIGHT = torch.arange(8.0 * 4 * 3).sin().reshape(8, 4, 3)
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "convolution, dilated": nn.Conv1d(8, 6, 3, padding=2, dilation=2),
    "convolution in groups": nn.Conv1d(8, 6, 4, stride=3, groups=2),
    "convolution, same": nn.Conv1d(8, 6, 4, padding="same"),
    "convolution, valid": nn.Conv1d(8, 6, 4, padding="valid"),
    "conv1d": lambda x: F.conv1d(x, WEIGHT, padding=(2,), groups=2),
    "binary": BinaryConv1d(8, 6, 5, 2, 1),
    "binary, dilated": BinaryConv1d(8, 6, 3, padding=2, dilation=3, method="bnn"),
    "binary, same": BinaryConv1d(8, 6, 4, padding="same", method="bi-real"),
    "binary, grouped": BinaryConv1d(8, 6, 3, groups=2, method="xnor-net", options={"k_map": True}),
    "two binary": nn.Sequential(BinaryConv1d(8, 16, 3), nn.MaxPool1d(2), nn.BatchNorm1d(16), BinaryConv1d(16, 8, 3)),
    "MaxPool1d": nn.MaxPool1d(3, 2, 1),
    "MaxPool1d, dilated": nn.MaxPool1d(3, dilation=2, ceil_mode=True),
    "max_pool1d": lambda x: F.max_pool1d(x, 4),
    "torch.max_pool1d": lambda x: torch.max_pool1d(x, 4, 3),
    "AvgPool1d": nn.AvgPool1d(4, 3, 1, ceil_mode=True),
    "AvgPool1d, longer than the signal": nn.AvgPool1d(300, ceil_mode=True),
    "AvgPool1d without padding": nn.AvgPool1d(4, padding=2, count_include_pad=False),
    "avg_pool1d": lambda x: F.avg_pool1d(x, 5),
    "AdaptiveAvgPool1d": nn.AdaptiveAvgPool1d(4),
    "AdaptiveMaxPool1d": nn.AdaptiveMaxPool1d(7),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 3),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 1),
    "mean": lambda x: x.mean(-1),
    "mean, kept": lambda x: x - x.mean(2, keepdim=True),
    "mean of channels": lambda x: x * x.mean(1, keepdim=True),
    "ZeroPad1d": nn.ZeroPad1d((2, 3)),
    "pad of channels": lambda x: F.pad(x, (1, 0, 2, 0), value=0.5),
    "slices": lambda x: x[:, 1:, ::2],
    "shortcut": lambda x: x + torch.ones(8, 1) * x,
    "cat": lambda x: torch.cat([x, x * x], 1),
    "transposed": lambda x: x.transpose(1, 2),
    "transposed, by negative numbers": lambda x: torch.transpose(x, -1, -2).contiguous(),
    "permuted": lambda x: x.permute(0, 2, 1) + 1,
    "permuted to itself": lambda x: x.permute((0, 1, 2)) + 1,
    "there and back": lambda x: F.adaptive_avg_pool1d(torch.permute(x, (0, 2, 1)), 2).transpose(2, 1),
    "flattened": nn.Sequential(nn.Flatten(), nn.Linear(8 * LENGTH, 4)),
    "as pictures": lambda x: x.unsqueeze(2),
    "halves": lambda x: x.view(x.size(0), 4, -1),
    "Dropout1d": nn.Dropout1d(0.5),
}


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_file_answers_like_torch(tmp_path: Path, name: str) -> None:
    model, path = Does(OPERATIONS[name]).eval(), tmp_path / "net.rbnn"
    nn.init.normal_(model.norm.running_mean)
    rbnn.export(model, path, torch.randn(2, CHANNELS, LENGTH))
    x = torch.randn(5, CHANNELS, LENGTH)  # other signals than those of the export
    with torch.no_grad():
        wanted = model(x)
    got = torch.from_numpy(Session(path)(x.numpy()))
    assert got.shape == wanted.shape
    apart = (wanted - got).abs().flatten(1).amax(1) / wanted.abs().flatten(1).amax(1)
    assert float(apart.max()) < 1e-4


def test_samples_before_channels(tmp_path: Path) -> None:
    """(N, L, C), as in tables: the network transposes it, and the file takes the same input."""
    model = nn.Sequential(Turn(), nn.Conv1d(CHANNELS, 8, 3), BinaryConv1d(8, 8, 3), nn.AdaptiveMaxPool1d(1)).eval()
    x = torch.randn(4, LENGTH, CHANNELS)
    rbnn.export(model, tmp_path / "net.rbnn", x)
    np.testing.assert_allclose(Session(tmp_path / "net.rbnn")(x.numpy()), model(x).detach(), rtol=1e-4, atol=1e-5)


class Turn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def test_what_a_session_of_signals_takes(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv1d(CHANNELS, 8, 3), BinaryConv1d(8, 8, 3)).eval()
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, CHANNELS, LENGTH))
    session = Session(tmp_path / "net.rbnn")
    x = np.zeros((1, CHANNELS, LENGTH), np.float32)
    assert session(x).shape == (1, 8, LENGTH - 4)
    assert session(x[:, :, None]).shape == (1, 8, 1, LENGTH - 4)
    assert len(session.profile(x, 1)) == len(session.graph.operations)
    for wrong in (x[0], x[:, :-1], x[..., None], x[:, :, :-1]):
        with pytest.raises(InputError, match=r"expected .* of shape \(N, 5, 23\) or \(N, 5, 1, 23\), got"):
            session(wrong)


def test_whole_numbers_for_the_float_layers_of_signals(tmp_path: Path) -> None:
    model = nn.Sequential(
        nn.Conv1d(CHANNELS, 8, 3), BinaryConv1d(8, 8, 3), nn.Conv1d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 17, 4)
    ).eval()
    x = torch.randn(4, CHANNELS, LENGTH)
    plain = rbnn.export(model, tmp_path / "plain.rbnn", x)
    small = rbnn.export(model, tmp_path / "small.rbnn", x, float_layers="int8")
    assert small.bytes < plain.bytes
    stored = {str(each.dtype) for each in Session(tmp_path / "small.rbnn").graph.tensors.values() if each.ndim == 4}
    assert stored == {"float32", "int8", "uint8"}
    with pytest.raises(ExportError, match="int8 stem"):
        rbnn.export(model, tmp_path / "stem.rbnn", x, mean=[0.5], std=[0.2], stem="int8")
