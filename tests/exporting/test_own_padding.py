"""Binary convolutions that were subclasses with their own padding, as bits."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from same_padding import PADDING, Causal
from torch import Tensor, nn

import rbnn
from rbnn.errors import ExportError
from rbnn.packed import file as packfile
from rbnn.packed.session import Session


def parity(model: nn.Module, x: Tensor, path: Path) -> None:
    graph = packfile.read(rbnn.export(model, path, x).path)
    assert any(operation.kind == "binary_conv" for operation in graph.operations)
    with torch.no_grad():
        wanted = model(x).numpy()
    got = Session(graph)(x.numpy())
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


VARIANTS = {"bnn": {}, "rbnn": {}, "xnor-net": {"k_map": True}, "dorefa": {"activation_bits": 2}}


@pytest.mark.parametrize("size", [(9, 8), (12, 7)])
@pytest.mark.parametrize("layer", PADDING, ids=repr)
@pytest.mark.parametrize("method", VARIANTS)
def test_the_file_answers_like_torch(method: str, layer: nn.Module, size: tuple[int, int], tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16), copy.deepcopy(layer)).eval()
    rbnn.binarize_(model, method, keep=["0"], **VARIANTS[method])
    parity(model, torch.randn(2, 3, *size), tmp_path / "net.rbnn")


@pytest.mark.parametrize("method", VARIANTS)
def test_signals(method: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), Causal(16, 12, 3, 2, dilation=2)).eval()
    rbnn.binarize_(model, method, keep=["0"], **VARIANTS[method])
    parity(model, torch.randn(2, 3, 15), tmp_path / "net.rbnn")


class OddAtTwenty(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(F.pad(input, (1, 1, 1, 1), value=float(input.shape[-1] == 20)))


def test_a_size_at_which_it_does_more_is_refused(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 1), OddAtTwenty(16, 12, 3)).eval()
    rbnn.binarize_(model, "bnn", keep=["0"])
    parity(model, torch.randn(2, 3, 9, 9), tmp_path / "net.rbnn")
    with pytest.raises(ExportError, match=r"nn.BinaryConv2d in '1' .* forward of OddAtTwenty does more than pad"):
        rbnn.export(model, tmp_path / "other.rbnn", torch.randn(2, 3, 20, 20))
