"""Operations other than convolutions and pools as ONNX: on random odd shapes ONNX Runtime agrees with `Session`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from packed_networks import image_for, one_operation, signs

from rbnn.packed.formulas import taps
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import ACTIVATIONS, Buffer, Operation, Shape
from rbnn.packed.session import Session
from rbnn.translating import permuting
from rbnn.translating.onnx_check import run, standard
from rbnn.translating.onnx_model import ANSWER, to_onnx
from rbnn.translating.onnx_nodes import IMAGE
from rbnn.translating.resizing import is_known

Rng = np.random.Generator
both_forms = pytest.mark.parametrize("qonnx", [False, True], ids=["onnx", "qonnx"])
OVER = ("h", "w", "c", "hw", "hc", "wc", "hwc")
NUMBERS = {"hardtanh": [-0.5, 2.0], "leaky_relu": [0.2], "elu": [0.7], "softplus": [2.0, 1.5], "power": [3.0]}
"""The parameters of activations."""


def odd_shape(rng: Rng) -> Shape:
    return int(rng.integers(1, 12)), int(rng.integers(1, 12)), int(rng.choice([1, 2, 3, 5, 8, 31, 33]))


def alone(rng: Rng, kind: str, attributes: dict[str, Any], to: Callable[[Shape], Shape] = lambda shape: shape) -> Graph:
    """One operation on an image of odd size."""
    shape = odd_shape(rng)
    tensors = {}
    if attributes.get("activation") == ["prelu"]:
        tensors["slope"] = rng.normal(size=shape[2]).astype(np.float32)
    return one_operation(kind, {"x": shape}, {"float": to(shape)}, tensors, attributes)


def reduced(rng: Rng, kind: str, over: str, **attributes: Any) -> Graph:
    def to(shape: Shape) -> Shape:
        height, width, channels = (1 if axis in over else side for axis, side in zip("hwc", shape, strict=True))
        return height, width, channels

    return alone(rng, kind, {"over": over, **attributes}, to)


def grouped(rng: Rng) -> Graph:
    height, width, _ = odd_shape(rng)
    shape, groups = (height, width, 12), int(rng.choice([2, 3, 4, 6, 12]))
    return one_operation(
        "standardize", {"x": shape}, {"float": shape}, {}, {"over": "hwc", "eps": 1e-5, "groups": groups}
    )


def pair(rng: Rng, kind: str) -> Graph:
    """Sides of 1 are repeated, on either side."""
    shape = odd_shape(rng)
    sides = [[side if rng.random() < 0.7 else 1 for side in shape] for _ in range(2)]
    a, b = ((each[0], each[1], each[2]) for each in sides)
    result = (max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]))
    return one_operation(kind, {"a": a, "b": b}, {"float": result}, {}, {})


def matmul(rng: Rng) -> Graph:
    height, width, channels = odd_shape(rng)
    columns = int(rng.integers(1, 12))
    shapes = {"a": (height, width, channels), "b": (width, columns, channels)}
    return one_operation("matmul", shapes, {"float": (height, columns, channels)}, {}, {})


def permute(rng: Rng) -> Graph:
    """Sides that are unrelated to height and width, and others."""
    before = odd_shape(rng)
    rest, sides = int(np.prod(before)), []
    for _ in range(int(rng.integers(1, 5))):
        sides.append(int(rng.choice([n for n in range(1, 20) if rest % n == 0])))
        rest //= sides[-1]
    sides.append(rest)
    order = [int(axis) for axis in rng.permutation(len(sides))]
    after = tuple(int(side) for side in rng.permutation(before))
    attributes = {"sides": sides, "order": order}
    return one_operation("permute", {"x": before}, {"float": (after[0], after[1], after[2])}, {}, attributes)


def select(rng: Rng, axis: str) -> Graph:
    before, at = odd_shape(rng), "hwc".index(axis)
    places = rng.integers(0, before[at], int(rng.integers(1, 20))).tolist()
    height, width, channels = (*before[:at], len(places), *before[at + 1 :])
    attributes = {"axis": axis, "places": places}
    return one_operation("select", {"x": before}, {"float": (height, width, channels)}, {}, attributes)


def resize(rng: Rng, mode: str, align: bool, whole: bool) -> Graph:
    """To any size, by integer factors, or by a scale that the sizes do not determine."""
    height, width, channels = odd_shape(rng)
    attributes: dict[str, Any] = {"mode": mode} | ({"align": True} if align else {})
    size = [side * int(rng.integers(1, 4)) if whole else int(rng.integers(1, 15)) for side in (height, width)]
    if not align and rng.random() < 0.5:
        scale = [float(rng.choice([0.6, 1.0, 1.7, 2.0, 3.0])) for _ in range(2)]
        attributes["scale"] = scale
        if rng.random() < 0.7:
            size = [max(int(side * each), 1) for side, each in zip((height, width), scale, strict=True)]
    attributes["size"] = size
    return one_operation(
        "resize", {"x": (height, width, channels)}, {"float": (size[0], size[1], channels)}, {}, attributes
    )


def pad(rng: Rng, mode: str) -> Graph:
    shape = odd_shape(rng)
    most = [side - 1 if mode == "reflect" else side if mode == "circular" else 5 for side in shape[:2]]
    most.append(3 if mode == "constant" else 0)
    before, after = ([int(rng.integers(0, min(side, 5) + 1)) for side in most] for _ in range(2))
    attributes: dict[str, Any] = {"before": before, "after": after}
    attributes |= {"mode": mode} if mode != "constant" else {"value": -2.5}
    height, width, channels = (b + side + a for b, side, a in zip(before, shape, after, strict=True))
    return one_operation("pad", {"x": shape}, {"float": (height, width, channels)}, {}, attributes)


def local_norm(rng: Rng) -> Graph:
    attributes = {"window": int(rng.integers(1, 8)), "alpha": 0.5, "beta": float(rng.choice([0.5, 0.75, 2])), "k": 1.5}
    if rng.random() < 0.2:
        attributes["alpha"] = 0.0
    return alone(rng, "local_norm", attributes)


CASES: dict[str, Callable[[Rng], Graph]] = {
    "matmul": matmul,
    "permute": permute,
    **{f"select {axis}": lambda rng, axis=axis: select(rng, axis) for axis in "hwc"},
    "local_norm": local_norm,
    "standardize, groups": grouped,
    **{f"{kind}": lambda rng, kind=kind: pair(rng, kind) for kind in ("divide", "maximum", "minimum")},
    **{
        f"reduce {how} {over}": lambda rng, how=how, over=over: reduced(rng, "reduce", over, how=how)
        for how in ("sum", "max", "min")
        for over in OVER
    },
    **{f"mean {over}": lambda rng, over=over: reduced(rng, "mean", over) for over in OVER},
    **{
        f"softmax {over}{' log' * log}": lambda rng, over=over, log=log: alone(
            rng, "softmax", {"over": over, "log": log}
        )
        for log in (False, True)
        for over in OVER
    },
    **{
        f"standardize {over}": lambda rng, over=over: alone(rng, "standardize", {"over": over, "eps": 1e-3})
        for over in OVER
    },
    **{
        name: lambda rng, name=name: alone(rng, "activation", {"activation": [name, *NUMBERS.get(name, [])]})
        for name in ACTIVATIONS
    },
    **{
        f"resize {mode}{' align' * align}{' whole' * whole}": lambda rng, how=(mode, align, whole): resize(rng, *how)
        for mode, align in (
            ("nearest", False), ("nearest_exact", False), ("bilinear", False), ("bilinear", True), ("bicubic", False),
            ("bicubic", True),
        )
        for whole in (False, True)
    },
    **{
        f"pad {mode}": lambda rng, mode=mode: pad(rng, mode)
        for mode in ("constant", "reflect", "replicate", "circular")
    },
}  # fmt: skip


@both_forms
@pytest.mark.parametrize("name", CASES)
def test_an_operation(name: str, qonnx: bool) -> None:
    for seed in range(5):
        rng = np.random.default_rng([seed, len(name)])
        graph = CASES[name](rng)
        graph.check()
        model = standard(to_onnx(graph, qonnx=qonnx).model)
        onnx.checker.check_model(model, full_check=True)
        for count in (1, 3):
            images = image_for(graph, rng, count)
            if name in ("power", "divide"):
                images = np.abs(images) + np.float32(0.1)
            wanted = Session(graph)(images)
            got = run(model, {IMAGE: images})[ANSWER]
            assert got.shape == wanted.shape
            largest = max(float(np.abs(wanted).max()), 1)
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * largest, err_msg=f"seed {seed}")


EXACT = {
    "nearest", "nearest_exact", "reflect", "replicate", "circular", "constant", "permute", "select", "maximum",
    "minimum", "max", "min",
}  # fmt: skip


@both_forms
@pytest.mark.parametrize("name", [name for name in CASES if EXACT & set(name.split())])
def test_values_that_only_move_are_exact(name: str, qonnx: bool) -> None:
    for seed in range(20):
        rng = np.random.default_rng([seed, 1, len(name)])
        graph = CASES[name](rng)
        images = image_for(graph, rng)
        got = run(standard(to_onnx(graph, qonnx=qonnx).model), {IMAGE: images})[ANSWER]
        np.testing.assert_array_equal(got, Session(graph)(images), err_msg=f"seed {seed}")


# What an operation becomes


def operators(graph: Graph) -> list[str]:
    """The operators that its operation became, without those that reshape its input."""
    kind = graph.operations[-1].kind
    return [node.op_type for node in to_onnx(graph).model.graph.node if node.name.startswith(f"{kind}/")]


@pytest.mark.parametrize(
    ("mode", "size", "more", "wanted"),
    [
        ("nearest", [10, 21], {}, ["Resize"]),
        ("nearest_exact", [10, 21], {}, ["Resize"]),
        ("nearest", [10, 20], {}, ["Gather", "Gather"]),
        ("nearest", [7, 11], {"scale": [1.5, 1.7]}, ["Gather", "Gather"]),
        ("bilinear", [10, 20], {}, ["Resize"]),
        ("bilinear", [3, 1], {"align": True}, ["Resize"]),
        ("bicubic", [9, 4], {}, ["Resize"]),
        ("bilinear", [7, 11], {"scale": [1.5, 1.7]}, ["Resize"]),
        ("bilinear", [9, 9], {"scale": [1.5, 1.7]}, ["Gather", "Mul", "Gather", "Mul", "Add"] * 2),
    ],
)
def test_a_resize_is_one_node_where_that_finds_the_same_pixels(
    mode: str, size: list[int], more: dict[str, Any], wanted: list[str]
) -> None:
    graph = one_operation(
        "resize", {"x": (5, 7, 3)}, {"float": (size[0], size[1], 3)}, {}, {"mode": mode, "size": size, **more}
    )
    assert operators(graph) == wanted


def test_positions_of_large_pictures_are_not_left_to_float32() -> None:
    """Pixel 9,000.3 is known to 1/1,000 there.  By powers of 2 float32 is exact."""
    assert is_known(64, 100, "bilinear", False, None)
    assert not is_known(9000, 15_001, "bilinear", False, None)
    assert is_known(8192, 16_384, "bilinear", False, None)
    (first, _), (_, rest) = taps(9000, 15_001, "bilinear", False, None)
    assert first[-1] == 8999
    assert 0 <= rest[-1] <= 1


def test_a_shuffle_and_a_transposed_convolution_are_one_transpose() -> None:
    shuffle = one_operation(
        "permute", {"x": (5, 4, 12)}, {"float": (5, 4, 12)}, {}, {"sides": [20, 3, 4], "order": [0, 2, 1]}
    )
    assert operators(shuffle) == ["Reshape", "Transpose", "Reshape"]
    pixels = {"sides": [5, 4, 3, 2, 2], "order": [0, 3, 1, 4, 2]}
    apart = one_operation("permute", {"x": (5, 4, 12)}, {"float": (10, 8, 3)}, {}, pixels)
    assert operators(apart) == ["Reshape", "Transpose", "Reshape"]


def test_parts_of_sides() -> None:
    assert permuting.common_parts((6, 4), (2, 12)) == ([2, 3, 4], [[0, 1], [2]], [[0], [1, 2]])
    assert permuting.common_parts((6, 4), (4, 6)) is None  # 4 does not divide 6
    assert permuting.common_parts((1, 6), (6, 1)) == ([6], [[], [0]], [[0], []])


def test_nearly_constant_pictures_are_standardized_exactly() -> None:
    """A mean that is 10⁵ times as large as the deviations from it."""
    graph = one_operation("standardize", {"x": (9, 7, 5)}, {"float": (9, 7, 5)}, {}, {"over": "hw", "eps": 1e-9})
    images = (1000 + 0.01 * image_for(graph, np.random.default_rng(0))).astype(np.float32)
    got = run(to_onnx(graph).model, {IMAGE: images})[ANSWER]
    np.testing.assert_allclose(got, Session(graph)(images), atol=1e-5)


@pytest.mark.parametrize("kind", ["avg_pool", "max_pool"])
def test_a_padding_as_large_as_the_pool_behind_it(kind: str) -> None:
    """ONNX Runtime would merge them, and then not load the model."""
    pad = Operation("pad", "pad", {"x": "image"}, {"float": "padded"}, {}, {"before": [3, 2, 0], "after": [2, 4, 0]})
    pool = Operation(kind, "pool", {"x": "padded"}, {"float": "pooled"}, {}, {"kernel": [2, 2], "stride": [1, 1]})
    shapes: dict[str, Shape] = {"image": (4, 5, 3), "padded": (9, 11, 3), "pooled": (8, 10, 3)}
    graph = Graph(Input("image"), "pooled", {name: Buffer("float", each) for name, each in shapes.items()}, [pad, pool])
    graph.check()
    images = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    got = run(to_onnx(graph).model, {IMAGE: images})[ANSWER]
    np.testing.assert_allclose(got, Session(graph)(images), atol=1e-6)


def test_a_padding_by_zeros_before_a_maximum_counts() -> None:
    """ONNX Runtime would merge them, and a pool ignores its padding."""
    pad = Operation("pad", "pad", {"x": "image"}, {"float": "padded"}, {}, {"before": [1, 1, 0], "after": [1, 1, 0]})
    pool = Operation("max_pool", "pool", {"x": "padded"}, {"float": "pooled"}, {}, {"kernel": [3, 3]})
    shapes: dict[str, Shape] = {"image": (4, 4, 3), "padded": (6, 6, 3), "pooled": (2, 2, 3)}
    graph = Graph(Input("image"), "pooled", {name: Buffer("float", each) for name, each in shapes.items()}, [pad, pool])
    images = np.full((1, 3, 4, 4), -1, np.float32)
    assert (run(to_onnx(graph).model, {IMAGE: images})[ANSWER] == 0).all()


@both_forms
@pytest.mark.parametrize(("channels", "groups"), [(24, 24), (21, 3), (64, 2)])
def test_a_binary_convolution_in_groups_is_one_node(channels: int, groups: int, qonnx: bool) -> None:
    rng = np.random.default_rng(0)
    tensors = {"weight": signs(rng, 2 * channels, 3, 3, channels // groups)}
    attributes = {"kernel": [3, 3], "padding": [1, 1], "groups": groups}
    shapes: tuple[Shape, Shape] = (5, 6, channels), (5, 6, 2 * channels)
    graph = one_operation("binary_conv", {"x": shapes[0]}, {"float": shapes[1]}, tensors, attributes)
    images = image_for(graph, rng)
    network = to_onnx(graph, qonnx=qonnx)
    assert [node.op_type for node in network.model.graph.node].count("Conv") == 1
    got = run(standard(network.model), {IMAGE: images})[ANSWER]
    np.testing.assert_array_equal(got, Session(graph)(images))
