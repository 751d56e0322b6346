"""What a session rejects: invalid arrays, too much work, overflow; and Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_networks import small_network

from rbnn import _core
from rbnn.errors import ConfigError, InputError, PackError, RbnnError
from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.session import Session

KERNELS = [name for name, supported in _core.kernels() if supported]


def images(count: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(count, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"nope": np.zeros((2, 8, 8, 16), np.float32)}, "unknown buffer 'nope': "),
        ({"a": np.zeros((2, 8, 8, 15), np.float32)}, r"'a' takes numbers of shape \(2, 8, 8, 16\), got .*15\)"),
        ({"a": np.zeros((1, 8, 8, 16), np.float32)}, r"got float32 of shape \(1, 8, 8, 16\)"),
        ({"a": [[1, 2], [3]]}, "expected an array of numbers"),
        ({"a": None}, "got object"),
        ({"a": ["x"]}, "got 'x': pass image files to predict"),
        ({3: 1.0}, "unknown buffer '3': "),
        (None, "by buffer in a dictionary, got a NoneType"),
    ],
)
def test_a_trace_of_what_cannot_be(given: Any, what: str) -> None:
    with pytest.raises(RbnnError, match=what):
        Session(small_network()).trace(images(2), given)


def test_lists_of_different_lengths_are_no_pictures() -> None:
    session, ragged = Session(small_network()), [[1.0, 2.0], [3.0]]
    for call in (session, session.profile, lambda pictures: session.trace(pictures, {})):
        with pytest.raises(InputError, match="expected an array of numbers"):
            call(ragged)


def two_inputs() -> Graph:
    shape = (2, 2, 3)
    buffers = {name: Buffer("float", shape) for name in ("a", "b", "y")}
    operations = [Operation("add", "add", {"a": "a", "b": "b"}, {"float": "y"})]
    return Graph(Input("a", names={"left": "a", "right": "b"}), "y", buffers, operations)


@pytest.mark.parametrize("arrays", [None, 3, np.zeros((2, 3, 2, 2), np.float32)])
def test_several_inputs_are_a_list_or_a_dictionary(arrays: Any) -> None:
    session = Session(two_inputs())
    for call in (session.profile, lambda each: session.trace(each, {})):
        with pytest.raises(InputError, match="expected a list or a dictionary of arrays, got a "):
            call(arrays)


@pytest.mark.parametrize("repeats", [1.5, "3", 10**30, 10**5000], ids=["half", "word", "large", "digits"])
def test_a_profile_is_repeated_whole_times(repeats: Any) -> None:
    with pytest.raises(InputError, match="repeats must be a whole number"):
        Session(small_network()).profile(images(1), repeats)


@pytest.mark.parametrize("network", [5, None, b"net.rbnn"])
def test_a_session_of_what_is_no_network(network: Any) -> None:
    with pytest.raises(ConfigError, match="expected a packed file or a graph"):
        Session(network)


def test_kernels_are_named_by_words() -> None:
    with pytest.raises(ConfigError, match="kernels must be one of"):
        Session(small_network(), kernels=["avx2"])  # type: ignore[arg-type]


def overflowing(activation: list[Any], spread: float = 3e37) -> Graph:
    """Sums of up to 576 products, half of them negative: some are infinite or NaN before the activation."""
    rng, shape = np.random.default_rng(0), (8, 8, 64)
    weight = (spread * np.sign(rng.normal(size=(64, 3, 3, 64)))).astype(np.float32)
    buffers = {"image": Buffer("float", shape), "y": Buffer("float", shape)}
    attributes = {"kernel": [3, 3], "padding": [1, 1], "activation": activation}
    operations = [Operation("float_conv", "big", {"x": "image"}, {"float": "y"}, {"weight": weight}, attributes)]
    return Graph(Input("image"), "y", buffers, operations)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("activation", [["hardtanh", -1.0, 1.0], ["sigmoid"], ["relu6"]], ids=lambda a: a[0])
def test_what_no_float_holds_is_no_answer(kernels: str, threads: int, activation: list[Any]) -> None:
    """Also if an activation would hide it, because each instruction set would give a different result."""
    graph = overflowing(activation)
    pictures = 10 * np.random.default_rng(1).normal(size=(3, 64, 8, 8)).astype(np.float32)
    for count in (1, 3):
        with pytest.raises(InputError, match=r"'big' \(float_conv\): its values are larger than a float holds"):
            Session(graph, threads, kernels)(pictures[:count])
    with pytest.raises(InputError, match=r"'big' \(float_conv\): its values are larger than a float holds"):
        oracle.run(graph, pictures)
    fine = Session(graph, threads, kernels)(pictures * np.float32(1e-4))
    np.testing.assert_allclose(fine, oracle.run(graph, pictures * np.float32(1e-4)), atol=1e-4)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("activation", [["sigmoid"], ["leaky_relu", 100.0], ["prelu"]], ids=lambda a: a[0])
def test_large_values_that_an_activation_keeps_are_answered(kernels: str, activation: list[Any]) -> None:
    """Unused values do not count as overflow: exp of a large number, or the slope times a positive value."""
    shape = (1, 1, 67)
    tensors = {"slope": np.full(67, 100, np.float32)} if activation == ["prelu"] else {}
    operations = [
        Operation("activation", "a", {"x": "image"}, {"float": "y"}, tensors, {"activation": activation}),
    ]
    graph = Graph(Input("image"), "y", {"image": Buffer("float", shape), "y": Buffer("float", shape)}, operations)
    values = np.full((1, 67), 3e38, np.float32)
    values[0, ::2] = -3e38 if activation == ["sigmoid"] else -1e30
    np.testing.assert_array_equal(Session(graph, kernels=kernels)(values), oracle.run(graph, values[:, :, None, None]))


def slow_network(kernel: int = 255) -> Graph:
    """A file of a few hundred bytes that needs 10¹² multiply-adds."""
    side = 2048
    weight = np.ones((1, kernel, kernel, 1), np.int8)
    buffers = {"image": Buffer("float", (side, side, 1)), "y": Buffer("float", (side, side, 1))}
    attributes = {"kernel": [kernel, kernel], "padding": [kernel // 2, kernel // 2]}
    operations = [Operation("float_conv", "slow", {"x": "image"}, {"float": "y"}, {"weight": weight}, attributes)]
    return Graph(Input("image"), "y", buffers, operations)


def test_work_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PackError, match=r"needs 273 G multiply-adds .* set the environment"):
        Session(slow_network())
    Session(slow_network(), most_work=float("inf"))
    with pytest.raises(PackError, match=r"the limit is 1\.00 M"):
        Session(small_network(), most_work=1e6)
    monkeypatch.setenv("RBNN_MOST_WORK", "3e11")
    Session(slow_network())
    monkeypatch.setenv("RBNN_MOST_WORK", "much")
    with pytest.raises(ConfigError, match="RBNN_MOST_WORK must be a positive number, got 'much'"):
        Session(slow_network())


@pytest.mark.parametrize("most", ["much", float("nan"), 0, -1])
def test_a_limit_that_is_none(most: Any) -> None:
    with pytest.raises(ConfigError, match="most_work must be a positive number, got "):
        Session(small_network(), most_work=most)


def test_many_operations_are_much_work() -> None:
    buffers = {f"x{i}": Buffer("float", (1, 1, 1)) for i in range(7000)}
    steps = [Operation("add", "add", {"a": f"x{i}", "b": f"x{i}"}, {"float": f"x{i + 1}"}) for i in range(6999)]
    with pytest.raises(PackError, match="6,999 operations"):
        Session(Graph(Input("x0"), "x6999", buffers, steps))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["float_conv", "max_pool", "adaptive_avg_pool"])
def test_ctrl_c_ends_a_call(threads: int, kind: str) -> None:
    graph = slow_network()
    if kind == "max_pool":
        attributes = {"kernel": [255, 255], "stride": [1, 1], "padding": [127, 127]}
        steps = [Operation("max_pool", "slow", {"x": "image"}, {"float": "y"}, {}, attributes)]
        graph = replace(graph, operations=steps)
    elif kind == "adaptive_avg_pool":
        steps = [
            Operation(kind, f"slow{i}", {"x": "image" if i == 0 else f"y{i - 1}"}, {"float": f"y{i}"}, {},
                      {"size": [2048, 2048]})
            for i in range(60)
        ]  # fmt: skip
        buffers = graph.buffers | {f"y{i}": Buffer("float", (2048, 2048, 1)) for i in range(60)}
        graph = replace(graph, operations=steps, buffers=buffers, output="y59")
    session = Session(graph, threads, most_work=float("inf"))
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        session(np.zeros((1, 1, 2048, 2048), np.float32))
    timer.join()
    assert time.monotonic() - start < 10
    assert Session(small_network(), threads)(images(2)).shape == (2, 5)


def many_convolutions(count: int) -> tuple[Any, ...]:
    """The arguments of a program whose convolutions share one weight of 2.4 MB."""
    weight = np.ones((512, 3, 3, 512), np.int8)
    ones = {"scale": np.ones(512, np.float32), "shift": np.zeros(512, np.float32)}
    buffers = [("float", 3, 3, 512), ("bytes", 3, 3, 512), *[("float", 1, 1, 512)] * count]
    operations = [
        ("quantize", "bytes", {"x": 0}, {"bytes": 1}, ones, {}, {}),
        *(
            ("int8_conv", "c", {"x": 1}, {"float": 2 + index}, {"weight": weight}, {"kernel": [3.0, 3.0]}, {})
            for index in range(count)
        ),
    ]
    return buffers, operations, [0], [2], "portable"


def test_ctrl_c_ends_the_building_of_a_program_and_other_threads_go_on() -> None:
    """A small file may name one weight in hundreds of operations, each of which copies it in its own order."""
    arguments = many_convolutions(20)
    start = time.monotonic()
    _core.Program(*arguments)
    whole = time.monotonic() - start
    ticks, done = [], threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            ticks.append(time.monotonic())

    other = threading.Thread(target=tick)
    other.start()
    timer = threading.Timer(whole / 10, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        _core.Program(*arguments)
    end = time.monotonic()
    timer.join()
    done.set()
    other.join()
    assert sum(start < tick < end for tick in ticks) >= 3
    assert end - start < 0.7 * whole + 0.3


@pytest.mark.parametrize("kernels", KERNELS)
def test_differences_that_overflow_are_no_error(kernels: str) -> None:
    """Four rows at a time are computed from differences of rows, which are not part of the answer."""
    weight = np.full((8, 7, 7, 3), 1e-20, np.float32)
    buffers = {"image": Buffer("float", (32, 32, 3)), "y": Buffer("float", (16, 15, 8))}
    attributes = {"kernel": [7, 7], "stride": [2, 2], "padding": [3, 2]}
    operations = [Operation("float_conv", "stem", {"x": "image"}, {"float": "y"}, {"weight": weight}, attributes)]
    graph = Graph(Input("image"), "y", buffers, operations)
    images = np.zeros((2, 3, 32, 32), np.float32)
    images[:, :, ::4], images[:, :, 2::4] = 3e38, -3e38
    images[1] *= np.float32(1e-3)
    for threads in (1, 2):
        found = Session(graph, threads, kernels)(images)
        np.testing.assert_allclose(found, oracle.run(graph, images), rtol=1e-4, atol=1e15)


def test_the_engine_checks_again_what_python_has_checked() -> None:
    kernel, threshold = {"kernel": [1.0, 1.0]}, np.array([5], np.int32)
    buffers = [("float", 1, 1, 1), ("float", 1, 1, 1), ("bits", 1, 1, 1), ("bits", 1, 1, 1)]
    answer = ("add", "answer", {"a": 0, "b": 0}, {"float": 1}, {}, {}, {})
    pack = ("pack", "bits", {"x": 0}, {"bits": 2}, {}, {}, {})
    tensors = {"weight": np.ones((1, 1, 1, 1), np.float32), "threshold": threshold}
    floats = ("float_conv", "c", {"x": 0}, {"bits": 2}, tensors, kernel, {})
    with pytest.raises(_core.Invalid, match="only a binary convolution has a threshold"):
        _core.Program(buffers, [answer, floats], [0], [1], "portable")
    tensors = {"weight": np.ones((1, 1, 1, 1), np.uint8), "threshold": threshold, "scale": -np.ones(1, np.float32)}
    bits = ("binary_conv", "c", {"x": 2}, {"bits": 3}, tensors, kernel, {})
    with pytest.raises(_core.Invalid, match="a threshold replaces scale, shift, level and slope"):
        _core.Program(buffers, [answer, pack, bits], [0], [1], "portable")
    constant = ("constant", "k", {}, {"float": 1}, {"value": np.full((1, 1, 1), np.inf, np.float32)}, {}, {})
    with pytest.raises(_core.Invalid, match=r"'k' \(constant\): not finite"):
        _core.Program(buffers, [constant], [0], [1], "portable")


def test_large_answers_are_judged_before_there_is_room_for_them() -> None:
    side = 11_585  # about 2²⁷ values
    buffers = {"image": Buffer("float", (1, 1, 1)), "y": Buffer("float", (side, side, 1))}
    attributes = {"before": [0, 0, 0], "after": [side - 1, side - 1, 0]}
    graph = Graph(
        Input("image"), "y", buffers, [Operation("pad", "pad", {"x": "image"}, {"float": "y"}, {}, attributes)]
    )
    with pytest.raises(InputError, match=r"the outputs for 12 images take 6442\.\d+ MB, but at most .* pass fewer"):
        Session(graph)(np.zeros((12, 1, 1, 1), np.float32))
    with pytest.raises(InputError, match=r"12 images have .* values"):
        oracle.run(graph, np.zeros((12, 1, 1, 1), np.float32))


def test_more_threads_than_the_system_allows() -> None:
    """With limited memory a thousand threads or arenas cannot be created; fewer do the work."""
    code = """
import resource
import numpy as np
from packed_networks import small_network
from rbnn.packed.session import Session

mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (1 << 28),) * 2)
images = np.random.default_rng(0).normal(size=(50, 3, 8, 8)).astype(np.float32)
answers = [Session(small_network(), threads)(images) for threads in (1, 1000)]
assert np.array_equal(*answers)
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc to know how much memory is mapped")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_images_at_once_have_room_together() -> None:
    """Each image needs 3 GB, and so would each thread.  The images are rejected before memory is allocated."""
    code = """
import resource
import numpy as np
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.session import Session

side = 11_585
shapes = {"image": (1, 1, 1), "x": (side, side, 1), "y": (side, side, 1), "z": (1, 1, 1)}
attributes = {"before": [0, 0, 0], "after": [side - 1, side - 1, 0]}
operations = [
    Operation("pad", "pad", {"x": "image"}, {"float": "x"}, {}, attributes),
    Operation("softmax", "softmax", {"x": "x"}, {"float": "y"}, {}, {"over": "c"}),
    Operation("mean", "mean", {"x": "y"}, {"float": "z"}, {}, {"over": "hw"}),
]
session = Session(Graph(Input("image"), "z", {n: Buffer("float", s) for n, s in shapes.items()}, operations), 8)
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + (5 << 30),) * 2)
try:
    session(np.full((16, 1, 1, 1), np.nan, np.float32))
except Exception as error:
    print(error)
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc to know how much memory is mapped")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("images hold NaN or infinite values\n", "")


def test_tables_of_sizes_are_limited() -> None:
    """A file of a few kilobytes must not make the engine store gigabytes of interpolation rows."""
    buffers = {"image": Buffer("float", (1, 1, 1))} | {f"{i}": Buffer("float", (1 << 14, 1, 1)) for i in range(500)}
    resized = [
        Operation("resize", f"{i}", {"x": "image"}, {"float": f"{i}"}, {}, {"size": [1 << 14, 1], "mode": "bilinear"})
        for i in range(500)
    ]
    few = Session(Graph(Input("image"), "0", buffers, resized[:9]))
    assert few(np.ones((1, 1, 1, 1), np.float32)).shape == (1, 1, 1 << 14, 1)
    with pytest.raises(PackError, match="more than 67108864 numbers in their tables"):
        Session(Graph(Input("image"), "0", buffers, resized))
