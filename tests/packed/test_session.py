"""Sessions: the whole network against the oracle, threads, and user errors."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_networks import picture_network, signs, small_network
from seeds import seeds

from rbnn import _core
from rbnn.data.preprocess import normalise
from rbnn.errors import ConfigError, InputError, PackError, UnknownName
from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import KINDS, Buffer, Operation
from rbnn.packed.plans import build
from rbnn.packed.session import Session

KERNELS = [name for name, supported in _core.kernels() if supported]


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_network_equals_the_oracle(kernels: str, threads: int) -> None:
    graph = small_network()
    for count in (0, 1, 7):
        answer = Session(graph, threads, kernels)(images(count))
        assert answer.shape == (count, 5)
        np.testing.assert_allclose(answer, oracle.run(graph, images(count)), rtol=1e-4, atol=1e-4)


def test_answers_are_freed_when_nobody_has_them() -> None:
    """At once, and not when Python next looks for objects that refer to each other."""
    session = Session(small_network())
    alive = []
    gc.disable()
    try:
        for _ in range(3):
            answer = session(images(1))
            while isinstance(answer, np.ndarray):  # the array, and those that it is a view of
                alive.append(weakref.ref(answer))
                answer = answer.base
        assert [array for array in alive if array() is not None] == []
    finally:
        gc.enable()


def test_many_threads_and_sessions_at_once(tmp_path: Path) -> None:
    packfile.write(small_network(), tmp_path / "net.rbnn")
    shared, batch = Session(tmp_path / "net.rbnn", threads=2), images(5)
    wanted = shared(batch)
    wrong: list[int] = []

    def work(own: Session) -> None:
        for _ in range(50):
            for session in (shared, own):
                if not np.array_equal(session(batch), wanted):
                    wrong.append(1)

    workers = [
        threading.Thread(target=work, args=[Session(tmp_path / "net.rbnn", threads=1 + i % 3)]) for i in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros((1, 3, 8, 8)), "expected float32 or uint8 images, got float64"),
        (np.zeros((1, 3, 8, 9), np.float32), r"\(N, 3, 8, 8\), got \(1, 3, 8, 9\)"),
        (np.zeros((3, 8, 8), np.float32), r"got \(3, 8, 8\)"),
        ("a.png", r"^expected an array of numbers, got 'a\.png': pass image files to predict$"),
        ([Path("a.png")], r"got 'a\.png': pass image files to predict"),
        (np.full((1, 3, 8, 8), np.nan, np.float32), "NaN"),
        (np.full((1, 3, 8, 8), -np.inf, np.float32), "infinite"),
    ],
)
def test_wrong_input_is_named(array: Any, what: str) -> None:
    with pytest.raises(InputError, match=what):
        Session(small_network())(array)


def test_any_memory_order_will_do() -> None:
    session, batch = Session(small_network()), images(4)
    np.testing.assert_array_equal(session(np.asfortranarray(batch)), session(batch))
    np.testing.assert_array_equal(session(batch[::2]), session(batch)[::2])


def test_kernels_are_chosen_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Session(small_network()).kernels == KERNELS[0]
    monkeypatch.setenv("RBNN_KERNELS", "portable")
    assert Session(small_network()).kernels == "portable"
    monkeypatch.setenv("RBNN_KERNELS", "avx3")
    with pytest.raises(UnknownName, match="avx3"):
        Session(small_network())


def test_kernels_that_this_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, supported in _core.kernels():
        if not supported:
            with pytest.raises(ConfigError, match="cannot run"):
                Session(small_network(), kernels=name)


def test_threads_must_be_a_number_of_threads() -> None:
    for threads in (0, -1, 4096, 2.0, "2", None):
        with pytest.raises(ConfigError, match="threads"):
            Session(small_network(), threads=threads)  # type: ignore[arg-type]
    network = small_network()
    np.testing.assert_array_equal(Session(network, threads=np.int64(2))(images(3)), Session(network)(images(3)))  # type: ignore[arg-type]


def test_a_profile_names_every_operation() -> None:
    profile = Session(small_network()).profile(images(1), repeats=2)
    assert [operation.name for operation, _ in profile] == [o.name for o in small_network().operations]
    assert all(0 <= seconds < 1 for _, seconds in profile)


@pytest.mark.parametrize("repeats", [0, -1])
def test_a_profile_needs_a_repeat(repeats: int) -> None:
    with pytest.raises(InputError, match=f"at least one repeat, got {repeats}"):
        Session(small_network()).profile(images(1), repeats)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_profile_of_what_has_no_answer(value: float) -> None:
    picture = images(1)
    picture[0, 1, 2, 3] = value
    with pytest.raises(InputError, match="NaN or infinite"):
        Session(small_network()).profile(picture)


@pytest.mark.parametrize("graph", [small_network(), picture_network()], ids=["floats", "bytes"])
def test_an_answer_is_what_an_operation_has_written(graph: Graph) -> None:
    """An image passed as bytes never reaches the input's buffer, which still holds another call's image."""
    graph = replace(graph, output=graph.input.buffer, input=replace(graph.input, classes=()))
    with pytest.raises(PackError, match="not a float buffer that some operation writes"):
        Session(graph)
    with pytest.raises(PackError, match="nothing writes the output"):
        build(graph, "portable")


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_that_no_kind_of_operation_writes_is_refused(kind: str) -> None:
    """The engine itself raises the error, because nothing would fill its buffer."""
    networks = [small_network(), picture_network(), *seeds()]
    graph, at = next((graph, at) for graph in networks for at, each in enumerate(graph.operations) if each.kind == kind)
    operation = graph.operations[at]
    unwritten = replace(operation, outputs=operation.outputs | {"rest": "rest"})
    graph = replace(
        graph,
        buffers=graph.buffers | {"rest": Buffer("float", (1, 1, 4))},
        operations=[*graph.operations[:at], unwritten, *graph.operations[at + 1 :]],
    )
    with pytest.raises(PackError, match=rf"\({kind}\): has an output rest, which it does not write"):
        build(graph, "portable")


@pytest.mark.parametrize(
    ("places", "axis", "made"),
    [
        ([0, 5], "c", (3, 4, 2)), ([3], "h", (1, 4, 5)), ([4], "w", (3, 1, 5)), ([-1], "c", (3, 4, 1)),
        ([0.5], "c", (3, 4, 1)), ([2**20], "c", (3, 4, 1)), ([1e300], "h", (1, 4, 5)), ([0, 1], "c", (3, 4, 5)),
        ([0, 1], "w", (2, 4, 5)), ([0], "hw", (1, 1, 5)), ([], "c", (3, 4, 5)), ([0] * (2**20 + 1), "c", (3, 4, 5)),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_places_that_are_not_there_are_refused(places: list[float], axis: str, made: tuple[int, int, int]) -> None:
    """By the rules, and by the engine itself."""
    attributes: dict[str, Any] = {"axis": axis, "places": places}
    buffers = {"image": Buffer("float", (3, 4, 5)), "y": Buffer("float", made)}
    graph = Graph(Input("image"), "y", buffers, [Operation("select", "chosen", {"x": "image"}, {"float": "y"})])
    graph.operations[0].attributes.update(attributes)
    with pytest.raises(PackError, match=r"'chosen' \(select\)"):
        graph.check()
    numbers, words = {"places": [float(place) for place in places]}, {"axis": axis}
    chosen = "select", "chosen", {"x": 0}, {"float": 1}, {}, numbers, words
    with pytest.raises(_core.Invalid, match=r"'chosen' \(select\)"):
        _core.Program([("float", 3, 4, 5), ("float", *made)], [chosen], [0], [1], "portable")


def test_the_runtime_never_imports_torch() -> None:
    code = "import sys, rbnn.runtime; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kernels", KERNELS)
def test_a_trace_shows_every_buffer(kernels: str) -> None:
    graph = small_network()
    seen, wanted = Session(graph, kernels=kernels).trace(images(3), {}), oracle.run_all(graph, images(3))
    assert set(seen) == set(wanted) - {"image"}
    for name, values in seen.items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-4, atol=1e-4)


def test_a_trace_takes_given_values_in_place_of_computed_ones() -> None:
    graph, rng = small_network(), np.random.default_rng(2)
    bits = np.where(rng.random((2, 8, 8, 16)) < 0.5, np.float32(1), np.float32(-1))
    floats = rng.normal(size=(2, 8, 8, 16)).astype(np.float32)
    seen = Session(graph).trace(images(2), {"a.bits": bits, "a": floats})
    operation = next(each for each in graph.operations if each.name == "one")
    wanted = oracle.run_operation(operation, {"x": bits, "residual": floats}, {}, 2)
    np.testing.assert_array_equal(seen["b"], wanted["float"])
    np.testing.assert_array_equal(seen["b.bits"], wanted["bits"])
    assert not np.array_equal(seen["a"], floats)  # what the stem itself wrote


def shortcuts(residuals: list[str]) -> Graph:
    """One sum per residual: a convolution of signs is added to the image or to an earlier sum.  The last operation
    reads the last sum twice: as its input and as its residual."""
    rng, shape = np.random.default_rng(3), (9, 9, 70)
    buffers, operations = {"image": Buffer("float", shape)}, []
    values = "image"
    for index, residual in enumerate(residuals):
        bits, name = f"bits{index}", f"sum{index}"
        buffers |= {bits: Buffer("bits", shape), name: Buffer("float", shape)}
        tensors = {"weight": signs(rng, 70, 3, 3, 70), "scale": rng.random(70, np.float32) / 30}
        operations += [
            Operation("pack", bits, {"x": values}, {"bits": bits}),
            Operation(
                "binary_conv", name, {"x": bits, "residual": residual}, {"float": name},
                tensors, {"kernel": [3, 3], "padding": [1, 1]},
            ),
        ]  # fmt: skip
        values = name
    weight = rng.normal(size=(70, 1, 1, 70)).astype(np.float32)
    buffers["last"] = Buffer("float", shape)
    operations.append(
        Operation("float_conv", "last", {"x": values, "residual": values}, {"float": "last"}, {"weight": weight},
                  {"kernel": [1, 1]})
    )  # fmt: skip
    return Graph(Input("image"), "last", buffers, operations)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "residuals", [["image", "sum0", "sum1"], ["image", "image", "sum1"], ["image", "sum0", "sum0"]], ids=str
)
def test_a_sum_takes_the_place_of_a_residual_only_where_nothing_reads_it_later(
    kernels: str, threads: int, residuals: list[str]
) -> None:
    graph = shortcuts(residuals)
    picture = np.random.default_rng(1).normal(size=(1, 70, 9, 9)).astype(np.float32)
    session, wanted = Session(graph, threads, kernels), oracle.run_all(graph, picture)
    np.testing.assert_allclose(session(picture), wanted["last"].transpose(0, 3, 1, 2), rtol=1e-4, atol=1e-4)
    seen = session.trace(picture, {})
    for name in ("sum0", "sum1", "sum2"):
        np.testing.assert_array_equal(seen[name], wanted[name])


def test_a_chain_of_sums_needs_the_memory_of_one() -> None:
    graph = shortcuts(["image", *(f"sum{index}" for index in range(6))])
    graph = replace(graph, output="sum6", operations=graph.operations[:-1])
    assert build(graph, "portable").arena_bytes < 1.5 * 4 * 9 * 9 * 70


@pytest.mark.parametrize("make", [small_network, picture_network])
def test_bytes_are_normalised_by_what_the_file_says(make: Callable[[], Graph]) -> None:
    graph = make()
    pictures = np.random.default_rng(0).integers(0, 256, (7, 3, 8, 8), np.uint8)
    mean, std = (np.array(numbers)[:, None, None] for numbers in (graph.input.mean, graph.input.std))
    normalised = ((pictures / 255 - mean) / std).astype(np.float32)
    for threads in (1, 2):
        session = Session(graph, threads)
        np.testing.assert_allclose(session(pictures), session(normalised), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match=r"got \(1, 3, 8, 9\)"):
        session(np.zeros((1, 3, 8, 9), np.uint8))


def test_an_int8_stem_gives_the_same_for_bytes_and_for_what_they_are_normalised_to() -> None:
    graph = picture_network()
    pictures = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8), np.uint8)
    normalised = normalise(pictures.transpose(0, 2, 3, 1), graph.input.mean, graph.input.std)
    session = Session(graph)
    assert session.takes_bytes
    assert not Session(small_network()).takes_bytes
    np.testing.assert_array_equal(session(pictures), session(normalised))
    np.testing.assert_allclose(session(normalised), oracle.run(graph, normalised), rtol=1e-4, atol=1e-4)


def test_a_single_mean_serves_all_channels() -> None:
    graph = small_network()
    pictures = np.random.default_rng(0).integers(0, 256, (3, 3, 8, 8), np.uint8)
    one, three = (replace(graph, input=replace(graph.input, mean=(0.4,) * n, std=(0.2,) * n)) for n in (1, 3))
    one.check()
    np.testing.assert_array_equal(Session(one)(pictures), Session(three)(pictures))


def test_bytes_need_a_file_that_says_how_to_normalise_them() -> None:
    graph = replace(small_network(), input=Input("image"))
    with pytest.raises(InputError, match="does not record how to normalise"):
        Session(graph)(np.zeros((1, 3, 8, 8), np.uint8))
