"""int8 layers: the packed network agrees with a torch network whose weights were rounded by hand."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from user_networks import Around

import rbnn
from rbnn.data.preprocess import normalise
from rbnn.errors import ExportError
from rbnn.packed import file as packfile
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)


def float_network() -> nn.Module:
    """Only float layers: no sign can flip, so outputs can be compared closely."""
    layers = nn.Sequential(
        nn.ReLU(), nn.Conv2d(12, 20, 3, 2, 1, groups=4), nn.Hardtanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(20, 6),
    )  # fmt: skip
    return Around(layers).eval()


def pictures(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 13, 11, 3), dtype=np.uint8)


def normalised(count: int) -> Tensor:
    return torch.from_numpy(normalise(pictures(count), MEAN, STD))


def from_file(graph: Graph, layer: str, weight: Tensor, stem: bool = False) -> Tensor:
    """The float values of a layer's integers; also checks how ``weight`` was rounded to them."""
    (operation,) = [each for each in graph.operations if each.name == layer]
    stored = operation.tensors["weight"]
    if stored.dtype != np.int8:
        return weight
    whole = torch.from_numpy(stored.transpose(0, 3, 1, 2).astype(np.float64)).reshape(weight.shape)
    factor = 255 * torch.tensor(STD, dtype=torch.float64)[:, None, None] if stem else 1.0
    scaled = weight.detach().double() / factor
    step = scaled.abs().flatten(1).amax(1).reshape(-1, *[1] * (weight.dim() - 1)) / 127
    assert float((whole - scaled / step).abs().max()) < 1  # up or down to the next integer
    if weight.dim() == 4:  # in flat image regions only the sum over a kernel matters
        assert float((whole - scaled / step).sum((2, 3)).abs().max()) <= 0.5 + 1e-6
    else:
        assert float((whole - scaled / step).abs().max()) <= 0.5
    return (whole * step * factor).float()


def by_hand(model: nn.Module, graph: Graph) -> nn.Module:
    """The same network with the weights of the file."""
    model = copy.deepcopy(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            stem = "int8_conv" in [each.kind for each in graph.operations if each.name == name]
            module.weight.data = from_file(graph, name, module.weight, stem)
    return model


@pytest.mark.parametrize(
    ("stem", "float_layers"), [("int8", "float32"), ("float32", "int8"), ("int8", "int8")]
)  # fmt: skip
def test_it_answers_like_rounded_weights(tmp_path: Path, stem: str, float_layers: str) -> None:
    model, path = float_network(), tmp_path / "net.rbnn"
    rbnn.export(model, path, normalised(2), MEAN, STD, stem=stem, float_layers=float_layers)
    with torch.no_grad():
        wanted = by_hand(model, packfile.read(path))(normalised(7)).numpy()
    session = Session(path)
    whole = {o.name: o.tensors["weight"].dtype == np.int8 for o in session.graph.operations
             if "weight" in o.tensors}  # fmt: skip
    assert whole == {"stem": stem == "int8", "middle.1": float_layers == "int8", "middle.5": float_layers == "int8"}
    np.testing.assert_allclose(session(normalised(7).numpy()), wanted, rtol=1e-4, atol=1e-5)
    # Bytes from an image file give the same result.
    np.testing.assert_allclose(session(pictures(7).transpose(0, 3, 1, 2).copy()), wanted, rtol=1e-4, atol=1e-5)


def test_what_the_file_holds(tmp_path: Path) -> None:
    model, sizes = float_network(), {}
    for form in ("float32", "int8"):
        report = rbnn.export(model, tmp_path / form, normalised(2), MEAN, STD, stem=form, float_layers=form)
        sizes[form] = report.bytes
        assert report.float_layers == 3
        assert (report.changed_by_int8 is None) == (form == "float32")
        assert ("int8: changes the class of" in str(report)) == (form == "int8")
    graph = packfile.read(tmp_path / "int8")
    assert [operation.kind for operation in graph.operations][:2] == ["quantize", "int8_conv"]
    weights = {o.name: o.tensors["weight"] for o in graph.operations if "weight" in o.tensors}
    assert {weight.dtype.name for weight in weights.values()} == {"int8"}
    assert all(int(np.abs(weight.astype(int)).max()) == 127 for weight in weights.values())
    parameters = sum(weight.size for weight in weights.values())
    assert sizes["float32"] - sizes["int8"] > 2 * parameters  # 3 bytes each, less the steps


def test_a_binary_network_with_int8_ends(tmp_path: Path) -> None:
    model = rbnn.create_model("resnet20-bireal", "bi-real").eval()
    images = torch.randn(4, 3, 32, 32)
    report = rbnn.export(model, tmp_path / "net.rbnn", images, MEAN, STD, stem="int8", float_layers="int8")
    assert report.binary_layers == 18
    assert report.images == 4
    kinds = [operation.kind for operation in packfile.read(tmp_path / "net.rbnn").operations]
    assert kinds[:3] == ["quantize", "int8_conv", "binary_conv"]


def test_the_model_keeps_its_weights(tmp_path: Path) -> None:
    model = float_network()
    before = copy.deepcopy(model.state_dict())
    rbnn.export(model, tmp_path / "net.rbnn", normalised(2), MEAN, STD, stem="int8", float_layers="int8")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class ReadTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) + self.two(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "model", [ReadTwice(), nn.Conv2d(3, 6, 3, groups=3), nn.Sequential(nn.ReLU(), nn.Conv2d(3, 4, 3))]
)
def test_an_int8_stem_is_a_convolution_of_the_pictures(tmp_path: Path, model: nn.Module) -> None:
    with pytest.raises(ExportError, match="a float convolution without groups as the only reader of the images"):
        rbnn.export(model, tmp_path / "net.rbnn", normalised(2), MEAN, STD, stem="int8")


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
def test_an_int8_stem_pads_by_numbers(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="needs numeric padding"):
        rbnn.export(nn.Conv2d(3, 4, 2, padding="same"), tmp_path / "net.rbnn", normalised(2), MEAN, STD, stem="int8")


class Functional(nn.Module):
    """Layers without modules.  The first is the stem and the last has a computed weight, so both stay float32."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.weight, self.other = (nn.Parameter(torch.randn(5, c, 3, 3)) for c in (3, 5, 5))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(nn.functional.conv2d(torch.relu(nn.functional.conv2d(x, self.stem)), self.weight))
        return nn.functional.conv2d(x, self.other * 2.0 + 0.1)


def test_layers_that_are_no_modules(tmp_path: Path) -> None:
    model, path = Functional(), tmp_path / "net.rbnn"
    rbnn.export(model, path, normalised(2), MEAN, STD, float_layers="int8")
    graph = packfile.read(path)
    assert [o.tensors["weight"].dtype.name for o in graph.operations] == [
        "float32", "int8", "float32",
    ]  # fmt: skip
    with torch.no_grad():
        model.weight.copy_(from_file(graph, graph.operations[1].name, model.weight))
        wanted = model(normalised(3)).numpy()
    np.testing.assert_allclose(Session(path)(normalised(3).numpy()), wanted, rtol=1e-4, atol=1e-4)


def test_an_int8_stem_needs_to_know_the_pictures(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="needs mean and std of the 3 channels, got 0 and 0 numbers"):
        rbnn.export(float_network(), tmp_path / "net.rbnn", normalised(2), stem="int8")
    with pytest.raises(ExportError, match="stem must be one of float32, int8, got 'int4'"):
        rbnn.export(float_network(), tmp_path / "net.rbnn", normalised(2), MEAN, STD, stem="int4")
    assert not list(tmp_path.iterdir())
