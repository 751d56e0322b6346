"""Networks with several arguments: exported with their names, called by position, by name or with a dictionary."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packed_files import rewrite
from torch import Tensor, nn

import rbnn
from rbnn import _core
from rbnn.cli import main
from rbnn.errors import ConfigError, ExportError, InputError, PackError, UnknownName
from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session

KERNELS = [name for name, supported in _core.kernels() if supported]


class Stereo(nn.Module):
    """Two images through the same binary body, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 16, 3, padding=1), rbnn.BinaryConv2d(16, 16, 3, padding=1)
        self.head = nn.Conv2d(32, 4, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = (self.body(self.stem(each)) for each in (left, right))
        return self.head(torch.cat([left, left - right], 1))  # type: ignore[no-any-return]


class Conditioned(nn.Module):
    """An image and a vector that scales its channels: keyword-only, with another argument that has a default."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.film, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, image: Tensor, *, state: Tensor, scale: float = 2.0) -> dict[str, Tensor]:
        x = torch.relu(self.conv(image)) * self.film(state)[:, :, None, None] * scale
        return {"classes": self.head(x.mean((2, 3))), "map": x}


def stereo(path: Path, **options: Any) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    model = Stereo().eval()
    rbnn.export(model, path, (torch.randn(2, 3, 7, 9), torch.randn(2, 3, 7, 9)), **options)
    return model, [torch.randn(3, 3, 7, 9) for _ in range(2)]


def close(ours: Any, wanted: Tensor) -> None:
    np.testing.assert_allclose(ours, wanted.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kernels", KERNELS)
def test_two_pictures(tmp_path: Path, kernels: str) -> None:
    model, images = stereo(tmp_path / "net.rbnn")
    session = Session(tmp_path / "net.rbnn", threads=2, kernels=kernels)
    assert session.inputs == {"left": (3, 7, 9), "right": (3, 7, 9)}
    left, right = arrays = [each.numpy() for each in images]
    wanted = model(*images)
    for answer in (
        session(left, right), session(left, right=right), session(right=right, left=left),
        session({"right": right, "left": left}), oracle.run(session.graph, arrays),
    ):  # fmt: skip
        close(answer, wanted)
    seen = session.trace(arrays, {})
    close(seen[session.graph.outputs[0]].transpose(0, 3, 1, 2), wanted)
    assert len(session.profile({"left": left[:1], "right": right[:1]}, 1)) == len(session.graph.operations)
    assert "3×7×9, 3×7×9 → " in repr(session)


def test_a_picture_and_a_vector_by_name(tmp_path: Path) -> None:
    model = Conditioned().eval()
    example = {"image": torch.randn(2, 3, 8, 8), "state": torch.randn(2, 5)}
    rbnn.export(model, tmp_path / "net.rbnn", example)
    session = Session(tmp_path / "net.rbnn")
    assert session.inputs == {"image": (3, 8, 8), "state": (5, 1, 1)}
    image, state = torch.randn(4, 3, 8, 8), torch.randn(4, 5)
    wanted, answer = model(image, state=state), session(image.numpy(), state.numpy())
    assert list(answer) == ["classes", "map"]
    close(answer["classes"], wanted["classes"])
    close(answer["map"], wanted["map"])


def test_one_argument_in_a_tuple_or_by_name_is_one_input(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3)), torch.randn(2, 3, 6, 6)
    for example in ((x,), {"input": x}, [x]):
        rbnn.export(model, tmp_path / "net.rbnn", example)
        session = Session(tmp_path / "net.rbnn")
        assert session.graph.input.names == {}
        close(session(images=x.numpy()), model(x))


class Any2(nn.Module):
    def forward(self, *parts: Tensor) -> Tensor:
        return torch.relu(parts[0] + 2 * parts[1])


def test_arguments_without_names(tmp_path: Path) -> None:
    a, b = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    rbnn.export(Any2(), tmp_path / "net.rbnn", (a, b))
    close(Session(tmp_path / "net.rbnn")(input1=b.numpy(), input0=a.numpy()), Any2()(a, b))


def test_bytes_are_normalised(tmp_path: Path) -> None:
    stereo(tmp_path / "net.rbnn", mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4])
    session = Session(tmp_path / "net.rbnn")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 2, 3, 7, 9), np.uint8)
    mean, std = (np.array(each)[:, None, None] for each in ([0.5, 0.4, 0.3], [0.2, 0.3, 0.4]))
    values = ((pixels / 255 - mean) / std).astype(np.float32)
    np.testing.assert_allclose(session(*pixels), session(*values), rtol=1e-3, atol=1e-3)


def test_what_is_no_call(tmp_path: Path) -> None:
    _, images = stereo(tmp_path / "net.rbnn")
    session = Session(tmp_path / "net.rbnn")
    left, right = (each.numpy() for each in images)
    for call, words in (
        (lambda: session(left), r"expected 2 inputs \(left, right\): right missing"),
        (lambda: session(), r"expected 2 inputs \(left, right\): left, right missing"),
        (lambda: session(left, right, left), r"expected 2 inputs \(left, right\), got 3"),
        (lambda: session(left, left=left), "got the input 'left' twice"),
        (
            lambda: session(left, right[:2]),
            r"same size for all inputs, got left \(3, 3, 7, 9\), right \(2,",
        ),
        (lambda: session(left, right[:, :, 1:]), r"expected input 'right' of shape \(N, 3, 7, 9\), got \(3, 3, 6, 9\)"),
        (lambda: session(left, right.astype(np.float64)), "expected float32 or uint8 images, got float64"),
        (lambda: session(left, np.float32(1)), "batches of the same size for all inputs"),
    ):
        with pytest.raises(InputError, match=words):
            call()
    with pytest.raises(UnknownName, match="unknown input 'rigth': did you mean 'right'"):
        session(left, rigth=right)
    with pytest.raises(ConfigError, match=r"takes 2 inputs \(left, right\), and a prediction is made from one picture"):
        session.predict(np.zeros((7, 9, 3), np.uint8))
    one = Session(rbnn.load("resnet20-bireal-cifar10").graph)
    with pytest.raises(InputError, match=r"expected 1 input \(images\), got 2"):
        one(left, right)


@pytest.mark.parametrize(("example", "options", "words"), [
    ((torch.randn(2, 3, 7, 9), torch.randn(3, 3, 7, 9)), {}, "equal batch sizes for all arguments"),
    ((), {}, "equal batch sizes for all arguments, got none"),
    ((torch.randn(2, 3, 7, 9), 5), {}, "got int"),
    ((torch.randn(2, 3, 7, 9),), {}, r"does not accept the example input \(2, 3, 7, 9\): .*'right'"),
    ({"left": torch.randn(2, 3, 7, 9), "other": torch.randn(2, 3, 7, 9)}, {}, "unexpected keyword argument 'other'"),
    ((torch.randn(2, 3, 7, 9),) * 2, {"free_size": True}, "free_size is for a network with one input"),
    ((torch.randn(2, 3, 7, 9),) * 2, {"stem": "int8", "mean": [0.5], "std": [0.5]}, "int8 stem is for a network with"),
])  # fmt: skip
def test_what_cannot_be_exported(tmp_path: Path, example: Any, options: Any, words: str) -> None:
    with pytest.raises(ExportError, match=words):
        rbnn.export(Stereo(), tmp_path / "net.rbnn", example, **options)
    assert not list(tmp_path.iterdir())


def test_float_layers_may_be_int8(tmp_path: Path) -> None:
    """Except layers that read the inputs, which stay unchanged."""
    stereo(tmp_path / "net.rbnn", float_layers="int8")
    kinds = {each.name: str(each.tensors["weight"].dtype) for each in packfile.read(tmp_path / "net.rbnn").operations
             if "weight" in each.tensors and each.kind == "float_conv"}  # fmt: skip
    assert kinds["head"] == "int8"
    assert kinds["stem"] == "float32"


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.rbnn"
    stereo(path)
    assert main(["info", str(path)]) == 0
    assert "Inputs: left 3×7×9, right 3×7×9" in capsys.readouterr().out
    assert main(["info", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == {"left": [3, 7, 9], "right": [3, 7, 9]}
    for words in (
        ["predict", str(path), "a.png", "--output", str(tmp_path / "out")],
        ["bench", str(path), "--against", ""],
        ["export", str(path), "--onnx", str(tmp_path / "net.onnx")],
    ):
        assert main(words) == 2
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert "takes 2 inputs (left, right), and" in said.err


def graph_of(path: Path) -> Graph:
    stereo(path)
    return packfile.read(path)


def test_inputs_that_are_none(tmp_path: Path) -> None:
    graph = graph_of(tmp_path / "net.rbnn")
    for names, words in (
        ({"left": "left", "right": "nothing"}, "'nothing' is not a float buffer"),
        ({"left": "left", "right": "left"}, "2 to 64 buffers, each once"),
        ({"left": "left"}, "2 to 64 buffers, each once"),
        ({"right": "right", "left": "left"}, "first of several inputs is 'right'"),
        ({"left": "left", "\ud800": "right"}, "cannot be written as UTF-8"),
    ):
        with pytest.raises(PackError, match=words):
            replace(graph, input=replace(graph.input, names=names)).check()
    with pytest.raises(PackError, match="'right' is not a float buffer that some operation writes"):
        replace(graph, output=["right"]).check()

    def change(parts: dict[str, str], _: Any) -> None:
        parts["graph"] = parts["graph"].replace('"names":{"left":"left","right":"right"}', '"names":["left","right"]')

    with pytest.raises(PackError, match="names of its inputs must each have a buffer"):
        packfile.read(rewrite(tmp_path / "net.rbnn", change))


def test_the_core_counts_its_inputs(tmp_path: Path) -> None:
    program = Session(graph_of(tmp_path / "net.rbnn"))._plans.own.program
    image = np.zeros((1, 3, 7, 9), np.float32)
    with pytest.raises(_core.Invalid, match="another number of inputs"):
        program.run([image], 1)
    with pytest.raises(_core.Invalid, match="different numbers of pictures"):
        program.run([image, np.zeros((2, 3, 7, 9), np.float32)], 1)
    with pytest.raises(_core.Invalid, match="two inputs are one buffer"):
        _core.Program([("float", 1, 1, 1)] * 2, [], [0, 0], [1], "")
    with pytest.raises(_core.Invalid, match="input or output is not"):
        _core.Program([("float", 1, 1, 1)] * 2, [], [], [1], "")
