"""``Session.predict``: an image in any form is prepared and classified as the file specifies."""

import io
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packed_networks import small_network
from PIL import Image
from torch import nn

import rbnn
from rbnn import data
from rbnn.errors import ConfigError, DataError, InputError
from rbnn.packed import file as packfile
from rbnn.packed import oracle, pretrained
from rbnn.packed.evaluate import evaluate
from rbnn.packed.graph import Answer, Input
from rbnn.packed.prediction import Prediction
from rbnn.packed.session import Session

DIGITS = "resnet20-bireal-digits"


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)


def by_hand(pixels: np.ndarray) -> np.ndarray:
    """Probabilities from the oracle, in double."""
    graph = small_network()
    images = ((pixels / 255 - graph.input.mean) / graph.input.std).transpose(2, 0, 1)[None]
    logits = oracle.run(graph, images.astype(np.float32))[0].astype(np.float64)
    return np.exp(logits) / np.exp(logits).sum()


def test_every_form_of_a_picture_gives_the_same(pixels: np.ndarray, tmp_path: Path) -> None:
    session, file, stream = Session(small_network()), tmp_path / "a.png", io.BytesIO()
    Image.fromarray(pixels).save(file)
    Image.fromarray(pixels).save(stream, "PNG")
    ready = session._normalised(pixels.transpose(2, 0, 1)[None])[0]
    forms = [file, str(file), stream.getvalue(), Image.fromarray(pixels), pixels, ready]
    for found in [*session.predict(forms), *map(session.predict, forms)]:
        np.testing.assert_allclose(found.probabilities, by_hand(pixels), rtol=1e-5)
        assert found.name == session.classes[int(by_hand(pixels).argmax())]
        assert found.probability == found.top()[0].probability == found.probabilities.max()
        assert found.index == int(by_hand(pixels).argmax())


def test_other_sizes_and_colours_are_fitted(pixels: np.ndarray) -> None:
    session = Session(small_network())
    large = Image.fromarray(pixels).resize((24, 16), Image.Resampling.NEAREST)
    assert session.predict(large).probabilities.sum() == pytest.approx(1)
    grey = pixels[:, :, 0]
    wanted = session.predict(np.stack([grey] * 3, -1)).probabilities
    for form in (grey, grey[..., None], Image.fromarray(grey)):
        np.testing.assert_array_equal(session.predict(form).probabilities, wanted)


@pytest.mark.parametrize("output", [{"classes": "logits"}, ["logits"], {"out": [{"scores": "logits"}]}])
def test_one_output_in_a_container_is_one_output(pixels: np.ndarray, output: Answer, tmp_path: Path) -> None:
    graph = replace(small_network(), output=output)
    packfile.write(graph, tmp_path / "net.rbnn")
    session = Session(tmp_path / "net.rbnn")
    assert session.classes == small_network().input.classes
    np.testing.assert_allclose(session.predict(pixels).probabilities, by_hand(pixels), rtol=1e-5)
    labels = np.array([by_hand(pixels).argmax(), 0])
    images = np.stack([pixels, pixels])
    tests = data.ImageSet("own", images, labels, session.classes, (0.0,), (1.0,), crop_padding=0, flip=False)
    right = 100.0 if labels[0] == 0 else 50.0
    assert evaluate(session, tests, graph.input.mean, graph.input.std, 2)["top1"] == right


def test_no_pictures_no_predictions() -> None:
    assert Session(small_network()).predict([]) == []


def test_digits_as_they_are() -> None:
    tests, session = data.load("digits", None, "test"), rbnn.load(DIGITS)
    found = session.predict(list(tests.images))
    right = [each.name == tests.classes[label] for each, label in zip(found, tests.labels, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(pretrained.card(DIGITS).packed_top1, abs=0.006)


def test_what_it_does_not_take(pixels: np.ndarray, tmp_path: Path) -> None:
    session = Session(small_network())
    with pytest.raises(InputError, match=r"takes images as bytes, .* got float64 of shape \(8, 8, 3\)"):
        session.predict(pixels / 255)
    with pytest.raises(InputError, match=r"float32 of shape \(3, 8, 8\), got float32 of shape \(8, 8, 3\)"):
        session.predict(pixels.astype(np.float32))
    with pytest.raises(DataError, match=r"image .* does not exist"):
        session.predict(tmp_path / "none.jpg")
    with pytest.raises(DataError, match="the image could not be read"):
        session.predict(b"no picture")
    graph = small_network()
    silent = Session(replace(graph, input=replace(graph.input, mean=(), std=())))
    with pytest.raises(ConfigError, match="the network does not record how images are normalised"):
        silent.predict(pixels)


def test_a_prediction_shows_itself() -> None:
    found = Prediction(("cat", "dog", "emu", "fox"), np.array([0.1, 0.6, 0.25, 0.05]))
    assert repr(found) == "Prediction(dog 60.0 %, emu 25.0 %, cat 10.0 %, …)"
    assert [each.name for each in found.top(2)] == ["dog", "emu"]
    assert len(found.top(9)) == 4


@pytest.mark.parametrize(
    ("source", "got"),
    [
        (np.zeros((8, 8, 7), np.uint8), "uint8 of shape (8, 8, 7)"),
        (np.zeros((3, 8, 8), np.uint8), "uint8 of shape (3, 8, 8)"),
        (np.zeros((2, 8, 8, 3), np.uint8), "uint8 of shape (2, 8, 8, 3): pass several images as a list"),
        (np.zeros((2, 3, 8, 8), np.float32), "float32 of shape (2, 3, 8, 8): pass several images as a list"),
        (np.zeros((0, 8), np.uint8), "uint8 of shape (0, 8)"),
        (3, "int"),
        ([None], "NoneType"),
    ],
)
def test_what_is_no_picture_gets_the_same_sentence(source: Any, got: str) -> None:
    with pytest.raises(InputError) as caught:
        Session(small_network()).predict(source)
    taken = "as bytes, (H, W) or (H, W, C) of any size, or as normalised float32 of shape (3, 8, 8)"
    assert str(caught.value) == f"the network takes images {taken}, got {got}"


@pytest.mark.parametrize(("output", "why"), [(["logits", "b"], "has 2 outputs, so"), ("b", "returns a map,")])
def test_a_network_that_does_not_classify_is_called(output: Answer, why: str, pixels: np.ndarray) -> None:
    graph = replace(small_network(), input=Input("image", (0.5,), (0.25,)))
    with pytest.raises(
        ConfigError, match=rf"the network {why} .*: call the session with arrays .*: session\(images\) "
    ):
        Session(replace(graph, output=output)).predict(pixels)


def test_a_session_shows_its_outputs_as_it_returns_them() -> None:
    graph = replace(small_network(), input=Input("image", (0.5,), (0.25,)))
    session = Session(replace(graph, output={"digit": "logits", "mask": "b"}), kernels="portable")
    assert session(np.zeros((1, 3, 8, 8), np.float32))["mask"].shape == (1, 16, 8, 8)
    assert "3×8×8 → digit 5, mask 16×8×8; 3 binary and 2 float layers, portable" in repr(session)
    assert ">outputs</td>" in session._repr_html_()
    assert "→ 16×8×8, 5; 3 binary" in repr(Session(replace(graph, output=["b", "logits"])))
    assert "→ 16×8×8, 3 binary" in repr(Session(replace(graph, output="b")))


def test_a_session_says_what_it_is_and_closes(pixels: np.ndarray) -> None:
    with Session(pretrained.path(DIGITS), kernels="portable") as session:
        shown = f"Session({DIGITS}: 1×8×8 → 10, 18 binary and 2 float layers, "
        assert repr(session) == f"{shown}portable kernels, 1 thread)"
        session(np.zeros((1, 1, 8, 8), np.float32))
    assert repr(session) == f"{shown}closed)"
    with pytest.raises(InputError, match=f"the session of {DIGITS} is closed"):
        session(np.zeros((1, 1, 8, 8), np.float32))


def test_a_pickled_session_answers_the_same(pixels: np.ndarray) -> None:
    session = Session(small_network(), threads=2, kernels="portable")
    again = pickle.loads(pickle.dumps(session))
    assert (again.threads, again.kernels) == (2, "portable")
    np.testing.assert_array_equal(again.predict(pixels).probabilities, session.predict(pixels).probabilities)
    session.close()
    with pytest.raises(InputError, match="is closed"):
        pickle.loads(pickle.dumps(session)).predict(pixels)


def test_vectors_and_signals_are_not_pictures(tmp_path: Path) -> None:
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("torch.nn")
    model = nn.Sequential(nn.Linear(13, 16), nn.Hardtanh(), nn.Linear(16, 16), nn.Hardtanh(), nn.Linear(16, 3))
    rbnn.binarize_(model)
    vectors = torch.randn(5, 13)
    rbnn.export(model.eval(), tmp_path / "net.rbnn", vectors, classes=("a", "b", "c"))
    session = rbnn.load(tmp_path / "net.rbnn")
    with torch.no_grad():
        wanted = model(vectors).softmax(1).numpy()
    found = np.stack([each.probabilities for each in session.predict(list(vectors.numpy()))])
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    np.testing.assert_allclose(session.predict(vectors[0].numpy()).probabilities, wanted[0], rtol=1e-4)
    with pytest.raises(InputError, match="takes one vector of 13 numbers in float32 at a time, not images"):
        session.predict(Image.new("RGB", (8, 8)))


class Ending(nn.Module):
    """Averages each channel, and ends as told."""

    def __init__(self, end: nn.Module, outputs: int = 3) -> None:
        super().__init__()
        self.head, self.end = nn.Linear(3, outputs), end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.head(x.mean((2, 3))))


@pytest.mark.parametrize("name", ["softmax", "shaped", "log_softmax", "sigmoid", "none"])
def test_a_network_that_ends_in_probabilities_keeps_them(name: str, tmp_path: Path) -> None:
    ends = {"softmax": nn.Softmax(1), "log_softmax": nn.LogSoftmax(1), "sigmoid": nn.Sigmoid(), "none": nn.Identity()}
    ends["shaped"] = nn.Sequential(nn.Unflatten(1, (3, 1, 1)), nn.Softmax(1))
    model = Ending(ends[name]).eval()
    rbnn.export(model, tmp_path / "net.rbnn", torch.randn(2, 3, 8, 8), 0.0, 1.0)
    image = np.random.default_rng(0).random((3, 8, 8), np.float32)
    predicted = Session(tmp_path / "net.rbnn").predict(image)
    with torch.no_grad():
        logits = Ending.forward(model, torch.from_numpy(image)[None]).flatten(1).double()
    wanted = logits if name in ("softmax", "shaped", "sigmoid") else logits.softmax(1)
    np.testing.assert_allclose(predicted.probabilities, wanted[0], atol=1e-6)


def test_one_number_is_no_class(tmp_path: Path) -> None:
    rbnn.export(Ending(nn.Identity(), 1).eval(), tmp_path / "net.rbnn", torch.randn(2, 3, 8, 8), 0.0, 1.0)
    with pytest.raises(ConfigError, match="returns one number, not a score for each class: call the session"):
        Session(tmp_path / "net.rbnn").predict(np.zeros((8, 8, 3), np.uint8))
