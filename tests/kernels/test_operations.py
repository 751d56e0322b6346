"""Every other operation × every instruction set of this machine, against the oracle, on odd shapes."""

from typing import Any

import numpy as np
import pytest
from agreement import CLOSE, EXACT, NUMBERS, agree, channel_counts, every_kernel, often
from hypothesis import given
from hypothesis import strategies as st
from packed_networks import expected, image_for, one_operation, signs

from rbnn.errors import InputError
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import ACTIVATIONS, Buffer, Operation
from rbnn.packed.session import Session


@every_kernel
@often
@given(data=st.data())
def test_quantize(kernels: str, data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 40)))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    # Ties are common and round to the even integer.
    tensors = {"scale": rng.integers(1, 200, shape[2]) / 2, "shift": rng.integers(0, 512, shape[2]) / 2}
    tensors = {role: values.astype(np.float32) for role, values in tensors.items()}
    graph = one_operation("quantize", {"x": shape}, {"bytes": shape}, tensors, {})
    image = np.round(image_for(graph, rng))
    np.testing.assert_array_equal(Session(graph, kernels=kernels)(image), expected(graph, image))


@every_kernel
@often
@given(data=st.data())
def test_pack(kernels: str, data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5)), data.draw(channel_counts))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    how = data.draw(st.sampled_from(["zero", "number", "mean", "tensor", "scaled"]))
    attributes = {"number": {"level": 0.3}, "mean": {"level": "mean"}}.get(how, {})
    roles = {"tensor": ["level"], "scaled": ["scale", "shift"]}.get(how, [])
    tensors = {role: rng.normal(size=shape[2]).astype(np.float32) for role in roles}
    agree(one_operation("pack", {"x": shape}, {"bits": shape}, tensors, attributes), kernels, rng, EXACT)


@every_kernel
@often
@given(data=st.data())
def test_pools(kernels: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["max_pool", "avg_pool", "max_pool_bits"]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    kernel = [data.draw(st.integers(1, 4)) for _ in range(2)]
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    stride = [data.draw(st.integers(1, 4)) for _ in range(2)]
    size = [data.draw(st.integers(k, k + 5)) for k in kernel]
    channels, ceil = data.draw(channel_counts), data.draw(st.booleans())
    attributes: dict[str, Any] = {"kernel": kernel, "padding": padding, "stride": stride, "ceil": ceil}
    if kind == "avg_pool":
        attributes["count_padding"] = data.draw(st.booleans())
    sides = []
    for k, s, p, n in zip(kernel, stride, padding, size, strict=True):
        rest = n + 2 * p - k
        count = rest // s + 1
        sides.append(count + (ceil and rest % s > 0 and count * s < n + p))
    shape = (sides[0], sides[1], channels)
    bits = kind == "max_pool_bits"
    tensors = {"invert": signs(rng, channels)} if bits and data.draw(st.booleans()) else {}
    graph = one_operation(
        kind, {"x": (*size, channels)}, {"bits" if bits else "float": shape}, tensors, attributes
    )  # fmt: skip
    agree(graph, kernels, rng, CLOSE if kind == "avg_pool" else EXACT)


OVER = ("h", "w", "c", "hw", "hc", "wc", "hwc")


def reduced(shape: tuple[int, int, int], over: str) -> tuple[int, int, int]:
    height, width, channels = (1 if axis in over else side for axis, side in zip("hwc", shape, strict=True))
    return height, width, channels


SIMPLE: list[tuple[str, dict[str, Any], tuple[int, int, int], dict[str, Any], list[str]]] = [
    ("affine", {"x": (3, 4, 37)}, (3, 4, 37), {}, ["scale", "shift"]),
    ("adaptive_max_pool", {"x": (7, 5, 33)}, (3, 2, 33), {"size": [3, 2]}, []),
    ("adaptive_avg_pool", {"x": (3, 5, 33)}, (5, 2, 33), {"size": [5, 2]}, []),
    ("mean", {"x": (7, 5, 33)}, (1, 1, 33), {"over": "hw"}, []),
    ("mean", {"x": (7, 5, 33)}, (7, 5, 1), {"over": "c"}, []),
    ("add", {"a": (3, 4, 37), "b": (3, 4, 37)}, (3, 4, 37), {}, []),
    ("multiply", {"a": (3, 4, 37), "b": (1, 1, 37)}, (3, 4, 37), {}, []),
    ("multiply", {"a": (3, 4, 1), "b": (3, 4, 37)}, (3, 4, 37), {}, []),
    ("add", {"a": (1, 4, 1), "b": (3, 1, 5)}, (3, 4, 5), {}, []),
    ("concat", {"x0": (3, 4, 5), "x1": (3, 4, 70), "x2": (3, 4, 1)}, (3, 4, 76), {}, []),
    ("reshape", {"x": (3, 4, 5)}, (1, 1, 60), {"order": "chw"}, []),
    ("reshape", {"x": (3, 4, 5)}, (5, 6, 2), {"order": "chw"}, []),
    ("reshape", {"x": (3, 4, 5)}, (5, 6, 2), {"order": "hwc"}, []),
    ("slice", {"x": (7, 8, 9)}, (4, 3, 2), {"start": [0, 1, 2], "stop": [7, 8, 6], "step": [2, 3, 3]}, []),
    *(("select", {"x": (3, 5, 37)}, shape, {"places": places} | ({"axis": axis} if axis else {}), [])
      for axis, shape, places in (
          ("h", (4, 5, 37), [2, 0, 0, 1]), ("h", (1, 5, 37), [1]), ("w", (3, 7, 37), [4, 4, 3, 0, 1, 2, 4]),
          ("w", (3, 1, 37), [4]), ("c", (3, 5, 1), [36]), ("", (3, 5, 40), [*range(36, -1, -1), 5, 5, 36]),
      )),
    ("pad", {"x": (3, 4, 5)}, (3, 6, 12), {"before": [0, 1, 3], "after": [0, 1, 4]}, []),
    ("pad", {"x": (3, 4, 5)}, (4, 4, 5), {"before": [1, 0, 0], "after": [0, 0, 0], "value": -2.5}, []),
    ("concat", {"x0": (3, 4, 5), "x1": (1, 4, 5), "x2": (2, 4, 5)}, (6, 4, 5), {"axis": "h"}, []),
    ("concat", {"x0": (3, 4, 5), "x1": (3, 1, 5), "x2": (3, 2, 5)}, (3, 7, 5), {"axis": "w"}, []),
    ("maximum", {"a": (3, 4, 37), "b": (3, 4, 37)}, (3, 4, 37), {}, []),
    ("minimum", {"a": (3, 1, 37), "b": (1, 4, 37)}, (3, 4, 37), {}, []),
    ("matmul", {"a": (3, 70, 1), "b": (70, 300, 1)}, (3, 300, 1), {}, []),
    ("matmul", {"a": (3, 5, 7), "b": (5, 9, 7)}, (3, 9, 7), {}, []),
    ("matmul", {"a": (2, 3, 600), "b": (3, 2, 600)}, (2, 2, 600), {}, []),
    ("local_norm", {"x": (3, 4, 37)}, (3, 4, 37), {"window": 5, "alpha": 0.7, "beta": 0.75, "k": 1.5}, []),
    ("local_norm", {"x": (3, 4, 3)}, (3, 4, 3), {"window": 8, "alpha": 2, "beta": -1, "k": 0.5}, []),
    ("softmax", {"x": (3, 4, 37)}, (3, 4, 37), {"over": "c", "log": True}, []),
    ("standardize", {"x": (3, 4, 36)}, (3, 4, 36), {"over": "hwc", "groups": 4, "eps": 1e-5}, []),
    *(("mean", {"x": (3, 4, 5)}, reduced((3, 4, 5), over), {"over": over}, []) for over in OVER),
    *(("reduce", {"x": (3, 4, 70)}, reduced((3, 4, 70), over), {"over": over, "how": how}, [])
      for over in OVER for how in ("sum", "max", "min")),
    *(("softmax", {"x": (3, 4, 5)}, (3, 4, 5), {"over": over}, []) for over in OVER),
    *(("standardize", {"x": (3, 4, 6)}, (3, 4, 6), {"over": over, "eps": 1e-3}, []) for over in OVER),
    *(("pad", {"x": (3, 4, 5)}, (7, 7, 5), {"before": [2, 0, 0], "after": [2, 3, 0], "mode": mode}, [])
      for mode in ("reflect", "replicate", "circular")),
    ("pad", {"x": (1, 1, 5)}, (7, 7, 5), {"before": [6, 0, 0], "after": [0, 6, 0], "mode": "replicate"}, []),
]  # fmt: skip


@every_kernel
@pytest.mark.parametrize("case", SIMPLE, ids=lambda case: f"{case[0]} {list(case[1].values())} {case[2]}")
def test_simple_operations(kernels: str, case: Any) -> None:
    kind, inputs, shape, attributes, roles = case
    rng = np.random.default_rng(0)
    tensors = {role: rng.normal(size=shape[2]).astype(np.float32) for role in roles}
    agree(one_operation(kind, inputs, {"float": shape}, tensors, attributes), kernels, rng, CLOSE)


def divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


@every_kernel
@often
@given(data=st.data())
def test_permute(kernels: str, data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6)), data.draw(st.integers(1, 40)))
    rest, sides = int(np.prod(shape)), []
    for _ in range(data.draw(st.integers(0, 6))):
        sides.append(data.draw(st.sampled_from(divisors(rest))))
        rest //= sides[-1]
    sides.append(rest)
    order = data.draw(st.permutations(range(len(sides))))
    height = data.draw(st.sampled_from(divisors(int(np.prod(shape)))))
    made = (height, 1, int(np.prod(shape)) // height)
    graph = one_operation("permute", {"x": shape}, {"float": made}, {}, {"sides": sides, "order": order})
    agree(graph, kernels, np.random.default_rng(0), EXACT)


@every_kernel
@often
@given(data=st.data())
def test_select(kernels: str, data: st.DataObject) -> None:
    sides = [data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7)), data.draw(channel_counts)]
    axis = data.draw(st.integers(0, 2))
    places = data.draw(st.lists(st.integers(0, sides[axis] - 1), min_size=1, max_size=90))
    before, sides[axis] = (sides[0], sides[1], sides[2]), len(places)
    attributes = {"axis": "hwc"[axis], "places": places}
    graph = one_operation("select", {"x": before}, {"float": (sides[0], sides[1], sides[2])}, {}, attributes)
    agree(graph, kernels, np.random.default_rng(0), EXACT)


@every_kernel
@often
@given(data=st.data())
def test_resize(kernels: str, data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    size = [data.draw(st.integers(1, 20)) for _ in range(2)]
    mode = data.draw(st.sampled_from(["nearest", "nearest_exact", "bilinear", "bicubic"]))
    attributes: dict[str, Any] = {"size": size, "mode": mode}
    if mode.startswith("bi") and data.draw(st.booleans()):
        attributes["align"] = True
    elif data.draw(st.booleans()):
        attributes["scale"] = [data.draw(st.floats(0.2, 9)) for _ in range(2)]
    graph = one_operation("resize", {"x": shape}, {"float": (*size, shape[2])}, {}, attributes)
    agree(graph, kernels, np.random.default_rng(0), EXACT if mode.startswith("nearest") else CLOSE)


@every_kernel
def test_a_softmax_of_large_numbers(kernels: str) -> None:
    """exp(1000) overflows a double, so the largest value is subtracted first."""
    graph = one_operation("softmax", {"x": (1, 1, 3)}, {"float": (1, 1, 3)}, {}, {"over": "c"})
    image = np.float32([1000, 1000, -1000]).reshape(1, 3, 1, 1)
    assert Session(graph, kernels=kernels)(image).tolist() == [[0.5, 0.5, 0.0]]


@every_kernel
def test_a_picture_of_one_colour_is_standard(kernels: str) -> None:
    """The variance is 0, and so is every output."""
    graph = one_operation("standardize", {"x": (3, 3, 2)}, {"float": (3, 3, 2)}, {}, {"over": "hwc", "eps": 1e-5})
    image = np.full((1, 18, 1, 1), 0.1, np.float32)
    np.testing.assert_allclose(Session(graph, kernels=kernels)(image), 0, atol=1e-10)


@every_kernel
def test_divide(kernels: str) -> None:
    inputs = {"a": (3, 4, 1), "b": (1, 4, 37)}
    graph = one_operation("divide", inputs, {"float": (3, 4, 37)}, {}, {})
    image = image_for(graph, np.random.default_rng(0))
    image[image == 0] = -0.5
    np.testing.assert_array_equal(Session(graph, kernels=kernels)(image), expected(graph, image))


@every_kernel
def test_a_quotient_that_no_float_holds_is_refused(kernels: str) -> None:
    graph = one_operation("divide", {"a": (1, 1, 2), "b": (1, 1, 2)}, {"float": (1, 1, 2)}, {}, {})
    assert Session(graph, kernels=kernels)(np.float32([1, 6, 2, 3]).reshape(1, 4, 1, 1)).tolist() == [[0.5, 2.0]]
    with pytest.raises(InputError, match=r"'divide' \(divide\): its values are larger than a float holds"):
        Session(graph, kernels=kernels)(np.float32([1, 6, 2, 0]).reshape(1, 4, 1, 1))


@every_kernel
@pytest.mark.parametrize(("kind", "attributes"), [("mean", {"over": "hw"}), ("adaptive_avg_pool", {"size": [1, 1]}),
                                                  ("avg_pool", {"kernel": [255, 255]})])  # fmt: skip
def test_averages_of_many_values(kernels: str, kind: str, attributes: dict[str, Any]) -> None:
    """The mean is the nearest float for any number of values; summed in float32, 0.1 becomes 0.10005 at 224 × 224."""
    rng, side = np.random.default_rng(0), 255
    graph = Graph(
        Input("image"), "y", {"image": Buffer("float", (side, side, 3)), "y": Buffer("float", (1, 1, 3))},
        [Operation(kind, kind, {"x": "image"}, {"float": "y"}, {}, attributes)],
    )  # fmt: skip
    constant = np.full((1, 3, side, side), 0.1, np.float32)
    np.testing.assert_array_equal(Session(graph, kernels=kernels)(constant), np.full((1, 3), 0.1, np.float32))
    noise = rng.random((1, 3, side, side), np.float32)
    np.testing.assert_array_max_ulp(
        Session(graph, kernels=kernels)(noise), noise.mean((2, 3), dtype=np.float64).astype(np.float32), 1
    )


@every_kernel
@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations(kernels: str, name: str) -> None:
    rng = np.random.default_rng(0)
    numbers = NUMBERS.get(name, [])
    tensors = {"slope": rng.normal(size=67).astype(np.float32)} if name == "prelu" else {}
    shape = (3, 5, 67)
    graph = one_operation("activation", {"x": shape}, {"float": shape}, tensors, {"activation": [name, *numbers]})
    agree(graph, kernels, rng, CLOSE)


@every_kernel
def test_constant(kernels: str) -> None:
    rng = np.random.default_rng(0)
    shape = (3, 5, 7)
    graph = one_operation("constant", {}, {"float": shape}, {"value": rng.normal(size=shape).astype(np.float32)}, {})
    agree(graph, kernels, rng, EXACT)
