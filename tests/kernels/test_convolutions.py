"""Every convolution × every instruction set of this machine, against the oracle, on odd shapes."""

import numpy as np
import pytest
from agreement import (
    CLOSE,
    EXACT,
    agree,
    channel_counts,
    convolved,
    every_kernel,
    exact_ends,
    finish,
    grouped,
    often,
    windows,
)
from hypothesis import given
from hypothesis import strategies as st
from packed_networks import expected, one_operation, signs

from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.session import Session


@every_kernel
@often
@given(data=st.data())
def test_binary_conv(kernels: str, data: st.DataObject) -> None:
    window = data.draw(windows())
    groups, each, outputs = data.draw(grouped())
    channels, outputs = groups * each, groups * outputs
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tensors, attributes = finish(data.draw, rng, outputs)
    shape = convolved(window, outputs)
    roles, inputs = exact_ends(data.draw, tensors, attributes, (*window.pop("size"), channels), shape)
    tensors["weight"] = signs(rng, outputs, *window["kernel"], each)
    attributes |= {"pad": data.draw(st.sampled_from([0, -1])), "groups": groups} | window
    graph = one_operation("binary_conv", inputs, dict.fromkeys(roles, shape), tensors, attributes)
    agree(graph, kernels, rng, EXACT)


@every_kernel
@often
@given(data=st.data())
def test_binary_conv_by_threshold(kernels: str, data: st.DataObject) -> None:
    window = data.draw(windows(largest_kernel=5))
    groups, each, outputs = data.draw(grouped())
    channels, outputs = groups * each, groups * outputs
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    shape = convolved(window, outputs)
    spread = 2 * int(np.sqrt(np.prod(window["kernel"]) * each))
    threshold = rng.integers(-spread, spread + 1, outputs).astype(np.int32)
    threshold[:: max(outputs // 3, 1)] = data.draw(st.sampled_from([-(2**31), 2**31 - 1, 0]))
    tensors = {"weight": signs(rng, outputs, *window["kernel"], each), "threshold": threshold}
    inputs = {"x": (*window.pop("size"), channels)}
    attributes = {"groups": groups} | window
    agree(one_operation("binary_conv", inputs, {"bits": shape}, tensors, attributes), kernels, rng, EXACT)


@every_kernel
def test_binary_conv_of_more_taps_than_sixteen_bits_count(kernels: str) -> None:
    """Byte and 16-bit counters are flushed in time: all signs differ, so every counter reaches its maximum."""
    channels, kernel = 1100, 8
    weight = np.zeros((3, kernel, kernel, (channels + 7) // 8), np.uint8)
    graph = one_operation(
        "binary_conv", {"x": (kernel, kernel, channels)}, {"float": (1, 1, 3)}, {"weight": weight},
        {"kernel": [kernel, kernel]},
    )  # fmt: skip
    image = np.ones((1, kernel * kernel * channels, 1, 1), np.float32)
    assert Session(graph, kernels=kernels)(image).tolist() == [[-float(kernel * kernel * channels)] * 3]


@every_kernel
@often
@given(data=st.data())
def test_float_conv(kernels: str, data: st.DataObject) -> None:
    window = data.draw(windows(largest_kernel=7))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    groups = data.draw(st.sampled_from([1, 1, 2, 5]))
    each, outputs = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 30)) * groups
    if data.draw(st.booleans()):  # depthwise
        groups, each, outputs = each * groups, 1, each * groups
    tensors, attributes = finish(data.draw, rng, outputs)
    tensors.pop("level", None)
    shape = convolved(window, outputs)
    inputs = {"x": (*window.pop("size"), each * groups)}
    if data.draw(st.booleans()):
        inputs["residual"] = shape
    tensors["weight"] = rng.normal(size=(outputs, *window["kernel"], each)).astype(np.float32)
    if data.draw(st.booleans()):
        tensors["weight"] = rng.integers(-128, 128, tensors["weight"].shape, np.int8)
        tensors["scale"] = rng.normal(size=outputs).astype(np.float32) / 128
    attributes |= {"groups": groups} | window
    graph = one_operation("float_conv", inputs, {"float": shape}, tensors, attributes)
    agree(graph, kernels, rng, CLOSE)


@every_kernel
@often
@given(data=st.data())
def test_int8_conv(kernels: str, data: st.DataObject) -> None:
    """Integers are exact; half of the networks have only the extreme weights −128 and 127."""
    window = data.draw(windows())
    channels, outputs = data.draw(st.integers(1, 20)), data.draw(channel_counts)
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tensors, attributes = finish(data.draw, rng, outputs)
    shape = convolved(window, outputs)
    roles, inputs = exact_ends(data.draw, tensors, attributes, (*window.pop("size"), channels), shape)
    if data.draw(st.booleans()):
        tensors["zero"] = (255 * rng.random(channels)).astype(np.float32)
    weights = data.draw(st.sampled_from([[-128, 127], range(-128, 128)]))
    tensors["weight"] = rng.choice(np.array(weights, np.int8), (outputs, *window["kernel"], channels))
    graph = one_operation("int8_conv", inputs, dict.fromkeys(roles, shape), tensors, attributes | window)
    agree(graph, kernels, rng, EXACT)


@every_kernel
def test_int8_conv_of_the_largest_sums(kernels: str) -> None:
    """255 · −128 in each of 2¹⁶ taps: the sum fits into 32 bits, and no pair of products saturates."""
    channels, kernel = 1 << 10, 8
    tensors = {"weight": np.full((3, kernel, kernel, channels), -128, np.int8)}
    graph = one_operation(
        "int8_conv", {"x": (kernel, kernel, channels)}, {"float": (1, 1, 3)}, tensors, {"kernel": [kernel, kernel]}
    )
    image = np.full((1, kernel * kernel * channels, 1, 1), 9, np.float32)
    assert Session(graph, kernels=kernels)(image).tolist() == [[float(-128 * 255 << 16)] * 3]


@every_kernel
@pytest.mark.parametrize("kind", ["float_conv", "int8_conv"])
@pytest.mark.parametrize("kernel", [[7, 7], [3, 6], [4, 8]])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("height", [24, 31])
def test_four_rows_at_a_time(kernels: str, kind: str, kernel: list[int], stride: int, height: int) -> None:
    """Stems: kernel rows that see the same pixels for two output rows share a product; the last rows may be fewer."""
    rng = np.random.default_rng(height)
    window = {"kernel": kernel, "stride": [stride, 2], "padding": [1, 3], "dilation": [1, 1]}
    shape = convolved({**window, "size": [height, 11]}, 70)
    weight = rng.integers(-128, 128, (70, *kernel, 3), np.int8)
    tensors = {"weight": weight, "scale": (rng.normal(size=70) / 128).astype(np.float32)}
    graph = one_operation(kind, {"x": (height, 11, 3)}, {"float": shape}, tensors, window)
    agree(graph, kernels, rng, EXACT if kind == "int8_conv" else CLOSE)


@every_kernel
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("picture", ["zeros", "large", "small", "stripes"])
def test_four_rows_keep_to_themselves(kernels: str, picture: str, stride: int) -> None:
    """The error of each row depends only on its own window, not on the other three: 0 if that contains only zeros."""
    rng, side = np.random.default_rng(0), 40
    weight = rng.normal(size=(20, 7, 7, 3)).astype(np.float32)
    attributes = {"kernel": [7, 7], "stride": [stride, stride], "padding": [3, 3]}
    count = (side - 1) // stride + 1
    buffers = {"image": Buffer("float", (side, side, 3)), "y": Buffer("float", (count, count, 20))}
    stem = Operation("float_conv", "stem", {"x": "image"}, {"float": "y"}, {"weight": weight}, attributes)
    graph = Graph(Input("image"), "y", buffers, [stem])
    values = rng.normal(size=(1, 3, side, side)).astype(np.float32)
    rows = {"zeros": slice(15, None), "large": slice(11, 12), "small": slice(0, 20), "stripes": slice(0, None, 9)}[
        picture
    ]
    values[:, :, rows] *= np.float32({"zeros": 0, "large": 1e8, "small": 1e-6, "stripes": 1e4}[picture])
    wanted, got = oracle.run(graph, values), Session(graph, kernels=kernels)(values)
    seen = np.max(oracle._windows(np.abs(values).max(1)[..., None], attributes, 0.0), 0)[..., 0]
    np.testing.assert_array_equal(got[wanted == 0], 0)
    assert (np.abs(got - wanted) <= 1e-6 * seen[:, None] * np.abs(weight).sum((1, 2, 3))[None, :, None, None]).all()


@every_kernel
@pytest.mark.parametrize("weight", [-128, 127])
def test_four_rows_of_the_largest_sums(kernels: str, weight: int) -> None:
    """Up to 512 taps are computed four rows at a time: 120 times their sum fits into 32 bits."""
    window = {"kernel": [16, 8], "stride": [1, 1], "padding": [3, 3], "dilation": [1, 1]}
    shape = convolved({**window, "size": [32, 32]}, 3)
    tensors = {"weight": np.full((3, 16, 8, 4), weight, np.int8)}
    graph = one_operation("int8_conv", {"x": (32, 32, 4)}, {"float": shape}, tensors, window)
    image = np.full((1, 32 * 32 * 4, 1, 1), 9, np.float32)
    wanted = expected(graph, image)
    assert 512 * 255 * weight in wanted
    np.testing.assert_array_equal(Session(graph, kernels=kernels)(image), wanted)
