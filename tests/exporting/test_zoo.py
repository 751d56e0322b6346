"""Networks as people write them, float and binarized: the packed file agrees with torch, in the same shapes."""

import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from test_user_networks import random_norms
from torch import nn
from zoo import ZOO, arrays

import rbnn
from rbnn.errors import NotBinary
from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.export_report import ExportReport
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session
from rbnn.translating.onnx_check import run, standard
from rbnn.translating.onnx_file import write

every_network = pytest.mark.parametrize(
    ("name", "binary"), [(name, binary) for name in ZOO for binary in (False, True)]
)  # each is exported once for two tests


def network(name: str, binary: bool) -> nn.Module | None:
    """A network of the zoo with statistics as after training; None if it has no binary layers."""
    torch.manual_seed(1)
    model = ZOO[name]().eval()
    random_norms(model)
    if binary:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about ReLUs
                rbnn.binarize_(model, method="bnn")
        except NotBinary:  # no layers between the first and the last
            return None
    return model


@cache
def exported(name: str, binary: bool) -> tuple[nn.Module, Graph, ExportReport] | None:
    """The network, its packed file and the report; None if it has no binary layers."""
    model = network(name, binary)
    if model is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        report = rbnn.export(model, Path(folder) / "net.rbnn", torch.randn(2, 3, 13, 11))
        return model, packfile.read(report.path), report


@every_network
def test_the_file_answers_like_torch(name: str, binary: bool) -> None:
    found = exported(name, binary)
    if found is None:
        return
    model, graph, report = found
    torch.manual_seed(2)  # whether it was exported just now or before
    x = torch.randn(3, 3, 13, 11)
    with torch.no_grad():
        wanted = model(x)
    answer = Session(graph)(x.numpy())
    assert type(answer) is {list: tuple, torch.Tensor: np.ndarray}.get(type(wanted), type(wanted))
    if isinstance(wanted, dict):
        assert list(answer) == list(wanted)
    for ours, slow, theirs in zip(arrays(answer), arrays(oracle.run(graph, x.numpy())), arrays(wanted), strict=True):
        assert ours.shape == tuple(theirs.shape)
        largest = max(1.0, float(theirs.abs().max()))
        apart = np.abs(ours - theirs.numpy()).reshape(len(x), -1).max(1)
        assert (apart > 1e-4 * largest).sum() <= (1 if report.near_ties or binary else 0), report
        if not binary:
            np.testing.assert_allclose(slow, theirs, rtol=1e-3, atol=1e-4 * largest)


@every_network
def test_the_onnx_files_answer_like_the_packed_one(tmp_path: Path, name: str, binary: bool) -> None:
    found = exported(name, binary)
    if found is None:
        return
    _, graph, _ = found
    torch.manual_seed(2)
    images = torch.randn(2, 3, 13, 11).numpy()
    answers = arrays(Session(graph)(images))
    for qonnx in (False, True):
        report = write(graph, tmp_path / "net.onnx", images, qonnx=qonnx)
        got = run(standard(onnx.load(tmp_path / "net.onnx")), {"image": images})
        for ours, theirs in zip(answers, got.values(), strict=True):
            assert theirs.shape == ours.shape
            largest = max(1.0, float(np.abs(ours).max()))
            other = (np.abs(theirs - ours).reshape(len(images), -1).max(1) > 1e-4 * largest).sum()
            assert other <= report.images_with_near_ties


class Shuffled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, _, h, w = x.shape
        return self.stem(x).view(n, 3, 4, h, w).transpose(1, 2).reshape(n, 12, h, w)


def test_a_shuffle_is_one_operation(tmp_path: Path) -> None:
    rbnn.export(Shuffled(), tmp_path / "net.rbnn", torch.randn(2, 3, 5, 4))
    _, shuffle = packfile.read(tmp_path / "net.rbnn").operations
    assert (shuffle.kind, shuffle.attributes) == ("permute", {"sides": [20, 3, 4], "order": [0, 2, 1]})


@pytest.mark.parametrize(("kernel", "stride", "padding", "more", "dilation", "groups"), [
    (2, 2, 0, 0, 1, 1), (4, 2, 1, 0, 1, 2), (3, 2, 1, 1, 1, 1), (3, 1, 0, 0, 1, 1), (3, 1, 1, 0, 2, 4),
    ((5, 2), (3, 1), (0, 1), (2, 0), 1, 1), (1, 3, 0, 2, 1, 1), (3, 2, 0, 1, 3, 2),
])  # fmt: skip
def test_transposed_convolution(
    tmp_path: Path, kernel: int, stride: int, padding: int, more: int, dilation: int, groups: int
) -> None:
    model = nn.ConvTranspose2d(8, 12, kernel, stride, padding, more, groups, dilation=dilation)
    x = torch.randn(2, 8, 5, 7)
    rbnn.export(model, tmp_path / "net.rbnn", x)
    got = Session(tmp_path / "net.rbnn")(x.numpy())
    np.testing.assert_allclose(got, model(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("mode", "align"), [
    ("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True), ("bicubic", False),
    ("bicubic", True), ("area", None),
])  # fmt: skip
@pytest.mark.parametrize(
    "how", [{"size": (9, 4)}, {"size": (1, 30)}, {"scale_factor": 2}, {"scale_factor": (1.7, 0.6)}]
)
def test_resizing(tmp_path: Path, mode: str, align: bool | None, how: dict[str, object]) -> None:
    model = nn.Sequential(nn.Upsample(mode=mode, align_corners=align, **how), nn.Conv2d(3, 4, 1))  # type: ignore[arg-type]
    x = torch.randn(2, 3, 5, 7)
    rbnn.export(model, tmp_path / "net.rbnn", x)
    got = Session(tmp_path / "net.rbnn")(x.numpy())
    np.testing.assert_allclose(got, model(x).detach(), rtol=1e-3, atol=1e-5)
