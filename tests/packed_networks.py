"""Packed networks for tests: a single operation, or one of each."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation

Shape = tuple[int, int, int]


def signs(rng: np.random.Generator, *shape: int) -> NDArray[np.uint8]:
    """Random signs, packed into bytes along the last axis; unused bits are 0."""
    return np.packbits(rng.integers(0, 2, shape, dtype=np.uint8), axis=-1, bitorder="little")


def one_operation(
    kind: str,
    inputs: dict[str, Shape],
    outputs: dict[str, Shape],
    tensors: dict[str, NDArray[Any]],
    attributes: dict[str, Any],
) -> Graph:
    """A graph whose single input feeds every input of the operation through slices, packed or quantized if needed.

    Output bits are unpacked by a 1×1 binary convolution with the unit matrix, and output bytes by an int8 convolution
    with it.
    """
    names = list(inputs)
    sizes = [int(np.prod(inputs[role])) for role in names]
    buffers = {"image": Buffer("float", (1, 1, max(sum(sizes), 1)))}
    operations, arguments, start = [], {}, 0
    for role, size in zip(names, sizes, strict=True):
        buffers[f"part.{role}"], buffers[role] = Buffer("float", (1, 1, size)), Buffer("float", inputs[role])
        operations.append(
            Operation("slice", f"slice {role}", {"x": "image"}, {"float": f"part.{role}"}, {},
                      {"start": [0, 0, start], "stop": [1, 1, start + size], "step": [1, 1, 1]})
        )  # fmt: skip
        operations.append(
            Operation("reshape", f"shape {role}", {"x": f"part.{role}"}, {"float": role}, {}, {"order": "hwc"})
        )
        arguments[role], start = role, start + size
        if kind in ("binary_conv", "max_pool_bits") and role == "x":
            buffers["x.bits"], arguments[role] = Buffer("bits", inputs[role]), "x.bits"
            operations.append(Operation("pack", "pack", {"x": "x"}, {"bits": "x.bits"}))
        if kind == "int8_conv" and role == "x":
            buffers["x.bytes"], arguments[role] = Buffer("bytes", inputs[role]), "x.bytes"
            around = {tensor: np.full(inputs[role][2], 90, np.float32) for tensor in ("scale", "shift")}
            operations.append(Operation("quantize", "quantize", {"x": "x"}, {"bytes": "x.bytes"}, around))
    for role, shape in outputs.items():
        buffers[f"out.{role}"] = Buffer(role, shape)  # type: ignore[arg-type]
    operations.append(Operation(kind, kind, arguments, {role: f"out.{role}" for role in outputs}, tensors, attributes))
    results = []
    for role, shape in outputs.items():
        name = f"out.{role}"
        if role != "float":
            # Σ_c s_c w_c with w = −1 but +1 at o is 2 s_o − Σ s: from these (two channels aside) every s follows.
            unit = np.eye(shape[2], dtype=np.int8)
            unit = unit if role == "bytes" else np.packbits(unit, axis=-1, bitorder="little")
            buffers["unpacked"] = Buffer("float", shape)
            operations.append(
                Operation("int8_conv" if role == "bytes" else "binary_conv", "unpack", {"x": name},
                          {"float": "unpacked"}, {"weight": unit[:, None, None]}, {"kernel": [1, 1]})
            )  # fmt: skip
            name = "unpacked"
        results.append(name)
    output = results[0]
    if len(results) == 2:
        shape = outputs["float"]
        buffers["both"], output = Buffer("float", (shape[0], shape[1], 2 * shape[2])), "both"
        operations.append(
            Operation("concat", "both", {"x0": results[0], "x1": results[1]}, {"float": "both"})
        )  # fmt: skip
    return Graph(Input("image"), output, buffers, operations)


def image_for(graph: Graph, rng: np.random.Generator, count: int = 2) -> NDArray[np.float32]:
    """Random values; every tenth is exactly 0, where a sign must be −1."""
    channels = graph.buffers["image"].shape[2]
    values = rng.normal(size=(count, channels, 1, 1)).astype(np.float32)
    return np.where(rng.random(values.shape) < 0.1, np.float32(0), values)


def expected(graph: Graph, image: NDArray[np.float32]) -> NDArray[np.float32]:
    answer = oracle.run(graph, image)
    return np.asarray(answer, np.float32)


def small_network() -> Graph:
    """A network with one of each: stem, pack, binary layers with scale and with threshold, pools, shortcut, linear."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    arrays = {
        "stem": floats(16, 3, 3, 3), "w1": signs(rng, 16, 3, 3, 16), "s1": floats(16), "b1": floats(16),
        "w2": signs(rng, 32, 3, 3, 16), "t2": rng.integers(-9, 9, 32).astype(np.int32), "flip": signs(rng, 32),
        "w3": signs(rng, 24, 1, 1, 32), "slope": floats(24), "fc": floats(5, 1, 1, 24), "fc.bias": floats(5),
    }  # fmt: skip
    shapes = {
        "image": ("float", 8, 8, 3), "a": ("float", 8, 8, 16), "a.bits": ("bits", 8, 8, 16), "b": ("float", 8, 8, 16),
        "b.bits": ("bits", 8, 8, 16), "c.bits": ("bits", 4, 4, 32), "d.bits": ("bits", 2, 2, 32),
        "e": ("float", 2, 2, 24), "f": ("float", 1, 1, 24), "logits": ("float", 1, 1, 5),
    }  # fmt: skip
    conv = {"kernel": [3, 3], "padding": [1, 1]}
    operations = [
        Operation("float_conv", "stem", {"x": "image"}, {"float": "a"}, {"weight": arrays["stem"]}, conv),
        Operation("pack", "pack", {"x": "a"}, {"bits": "a.bits"}, {}, {"level": "mean"}),
        Operation(
            "binary_conv", "one", {"x": "a.bits", "residual": "a"}, {"float": "b", "bits": "b.bits"},
            {"weight": arrays["w1"], "scale": arrays["s1"], "shift": arrays["b1"]},
            conv | {"activation": ["hardtanh", -1, 1]},
        ),
        Operation(
            "binary_conv", "two", {"x": "b.bits"}, {"bits": "c.bits"},
            {"weight": arrays["w2"], "threshold": arrays["t2"]},
            conv | {"stride": [2, 2]},
        ),
        Operation(
            "max_pool_bits", "pool", {"x": "c.bits"}, {"bits": "d.bits"}, {"invert": arrays["flip"]},
            {"kernel": [2, 2]},
        ),
        Operation(
            "binary_conv", "three", {"x": "d.bits"}, {"float": "e"},
            {"weight": arrays["w3"], "slope": arrays["slope"]},
            {"kernel": [1, 1], "activation": ["prelu"]},
        ),
        Operation("mean", "mean", {"x": "e"}, {"float": "f"}, {}, {"over": "hw"}),
        Operation(
            "float_conv", "fc", {"x": "f"}, {"float": "logits"},
            {"weight": arrays["fc"], "shift": arrays["fc.bias"]},
            {"kernel": [1, 1]},
        ),
    ]  # fmt: skip
    buffers = {name: Buffer(kind, (h, w, c)) for name, (kind, h, w, c) in shapes.items()}  # type: ignore[arg-type]
    contract = Input("image", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), ("a", "b", "c", "d", "e"))
    return Graph(contract, "logits", buffers, operations)


def picture_network() -> Graph:
    """A network that begins with bytes, like an export with an int8 stem."""
    graph = small_network()
    rng = np.random.default_rng(2)
    mean, std = np.array(graph.input.mean, np.float64), np.array(graph.input.std, np.float64)
    scale, shift = (255 * std).astype(np.float32), (255 * mean).astype(np.float32)
    weight = rng.integers(-128, 128, (16, 3, 3, 3), np.int8)
    stem = graph.operations[0]
    operations = [
        Operation("quantize", "bytes", {"x": "image"}, {"bytes": "u"}, {"scale": scale, "shift": shift}),
        Operation(
            "int8_conv", stem.name, {"x": "u"}, stem.outputs,
            {"weight": weight, "zero": shift, "scale": np.full(16, 1e-4, np.float32)}, stem.attributes,
        ),
        *graph.operations[1:],
    ]  # fmt: skip
    return Graph(graph.input, graph.output, graph.buffers | {"u": Buffer("bytes", (8, 8, 3))}, operations)
