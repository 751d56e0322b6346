"""`rbnn predict` and `rbnn eval` on packed files: against the oracle, without torch, and with bad input."""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unicodedata import category

import numpy as np
import pytest
from answers import WITHOUT_TORCH, Rbnn, logits
from packed_networks import small_network
from PIL import Image

from rbnn.data import preprocess
from rbnn.packed import file as packfile
from rbnn.packed import pretrained
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.session import Session


def test_names_out_of_a_file_do_not_steer_the_terminal(place: Path, rbnn: Rbnn) -> None:
    """ESC, a line feed, a bell and a C1 control character are escaped, not sent to the terminal."""
    graph = small_network()
    names = "\x1b[31mred", "two\nlines", "bell\a", "\x9b31m", "ö 漢\u00a0字"
    operations = [replace(each, name=f"\x1b[2J{each.name}") for each in graph.operations]
    named = replace(graph, input=replace(graph.input, classes=names), operations=operations)
    packfile.write(named, place / "net.rbnn")
    picture = next(place.rglob("*.png"))
    predicted, shown = rbnn("predict", "net.rbnn", picture), rbnn("info", "net.rbnn")
    for answer in (predicted, shown):
        assert (answer.code, answer.err) == (0, "")
        assert {each for each in answer.out if category(each) in ("Cc", "Cs")} == {"\n"}
    for written in (r"\x1b[31mred", r"two\nlines", r"bell\x07", r"\x9b31m", "ö 漢\u00a0字"):
        assert written in predicted.out
    assert r"\x1b[2Jstem" in shown.out
    assert rbnn("info", "\x1b[2J\n.rbnn").err == "rbnn: \\x1b[2J\\n.rbnn: no such file\n"


def test_a_pretrained_network_is_evaluated_on_the_data_of_its_card(place: Path, rbnn: Rbnn) -> None:
    answer = rbnn("eval", "resnet20-bireal-digits", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out)["top1"] == pytest.approx(
        pretrained.card("resnet20-bireal-digits").packed_top1, abs=0.006
    )
    said = rbnn("eval", "resnet20-bireal-digits", "--data", "image-folder", "--data-dir", ".").err
    assert "resnet20-bireal-digits takes images with 1 channel, but those of image-folder have 3" in said
    shutil.copy("net.rbnn", "resnet20-bireal-digits")  # a local file takes precedence and has no card
    assert "does not record its data set" in rbnn("eval", "resnet20-bireal-digits").err


def test_a_packed_file_answers_as_the_oracle(place: Path, rbnn: Rbnn) -> None:
    paths = sorted((place / "image-folder" / "test").rglob("*.png"))
    answer = rbnn("predict", "net.rbnn", *paths, "--json", "--top", "9")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert [each["image"] for each in found] == list(map(str, paths))
    for each, row in zip(found, logits(small_network(), *paths), strict=True):
        wanted = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
        assert sorted(top["class"] for top in each["top"]) == list("abcde")  # there are fewer than nine classes
        assert [top["probability"] for top in each["top"]] == sorted(
            (top["probability"] for top in each["top"]), reverse=True
        )
        for top in each["top"]:
            assert top["class"] == "abcde"[top["index"]]
            assert top["probability"] == pytest.approx(wanted[top["index"]], abs=2e-5)


def test_large_pictures_are_in_memory_one_by_one(place: Path, rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory for two and a half images of 8×8×3 values."""
    paths = sorted((place / "image-folder" / "test").rglob("*.png"))
    wanted = rbnn("predict", "net.rbnn", *paths, "--json").out
    sizes = []
    run = Session.__call__

    def measured(session: Session, images: np.ndarray) -> np.ndarray:
        sizes.append(len(images))
        return run(session, images)

    monkeypatch.setattr(Session, "__call__", measured)
    monkeypatch.setattr(preprocess, "LARGEST_BATCH", 5 * 8 * 8 * 3 // 2)
    assert rbnn("predict", "net.rbnn", *paths, "--json").out == wanted
    assert sizes == [2, 2, 2, 2, 2, 1]
    monkeypatch.setattr(preprocess, "LARGEST_BATCH", 1)
    assert rbnn("predict", "net.rbnn", *paths[:2], "--json").code == 0
    assert sizes[-2:] == [1, 1]


def odd_tiff(path: Path) -> None:
    """Pillow warns of its tags and logs an error, before it raises one."""
    Image.new("RGB", (12, 20)).save(path, "TIFF")
    raw = bytearray(path.read_bytes())
    at = raw.index(struct.pack("<HHI", 277, 3, 1))  # samples per pixel
    raw[at + 8 : at + 10] = struct.pack("<H", 2048)
    path.write_bytes(raw)


def bomb(path: Path) -> None:
    """Enough pixels for a warning from Pillow, but not for an error."""
    path.write_bytes(b"P6 12000 10000 255\n")


@pytest.mark.parametrize("make", [odd_tiff, bomb])
def test_a_bad_picture_is_one_sentence(place: Path, make: Callable[[Path], None]) -> None:
    """Neither Pillow's warnings nor its log appear."""
    make(place / "bad")
    command = [sys.executable, "-m", "rbnn", "predict", "net.rbnn", "bad"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rbnn: bad ")
    assert done.stderr.count("\n") == 1


def test_good_pictures_are_shown_beside_bad_ones(place: Path, rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "bad.png").write_text("no picture")
    good = sorted((place / "image-folder" / "test").rglob("*.png"))[:3]
    words = "predict", "net.rbnn", good[0], "bad.png", good[1], "none.png", good[2]
    reasons = ["bad.png could not be read as an image: its format is unknown", "image none.png does not exist"]
    alone, answer = rbnn("predict", "net.rbnn", *good), rbnn(*words)
    assert (answer.code, answer.out) == (2, alone.out)
    assert answer.err.splitlines() == [f"rbnn: {reason}" for reason in reasons]
    wanted = json.loads(rbnn("predict", "net.rbnn", *good, "--json").out)
    for at_once in (preprocess.LARGEST_BATCH, 8 * 8 * 3):  # all together, and one at a time
        monkeypatch.setattr(preprocess, "LARGEST_BATCH", at_once)
        answer = rbnn(*words, "--json")
        assert (answer.code, answer.err.count("\n")) == (2, 2)
        found = json.loads(answer.out)
        assert found[::2] == wanted
        assert found[1::2] == [
            {"image": name, "error": reason} for name, reason in zip(("bad.png", "none.png"), reasons, strict=True)
        ]


def test_names_that_are_not_utf8(place: Path) -> None:
    for name in ("net.rbnn", "image-folder/test/a/0.png"):
        shutil.copy(name, os.fsencode(Path(name).name).replace(b".", b"\xff."))
    commands = [["predict", b"net\xff.rbnn", b"0\xff.png"], ["predict", b"net\xff.rbnn", b"0\xff.png", "--json"],
                ["info", b"net\xff.rbnn"], ["info", b"net\xff.rbnn", "--json"]]  # fmt: skip
    for command in commands:
        done = subprocess.run([sys.executable, "-m", "rbnn", *command], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\\udcff" in done.stdout


def test_a_table_names_the_likeliest(place: Path, rbnn: Rbnn) -> None:
    picture = place / "image-folder" / "test" / "a" / "0.png"
    name = "abcde"[int(logits(small_network(), picture).argmax())]
    lines = rbnn("predict", "net.rbnn", "image-folder/test/a/0.png", "--top", "1").out.splitlines()
    (line,) = [line for line in lines if "0.png" in line]
    assert line.split("│")[2].strip() == name
    assert len(lines) == 5


def test_one_class_for_each_picture_needs_no_rules_between_them(place: Path, rbnn: Rbnn) -> None:
    paths = sorted((place / "image-folder" / "test").rglob("*.png"))[:3]
    lines = [len(rbnn("predict", "net.rbnn", *paths, "--top", top).out.splitlines()) for top in ("1", "2")]
    assert lines == [3 + 3 + 1, 3 + 2 * 3 + 2 + 1]


def test_classes_without_names_have_numbers(place: Path, rbnn: Rbnn) -> None:
    graph = small_network()
    packfile.write(replace(graph, input=replace(graph.input, classes=())), place / "plain.rbnn")
    (found,) = json.loads(rbnn("predict", "plain.rbnn", "image-folder/test/a/0.png", "--json").out)
    assert found["top"][0]["class"] == f"class {found['top'][0]['index']}"


def test_a_checkpoint_answers_as_its_model(run_directory: Path, tmp_path: Path, rbnn: Rbnn) -> None:
    import torch

    from rbnn.training.checkpoint import load_network

    Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)).save(tmp_path / "digit.png")
    (found,) = json.loads(rbnn("predict", run_directory, tmp_path / "digit.png", "--json").out)
    network = load_network(run_directory)
    pixels = preprocess.picture(tmp_path / "digit.png", 8, 1)[None]
    images = preprocess.normalise(pixels, network.contract.mean, network.contract.std)
    with torch.no_grad():
        wanted = network.model.eval()(torch.from_numpy(images)).softmax(1)[0]
    for top in found["top"]:
        assert top["probability"] == pytest.approx(float(wanted[top["index"]]), abs=1e-5)


@pytest.mark.parametrize("renamed", ["net.rbnn", "renamed.bin"])
def test_accuracy_of_a_packed_file(renamed: str, place: Path, rbnn: Rbnn) -> None:
    (place / "net.rbnn").rename(place / renamed)
    paths = sorted((place / "image-folder" / "test").rglob("*.png"))
    answers, labels = logits(small_network(), *paths).argmax(1), np.array(["abcde".index(p.parent.name) for p in paths])
    words = "eval", renamed, "--data", "image-folder", "--data-dir", place
    for more in ([], ["--batch-size", "2"]):
        found = json.loads(rbnn(*words, "--json", *more).out)
        assert found == {"top1": round(100 * float((answers == labels).mean()), 4), "top5": 100.0}
    assert f"on 11 test images of image-folder ({place / 'image-folder' / 'test'}): top-1" in rbnn(*words).out


def test_accuracy_without_names_of_classes(place: Path, rbnn: Rbnn) -> None:
    graph = small_network()
    packfile.write(replace(graph, input=replace(graph.input, classes=())), place / "plain.rbnn")
    words = "--data", "image-folder", "--data-dir", place, "--json"
    assert rbnn("eval", "plain.rbnn", *words).out == rbnn("eval", "net.rbnn", *words).out


def test_names_are_printed_as_they_are(place: Path, rbnn: Rbnn) -> None:
    graph = small_network()
    names = "[bold]a", "[/b]", "c", "d", "[train]"
    packfile.write(replace(graph, input=replace(graph.input, classes=names)), place / "odd.rbnn")
    (place / "image-folder" / "test" / "a" / "0.png").rename(place / "[red].png")
    text = rbnn("predict", "odd.rbnn", "[red].png").out
    assert all(name in text for name in (*names, "[red].png"))


def test_checkpoint_and_packed_file_have_the_same_accuracy(run_directory: Path, tmp_path: Path, rbnn: Rbnn) -> None:
    assert rbnn("export", run_directory, "-o", tmp_path / "net.rbnn").code == 0
    trained = json.loads(rbnn("eval", run_directory, "--json").out)
    packed = json.loads(rbnn("eval", tmp_path / "net.rbnn", "--data", "digits", "--json").out)
    assert set(packed) == set(trained)
    assert packed["top1"] == pytest.approx(trained["top1"], abs=0.3)  # one of 360 images


def variant(name: str) -> Graph:
    """A network that image commands cannot use."""
    graph = small_network()
    if name == "unnormalised.rbnn":
        return replace(graph, input=Input("image"))
    if name == "map.rbnn":
        return replace(graph, output="e", input=replace(graph.input, classes=()))
    buffers = {"image": Buffer("float", (8, 9, 3)), "mean": Buffer("float", (1, 1, 3))}
    mean = Operation("mean", "mean", {"x": "image"}, {"float": "mean"}, {}, {"over": "hw"})
    return Graph(Input("image", (0.5,), (0.5,)), "mean", buffers, [mean])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["predict", "net.rbnn"], "no images given"),
        (["predict", "net.rbnn", "none.png"], "image none.png does not exist"),
        (["predict", "net.rbnn", "text.png"], "text.png could not be read as an image: its format is unknown"),
        (["predict", "net.rbnn", "half.png"], "half.png could not be read as an image"),
        (["predict", "net.rbnn", "image-folder"], "image-folder is a directory, not an image: pass its files"),
        (["predict", "net.rbnn", "picture.png", "--top", "0"], "--top must be at least 1, got 0"),
        (["predict", "none.rbnn", "picture.png"], "none.rbnn: no such file"),
        (
            ["predict", "none", "picture.png"],
            "pretrained network is named none: `rbnn models --pretrained` lists the pretrained networks",
        ),
        (["predict", "text.rbnn", "picture.png"], "text.rbnn: not a packed network"),
        (
            ["predict", "half.rbnn", "picture.png"],
            "half.rbnn: not a packed network, or only a part of one: copy or export it again",
        ),
        (["predict", "picture.png", "picture.png"], "picture.png is an image, not a network: name the network first"),
        (["predict", "image-folder", "picture.png"], "image-folder contains neither best.pt nor last.pt"),
        (["predict", "unnormalised.rbnn", "picture.png"], "does not record how images are normalised"),
        (["predict", "map.rbnn", "picture.png"], "returns maps or several tensors, not classes"),
        (["predict", "oblong.rbnn", "picture.png"], "takes images of 8×9, but only square images"),
        (["eval", "none.rbnn"], "none.rbnn: no such file"),
        (["eval", "net.rbnn"], "net.rbnn does not record its data set: add --data NAME"),
        (
            ["eval", "net.rbnn", "--data", "digits"],
            "net.rbnn takes images with 3 channels, but those of digits have 1: choose the data set that",
        ),
        (["eval", "net.rbnn", "--data", "image-folder", "--device", "cuda"], "packed files, which run on the CPU"),
        (["eval", "net.rbnn", "--data", "image-folder", "--batch-size", "0"], "batch_size must be at least 1, got 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_sentence(words: list[str], says: str, place: Path, rbnn: Rbnn) -> None:
    picture = place / "picture.png"
    Image.new("RGB", (8, 8)).save(picture)
    (place / "text.png").write_text("no picture")
    (place / "half.png").write_bytes(picture.read_bytes()[:40])
    (place / "text.rbnn").write_text("no network " * 20)
    (place / "half.rbnn").write_bytes((place / "net.rbnn").read_bytes()[:2000])
    for name in ("unnormalised.rbnn", "map.rbnn", "oblong.rbnn"):
        if name in words:
            packfile.write(variant(name), place / name)
    answer = rbnn(*words)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("rbnn: ")
    assert says in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "net.rbnn", "image-folder/test/a/0.png"],
        ["eval", "net.rbnn", "--data", "image-folder", "--data-dir", "."],
    ],
    ids=" ".join,
)
def test_neither_needs_torch(words: list[str], place: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_digits_need_scikit_learn(place: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, "eval", "resnet20-bireal-digits"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rbnn: digits needs scikit-learn, which is not installed: pip install scikit-learn\n"
