"""`rbnn predict` of networks that return maps, or several tensors: they become files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from answers import Rbnn, logits
from packed_networks import small_network
from PIL import Image

from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.sizes import Free


def with_maps() -> Graph:
    graph = small_network()
    return replace(graph, output={"file": "logits", "../maps": ["e", "b"]}, input=replace(graph.input, classes=()))


def test_maps_and_several_answers_become_files(place: Path, rbnn: Rbnn) -> None:
    """Names from the network are not used as paths: everything is written to the directory."""
    packfile.write(with_maps(), place / "net.rbnn")
    picture = next((place / "image-folder").rglob("0.png"))
    answer = rbnn("predict", "net.rbnn", picture, "--output", "answers", "--json")
    assert (answer.code, answer.err) == (0, "")
    (found,) = json.loads(answer.out)
    assert found["answers"] == {"file": [5], "../maps.0": [24, 2, 2], "../maps.1": [16, 8, 8]}
    names = ["0.npz", "0..._maps.0.png", "0..._maps.1.png"]
    assert found["files"] == [f"answers/{name}" for name in names]
    assert sorted(path.name for path in (place / "answers").iterdir()) == sorted(names)
    wanted = logits(with_maps(), picture)
    with np.load(place / "answers" / "0.npz") as arrays:
        np.testing.assert_allclose(arrays["file_"], wanted["file"], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(arrays[".._maps.1"], wanted["../maps"][1], rtol=1e-4, atol=1e-4)
        largest = arrays[".._maps.1"][0].argmax(0)
    np.testing.assert_array_equal(np.asarray(Image.open(place / "answers" / names[2])), largest)
    plain = rbnn("predict", "net.rbnn", picture, picture, "--output", "answers")
    assert plain.out.startswith(f"{picture}: answers/0.0.npz, ")


def test_no_answer_takes_the_place_of_another(place: Path, rbnn: Rbnn) -> None:
    """Images of the same name are numbered, even if a numbered name is taken; savez has arguments of its own."""
    graph = replace(with_maps(), output={"allow_pickle": "logits", "rest": ["b"]})
    packfile.write(graph, place / "net.rbnn")
    picture = next((place / "image-folder").rglob("0.png"))
    (place / "0.0.png").write_bytes(picture.read_bytes())
    answer = rbnn("predict", "net.rbnn", picture, picture, "0.0.png", "--output", "answers", "--json")
    files = [name for each in json.loads(answer.out) for name in each["files"]]
    assert len(set(files)) == len(files)
    with np.load(place / "answers" / "0.0.npz") as arrays:
        assert sorted(arrays) == ["allow_pickle_", "rest.0"]


def free_with_maps(steps: tuple[int, int]) -> Graph:
    return replace(with_maps(), output={"maps": ["b"]}, free=Free(steps))


@pytest.mark.parametrize(("steps", "shape"), [((1, 1), [16, 11, 8]), ((8, 4), [16, 8, 8]), ((2, 2), [16, 12, 8])])
def test_maps_have_the_size_of_the_picture(place: Path, rbnn: Rbnn, steps: tuple[int, int], shape: list[int]) -> None:
    """Or at the nearest size that the network accepts; the image has 11×8 pixels."""
    packfile.write(free_with_maps(steps), place / "net.rbnn")
    picture = next((place / "image-folder").rglob("0.png"))
    answer = rbnn("predict", "net.rbnn", picture, "--output", "answers", "--json")
    assert (answer.code, answer.err) == (0, "")
    (found,) = json.loads(answer.out)
    assert found["answers"] == {"maps.0": shape}
    if steps == (1, 1):  # the original image
        graph = free_with_maps(steps).at(11, 8)
        pixels = np.asarray(Image.open(picture)).astype(np.float64) / 255
        values = ((pixels - graph.input.mean) / graph.input.std).transpose(2, 0, 1)[None].astype(np.float32)
        with np.load(place / "answers" / "0.npz") as arrays:
            wanted = oracle.run(graph, values)["maps"][0]
            np.testing.assert_allclose(arrays["maps.0"], wanted, rtol=1e-3, atol=1e-3)


def test_classes_are_found_at_the_size_of_the_export(place: Path, rbnn: Rbnn) -> None:
    picture = next(place.rglob("0.png"))
    wanted = rbnn("predict", "net.rbnn", picture, "--json")
    packfile.write(replace(small_network(), free=Free((1, 1))), place / "net.rbnn")
    assert rbnn("predict", "net.rbnn", picture, "--json") == wanted


def test_info_says_which_sizes_there_are(place: Path, rbnn: Rbnn) -> None:
    packfile.write(free_with_maps((8, 4)), place / "net.rbnn")
    said = rbnn("info", "net.rbnn").out
    assert (
        "Sizes: it takes a height that is multiples of 8, a width that is multiples of 4. Counts and times are for "
        in said
    )
    assert json.loads(rbnn("info", "net.rbnn", "--json").out)["free_size"] == [8, 4]


def test_a_map_is_of_the_whole_picture(place: Path, rbnn: Rbnn) -> None:
    """A classifier crops images of this size to the centre; a map has a value for each pixel."""
    shape = (64, 64, 3)
    tensors = {"scale": np.ones(3, np.float32), "shift": np.zeros(3, np.float32)}
    same = Operation("affine", "same", {"x": "image"}, {"float": "y"}, tensors)
    buffers = {"image": Buffer("float", shape), "y": Buffer("float", shape)}
    packfile.write(Graph(Input("image", (0.0,), (1.0,)), "y", buffers, [same]), place / "map.rbnn")
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).save(place / "scene.png")
    assert rbnn("predict", "map.rbnn", "scene.png", "--output", "answers").code == 0
    with np.load(place / "answers" / "scene.npz") as arrays:
        np.testing.assert_allclose(arrays["answer"][0].transpose(1, 2, 0), pixels / 255, rtol=1e-6)


def test_answers_need_a_place_and_classes_none(place: Path, rbnn: Rbnn) -> None:
    picture = next(place.rglob("0.png"))
    refused = rbnn("predict", "net.rbnn", picture, "--output", "answers")
    assert (refused.code, refused.out) == (2, "")
    assert "is a classifier" in refused.err
    packfile.write(with_maps(), place / "net.rbnn")
    refused = rbnn("predict", "net.rbnn", picture)
    assert (refused.code, refused.out) == (2, "")
    assert "--output DIR" in refused.err
    assert not (place / "answers").exists()


def test_eval_needs_a_classifier(place: Path, rbnn: Rbnn) -> None:
    packfile.write(with_maps(), place / "net.rbnn")
    refused = rbnn("eval", "net.rbnn", "--data", "digits")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("rbnn: net.rbnn has 3 outputs, so it does not classify images: compute its accuracy ")


def test_info_names_the_answers(place: Path, rbnn: Rbnn) -> None:
    packfile.write(with_maps(), place / "net.rbnn")
    assert "Outputs: file 5, ../maps.0 24×2×2, ../maps.1 16×8×8" in rbnn("info", "net.rbnn").out
    assert json.loads(rbnn("info", "net.rbnn", "--json").out)["answers"]["../maps.0"] == [24, 2, 2]


def test_maps_of_good_pictures_are_written_beside_bad_ones(place: Path, rbnn: Rbnn) -> None:
    packfile.write(with_maps(), place / "net.rbnn")
    (place / "bad.png").write_text("no picture")
    picture = next((place / "image-folder").rglob("0.png"))
    answer = rbnn("predict", "net.rbnn", "bad.png", picture, "--output", "answers")
    assert (answer.code, answer.err) == (2, "rbnn: bad.png could not be read as an image: its format is unknown\n")
    assert answer.out.startswith(f"{picture}: answers/0.npz, ")
    bad, good = json.loads(rbnn("predict", "net.rbnn", "bad.png", picture, "--output", "answers", "--json").out)
    assert set(bad) == {"image", "error"}
    assert set(good) == {"image", "answers", "files"}
