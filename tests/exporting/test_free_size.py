"""Networks with free heights and widths: at each size the packed file agrees with torch, or both raise an error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_user_networks import random_norms
from test_zoo import network
from torch import Tensor, nn
from zoo import ZOO, arrays

import rbnn
from rbnn import _core
from rbnn.errors import ExportError, InputError
from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.session import Session

KERNELS = [name for name, supported in _core.kernels() if supported]
SIZES = [(16, 24), (32, 16), (13, 11), (17, 40), (25, 33), (48, 8), (9, 9)]


def answers_like_torch(model: nn.Module, session: Session, size: tuple[int, ...], *, binary: bool = False) -> bool:
    """Whether torch accepts images of this size and a session agrees with it; fails if only one of them raises."""
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(sum(size)))
    try:
        with torch.no_grad():
            wanted = model(x)
    except RuntimeError:
        with pytest.raises(InputError, match="does not take pictures of"):
            session(x.numpy())
        return False
    try:
        answer = session(x.numpy())
    except InputError as refusal:
        if session.graph.free is None or session.graph.free.steps == (1, 1):
            raise AssertionError("torch takes this size, and so should the file") from refusal
        return False
    slow = oracle.run(session.graph.at(*size), x.numpy())
    for ours, theirs, again in zip(arrays(answer), arrays(wanted), arrays(slow), strict=True):
        assert ours.shape == tuple(theirs.shape) == again.shape
        largest = max(1.0, float(theirs.abs().max()))
        apart = np.abs(ours - theirs.numpy()).reshape(len(x), -1).max(1)
        assert (apart > 1e-4 * largest).sum() <= binary, (size, apart)
    return True


@pytest.mark.parametrize("binary", [False, True], ids=["float", "binary"])
@pytest.mark.parametrize("name", ZOO)
def test_networks_as_people_write_them(tmp_path: Path, name: str, binary: bool) -> None:
    """Networks that torch runs at other sizes can be exported, and agree with torch at all sizes the file accepts."""
    model, path = network(name, binary), tmp_path / "net.rbnn"
    if model is None:
        return
    example = torch.randn(2, 3, *((13, 11) if name in FIXED else (16, 24)))
    if name in FIXED:
        with pytest.raises(ExportError, match=f"free_size: .*{FIXED[name]}.*leave out free_size"):
            rbnn.export(model, path, example, free_size=True)
        assert not path.exists()
        return
    rbnn.export(model, path, example, free_size=True)
    session = Session(path)
    sizes = [size for size in SIZES if min(size) >= DECIDE.get(name, 0)]
    taken = [size for size in sizes if answers_like_torch(model, session, size, binary=binary)]
    assert {(16, 24), (32, 16)} <= set(taken)


FIXED = {"norms": "'whole', LayerNorm", "ViT": "must match the size of tensor", "non-local": "belong to one size"}
"""Networks of the zoo whose size is fixed in torch, and the error message of each."""

DECIDE = {"hourglass": 16, "super-resolution": 12, "Focus": 12, "SegNet": 12}
"""Networks that branch differently for small images, which no export can detect; a crop is such a branch too."""


class Skips(nn.Module):
    """A U-Net whose skip connections must match in size: torch accepts multiples of 4."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, 2, 1)
        self.deep, self.up = nn.Conv2d(16, 16, 3, 2, 1), nn.ConvTranspose2d(16, 16, 2, 2)
        self.norms = nn.ModuleList(nn.BatchNorm2d(16) for _ in range(3))
        self.head = nn.Conv2d(32, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.norms[0](self.first(x))
        second = self.norms[1](self.down(first))
        third = self.norms[2](self.deep(second))
        second = second + F.interpolate(third, scale_factor=2, mode="bilinear", align_corners=True)
        return self.head(torch.cat([first, self.up(second)], 1))


def binary_skips() -> nn.Module:
    torch.manual_seed(3)
    model = Skips()
    rbnn.binarize_(model, method="rbnn", keep=["first", "head"])
    random_norms(model)
    return model.eval()


@pytest.fixture(scope="module")
def skips(tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    model, path = binary_skips(), tmp_path_factory.mktemp("free") / "net.rbnn"
    rbnn.export(model, path, torch.randn(2, 3, 16, 24), mean=0.5, std=0.25, free_size=True)
    return model, path


@pytest.mark.parametrize("kernels", KERNELS)
def test_every_kernel_at_many_sizes(skips: tuple[nn.Module, Path], kernels: str) -> None:
    model, path = skips
    session = Session(path, kernels=kernels, threads=2)
    taken = [
        size for size in [*SIZES, (4, 4), (60, 36), (8, 100)] if answers_like_torch(model, session, size, binary=True)
    ]
    assert taken == [(16, 24), (32, 16), (48, 8), (4, 4), (60, 36), (8, 100)]


def test_the_refusal_says_which_sizes_there_are(skips: tuple[nn.Module, Path]) -> None:
    with pytest.raises(InputError, match="pictures of 17×24: it takes heights and widths that are multiples of 4"):
        Session(skips[1])(np.zeros((1, 3, 17, 24), np.float32))


class Reflected(nn.Module):
    """Accepts any size that is larger than its padding."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self.conv, self.head = nn.ReflectionPad2d(6), nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.conv(self.pad(x))))


def test_a_size_below_what_an_operation_takes(tmp_path: Path) -> None:
    rbnn.export(Reflected(), tmp_path / "net.rbnn", torch.randn(2, 3, 8, 8), free_size=True)
    session = Session(tmp_path / "net.rbnn")
    assert session.graph.free is not None
    assert session.graph.free.steps == (1, 1)
    with pytest.raises(
        InputError, match=r"does not take pictures of 5×9, its strides fit .* of 2: .*reflect cannot pad"
    ):
        session(np.zeros((1, 3, 5, 9), np.float32))


class Signals(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv1d(3, 8, 5, 2, 2), nn.ConvTranspose1d(8, 4, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(F.relu(self.one(x)))


def test_signals_of_any_length(tmp_path: Path) -> None:
    model = Signals().eval()
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, 3, 16), free_size=True)
    session = Session(tmp_path / "net.rbnn")
    for length in (16, 20, 7, 31):
        x = torch.randn(2, 3, length)
        np.testing.assert_allclose(session(x.numpy()), model(x).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="a height that is 1"):
        session(np.zeros((1, 3, 2, 16), np.float32))


class Flattened(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 8 * 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.conv(x).flatten(1))


class Placed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.places = nn.Conv2d(3, 4, 3, padding=1), nn.Parameter(torch.randn(1, 4, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + F.interpolate(self.places, size=x.shape[2:], mode="bilinear")


class Spread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).var((2, 3))


@pytest.mark.parametrize(("model", "words"), [
    (Flattened, r"free_size: .*mat1 and mat2.*\(in 'fc', Linear\); leave out free_size"),
    (Placed, "free_size: constant .*its numbers belong to one size of pictures; leave out"),
    (Spread, r"free_size: affine '.*var'.*its numbers belong to one size of pictures; leave out"),
])  # fmt: skip
def test_what_fixes_the_size_is_named(tmp_path: Path, model: Any, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        rbnn.export(model(), tmp_path / "net.rbnn", torch.randn(2, 3, 8, 8), free_size=True)
    assert not list(tmp_path.iterdir())


class Chosen(nn.Module):
    def __init__(self, dim: int, places: Any = None) -> None:
        super().__init__()
        self.conv, self.dim, self.places = nn.Conv2d(3, 16, 3, padding=1), dim, places

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y.flip(self.dim) if self.places is None else y.index_select(self.dim, torch.tensor(self.places))


@pytest.mark.parametrize(("dim", "places"), [(1, None), (1, [3, 1, 15] * 9), (2, [9, 3] * 9), (3, [2, 0, 8] * 7)])
def test_selections_by_places_that_every_size_has(tmp_path: Path, dim: int, places: list[int] | None) -> None:
    model = Chosen(dim, places).eval()
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, 3, 16, 24), free_size=True)
    session = Session(tmp_path / "net.rbnn")
    assert [operation.kind for operation in session.graph.operations] == ["float_conv", "select"]
    for size in SIZES:
        x = torch.randn(2, 3, *size)
        if dim > 1 and places is not None and max(places) >= size[dim - 2]:
            with pytest.raises(InputError, match=r"does not take .*\(select\): there is no place [89] on a side"):
                session(x.numpy())
        else:
            np.testing.assert_allclose(session(x.numpy()), model(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [2, 3])
def test_flipped_images_have_one_size(tmp_path: Path, dim: int) -> None:
    """Their places belong to one size, as the file says each of them."""
    with pytest.raises(ExportError, match=r"free_size: select .*it works in another way for other sizes; leave out"):
        rbnn.export(Chosen(dim), tmp_path / "net.rbnn", torch.randn(2, 3, 16, 24), free_size=True)
    assert not list(tmp_path.iterdir())


def test_vectors_have_no_size(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"free_size is for images .* and signals"):
        rbnn.export(nn.Linear(4, 3), tmp_path / "net.rbnn", torch.randn(2, 4), free_size=True)


@pytest.mark.parametrize("method", ["rbnn", "xnor-net", "dorefa", "abc-net", "xnor++"])
def test_methods(tmp_path: Path, method: str) -> None:
    model = rbnn.create_model("resnet20-bireal", method).eval()
    random_norms(model)
    path, side = tmp_path / "net.rbnn", 32 if method == "xnor++" else 16
    example = torch.randn(2, 3, side, side)
    if method == "xnor++":
        with pytest.raises(ExportError, match=r"free_size: .*learned a factor for each of"):
            rbnn.export(model, path, example, free_size=True)
        return
    rbnn.export(model, path, example, free_size=True)
    session = Session(path)
    for size in ((16, 16), (21, 34)):
        assert answers_like_torch(model, session, size, binary=True)


def test_bytes_of_any_size(tmp_path: Path) -> None:
    """A first layer on bytes is also planned for each size."""
    mean, std = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
    path = tmp_path / "net.rbnn"
    example = torch.randn(2, 3, 16, 24)
    rbnn.export(binary_skips(), path, example, mean, std, stem="int8", float_layers="int8", free_size=True)
    session = Session(path)
    assert session.takes_bytes
    pictures = np.random.default_rng(0).integers(0, 256, (2, 3, 20, 12), np.uint8)
    values = (pictures / 255 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    np.testing.assert_allclose(session(pictures), session(values.astype(np.float32)), rtol=1e-4, atol=1e-4)


def test_the_stored_network_is_that_of_an_ordinary_export(tmp_path: Path) -> None:
    model, example = binary_skips(), torch.randn(2, 3, 16, 24)
    for name, free in (("plain", False), ("free", True)):
        rbnn.export(model, tmp_path / name, example, free_size=free)
    plain, free_graph = packfile.read(tmp_path / "plain"), packfile.read(tmp_path / "free")
    assert plain.free is None
    assert plain.buffers == free_graph.buffers
    again = free_graph.at(32, 32).at(16, 24)
    assert again.buffers == free_graph.buffers
    for one, two in zip(again.operations, free_graph.operations, strict=True):
        assert (one.attributes, one.follows) == (two.attributes, two.follows)
