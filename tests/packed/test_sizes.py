"""Images of other sizes: what a file may declare, the plans that a session keeps, and the limits for each size."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_files import rewrite
from packed_networks import small_network
from test_file import with_graph

from rbnn.errors import InputError, PackError
from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.plans import MOST_PLANS
from rbnn.packed.session import Session
from rbnn.packed.site import Follows
from rbnn.packed.sizes import Free, in_words, strides


def free_network() -> Graph:
    """Bits, pools, a mean and classes, and also a map that is resized to the image's size and sliced."""
    graph = small_network()
    up = Operation(
        "resize", "up", {"x": "e"}, {"float": "up"}, {}, {"size": [8, 8], "mode": "bilinear"},
        {"size": [Follows("image", "h"), Follows("image", "w")]},
    )  # fmt: skip
    cut = Operation(
        "slice", "cut", {"x": "up"}, {"float": "cut"}, {},
        {"start": [0, 4, 0], "stop": [7, 8, 24], "step": [1, 1, 1]},
        {"start": [0, Follows("up", "w", 1, 2), 0], "stop": [Follows("up", "h", plus=-1), Follows("up", "w"), 24]},
    )  # fmt: skip
    buffers = graph.buffers | {"up": Buffer("float", (8, 8, 24)), "cut": Buffer("float", (7, 4, 24))}
    return replace(
        graph, buffers=buffers, operations=[*graph.operations, up, cut], output=["logits", "cut"],
        input=replace(graph.input, classes=()), shapes={"cut": (24, 28)},
        free=Free((1, 1), {"cut": [24, Follows("cut", "hw")]}),
    )  # fmt: skip


def images(height: int, width: int, count: int = 2) -> Any:
    return np.random.default_rng(height * width).normal(size=(count, 3, height, width)).astype(np.float32)


@pytest.mark.parametrize("size", [(8, 8), (9, 13), (7, 32), (21, 5), (5, 5)])
def test_a_file_of_any_size_answers_as_the_oracle(tmp_path: Path, size: tuple[int, int]) -> None:
    packfile.write(free_network(), tmp_path / "net.rbnn")
    session = Session(tmp_path / "net.rbnn")
    x = images(*size)
    logits, cut = session(x)
    wanted = oracle.run(session.graph.at(*size), x)
    assert cut.shape == (2, 24, (size[0] - 1) * (size[1] - size[1] // 2))
    for ours, theirs in zip((logits, cut), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_strides_and_sizes_in_words() -> None:
    graph = free_network()
    assert strides(graph.operations, graph.buffers, "image") == (4, 4)
    assert in_words((4, 4), 8, 8) == "heights and widths that are multiples of 4"
    assert in_words((4, 1), 9, 8) == "a height that is 1 + multiples of 4, a width that is any"
    assert in_words((0, 2), 1, 8) == "a height that is 1, a width that is multiples of 2"


def test_strides_beyond_any_image() -> None:
    """Their product would have more digits than Python prints."""
    buffers = {"image": Buffer("float", (1, 256, 1)), "up": Buffer("float", (1, 1, 1))}
    operations, last = [], "image"
    for i in range(2000):
        buffers[f"x{i}"] = Buffer("float", (1, 1, 1))
        kernel = [1, 1] if i else [1, 200]
        operations.append(
            Operation("max_pool", f"pool{i}", {"x": last}, {"float": f"x{i}"}, {},
                      {"kernel": kernel, "stride": [255, 255]})
        )  # fmt: skip
        last = f"x{i}"
    attributes, follows = {"size": [1, 1], "mode": "nearest"}, {"size": [1, Follows("image", "w", plus=-255)]}
    operations.append(Operation("resize", "up", {"x": last}, {"float": "up"}, {}, attributes, follows))
    graph = Graph(Input("image"), "up", buffers, operations, free=Free((0, 1)))
    assert strides(operations, buffers, "image") == (0, 0)
    with pytest.raises(InputError, match="its strides fit a height that is 1, a width that is 256") as refused:
        Session(graph)(np.zeros((1, 1, 1, 100), np.float32))
    assert len(str(refused.value)) < 400


def test_a_network_of_one_size_takes_no_other() -> None:
    with pytest.raises(PackError, match=r"does not take pictures of 9×8: it takes heights and widths that are 8$"):
        small_network().at(9, 8)
    with pytest.raises(InputError, match=r"shape \(N, 3, 8, 8\), got \(1, 3, 9, 8\)"):
        Session(small_network())(images(9, 8, 1))


def test_other_channels_are_no_other_size() -> None:
    with pytest.raises(InputError, match=r"\(N, 3, 8, 8\), or others: any height and width, got \(1, 4, 9, 8\)"):
        Session(free_network())(np.zeros((1, 4, 9, 8), np.float32))


def test_the_last_few_plans_are_kept() -> None:
    session = Session(free_network())
    for width in range(9, 9 + MOST_PLANS + 2):
        session(images(8, width))
    assert list(session._plans) == [(8, width) for width in range(11, 9 + MOST_PLANS + 2)]
    kept = session._plans.of(8, 11)
    assert session._plans.of(8, 11) is kept
    session(images(8, 8))
    session(images(8, 30))
    assert list(session._plans)[-2:] == [(8, 11), (8, 30)]
    assert len(list(session._plans)) == MOST_PLANS


def test_threads_share_a_session_with_different_sizes() -> None:
    session = Session(free_network(), threads=2)
    sizes = [(8 + number % 7, 9 + number % 3) for number in range(60)]
    wanted = {size: oracle.run(session.graph.at(*size), images(*size)) for size in set(sizes)}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda size: session(images(*size)), sizes))
    for size, answer in zip(sizes, found, strict=True):
        for ours, theirs in zip(answer, wanted[size], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_session_keeps_its_sizes_in_a_pickle_and_after_close() -> None:
    session = Session(free_network(), most_work=1e9)
    wanted = session(images(12, 20))
    again = pickle.loads(pickle.dumps(session))
    for ours, theirs in zip(again(images(12, 20)), wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(InputError, match=r"for images of 600×600 the network needs .* multiply-adds per image"):
        again(np.zeros((1, 3, 600, 600), np.float32))
    session.close()
    with pytest.raises(InputError, match="is closed"):
        session(images(12, 20))


def test_the_limits_count_for_each_size() -> None:
    session = Session(free_network())
    with pytest.raises(InputError, match=r"does not take pictures of 4000×4000: .* is larger than \d+ values"):
        session(np.zeros((1, 3, 4000, 4000), np.float32))
    with pytest.raises(InputError, match=r"does not take pictures of 20000×8: .*size must be 2 whole numbers"):
        Session(free_network(), most_work=float("inf"))(np.zeros((1, 3, 20000, 8), np.float32))


def test_steps_that_are_no_single_pixels() -> None:
    session = Session(replace(free_network(), free=replace(free_network().free, steps=(4, 0))))  # type: ignore[type-var]
    assert session(images(12, 8))[0].shape == (2, 5)
    for size in ((10, 8), (8, 12)):
        with pytest.raises(InputError, match="it takes a height that is multiples of 4, a width that is 8"):
            session(images(*size))
    assert "8×8 or a height that is multiples of 4" in repr(session)


def test_a_map_of_one_pixel_stays_a_map() -> None:
    pool = Operation("max_pool", "pool", {"x": "image"}, {"float": "y"}, {}, {"kernel": [2, 2]})
    buffers = {"image": Buffer("float", (8, 8, 3)), "y": Buffer("float", (4, 4, 3))}
    session = Session(Graph(Input("image"), "y", buffers, [pool], free=Free((1, 1))))
    assert session(images(2, 3)).shape == (2, 3, 1, 1)


def test_a_number_that_follows_but_is_not_there() -> None:
    pool = Operation("max_pool", "pool", {"x": "image"}, {"float": "y"}, {}, {"kernel": [2, 2]}, {"stride": [2, 2]})
    buffers = {"image": Buffer("float", (8, 8, 3)), "y": Buffer("float", (4, 4, 3))}
    with pytest.raises(PackError, match="stride follows from the image size, but the operation has no attribute"):
        Graph(Input("image"), "y", buffers, [pool], free=Free((1, 1))).check()


def test_profiles_and_traces_of_other_sizes() -> None:
    session = Session(free_network())
    profile = session.profile(images(9, 10, 1), 1)
    assert profile[-1][0].attributes["stop"] == [8, 10, 24]
    seen = session.trace(images(9, 10), {})
    assert seen["a"].shape == (2, 9, 10, 16)


def followed(**changes: Any) -> Graph:
    graph = free_network()
    *others, cut = graph.operations
    return replace(graph, operations=[*others, replace(cut, follows=cut.follows | changes)])


@pytest.mark.parametrize(("graph", "words"), [
    (replace(free_network(), free=None), "depend on the image size, which is not free"),
    (replace(free_network(), free=Free((0, 0), free_network().free.shapes)), "at least one above 0"),  # type: ignore[union-attr]
    (replace(free_network(), free=Free((-1, 4))), "steps of free sizes must be two whole numbers"),
    (replace(free_network(), free=Free((1, 1), {"cut": [24, 27]})), r"the output 'cut' follows as \[24, 27\]"),
    (replace(free_network(), free=Free((1, 1), {"other": [24]})), "the output 'other' follows as"),
    (followed(step=[1, 1, 1]), "'step' cannot follow"),
    (followed(stop=[7, 8]), r"stop follows as \[7, 8\], but is \[7, 8, 24\]"),
    (followed(stop=[Follows("up", "h"), 8, 24]), r"stop follows as \[8, 8, 24\], but is \[7, 8, 24\]"),
    (followed(stop=[Follows("cut", "h"), 8, 24]), "cannot follow from"),
    (followed(stop=[Follows("nothing", "h"), 8, 24]), "cannot follow from"),
    (followed(stop=[Follows("up", "x"), 8, 24]), "cannot follow from"),
    (followed(stop=[Follows("up", "h", float("nan")), 8, 24]), "cannot follow from"),
    (followed(stop=[Follows("up", "h", 1, 0), 8, 24]), "cannot follow from"),
])  # fmt: skip
def test_what_cannot_follow(graph: Graph, words: str) -> None:
    with pytest.raises(PackError, match=words):
        graph.check()


@pytest.mark.parametrize(("change", "words"), [
    (lambda graph: graph["free"].update(steps=[1]), "must be two"),
    (lambda graph: graph["free"].update(steps=[1, 1.0]), "must be two whole numbers"),
    (lambda graph: graph["free"].update(more=1), "exactly the fields steps, shapes"),
    (lambda graph: graph.update(free=[]), "exactly the fields steps, shapes"),
    (lambda graph: graph["operations"][-1].update(follows=[]), "lists by role"),
    (lambda graph: graph["operations"][-1]["follows"].update(stop=[7, 8, ["up", "h"]]), "is .buffer, sides, times"),
    (lambda graph: graph["operations"][-1]["follows"].update(stop=[7, 8, ["up", 1, 1, 1, 1]]), "is .buffer, sides"),
    (lambda graph: graph["operations"][-1]["follows"].update(stop=[7, 8, ["up", "h", [], 1, 0]]), "cannot follow"),
    (lambda graph: graph["operations"][-1]["follows"].update(stop=[7, 8, ["up", "h", 1, 1, True]]), "cannot follow"),
])  # fmt: skip
def test_files_that_say_something_else(tmp_path: Path, change: Any, words: str) -> None:
    packfile.write(free_network(), tmp_path / "net.rbnn")
    with pytest.raises(PackError, match=words):
        packfile.read(rewrite(tmp_path / "net.rbnn", with_graph(change)))
