"""Small valid graphs with every kind of operation, as seeds for the fuzzer."""

from dataclasses import replace
from typing import Any

import numpy as np
from packed_networks import one_operation, picture_network, signs, small_network

from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import KINDS, Buffer, Operation


def seeds() -> list[Graph]:
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    window = {"kernel": [3, 2], "stride": [2, 1], "padding": [1, 0]}
    dilated = window | {"dilation": [1, 2]}
    graphs = [small_network(), picture_network()]
    for channels, outputs in ((8, 5), (64, 3), (70, 66)):
        x, y = (4, 5, channels), (2, 4, outputs)
        weight = {"weight": floats(outputs, 3, 2, channels)}
        bits = {"weight": signs(rng, outputs, 3, 2, channels)}
        finish = {"scale": floats(outputs), "shift": floats(outputs), "slope": floats(outputs)}
        graphs += [
            one_operation("float_conv", {"x": x}, {"float": y}, weight, window | {"activation": ["relu6"]}),
            one_operation("float_conv", {"x": x, "residual": (2, 3, outputs)}, {"float": (2, 3, outputs)},
                          weight | finish, dilated | {"activation": ["prelu"]}),
            one_operation("binary_conv", {"x": x}, {"float": y}, bits, window | {"activation": ["hardtanh", -1, 1]}),
            one_operation("binary_conv", {"x": x}, {"bits": (2, 3, outputs)},
                          bits | {"threshold": np.zeros(outputs, np.int32)}, dilated | {"pad": -1}),
            one_operation("pack", {"x": x}, {"bits": x}, {"scale": floats(channels), "level": floats(channels)}, {}),
            one_operation("affine", {"x": x}, {"float": x}, {r: floats(channels) for r in ("scale", "shift")}, {}),
            one_operation("activation", {"x": x}, {"float": x}, {}, {"activation": ["leaky_relu", 0.5]}),
            one_operation("activation", {"x": x}, {"float": x}, {}, {"activation": ["hardswish"]}),
            one_operation("max_pool", {"x": x}, {"float": (2, 4, channels)}, {}, window),
            one_operation("avg_pool", {"x": x}, {"float": (2, 3, channels)}, {},
                          {"kernel": [2, 2], "ceil": True, "count_padding": False}),
            one_operation("max_pool_bits", {"x": x}, {"bits": (2, 2, channels)}, {"invert": signs(rng, channels)},
                          {"kernel": [2, 2]}),
            one_operation("adaptive_max_pool", {"x": x}, {"float": (3, 2, channels)}, {}, {"size": [3, 2]}),
            one_operation("adaptive_avg_pool", {"x": x}, {"float": (3, 2, channels)}, {}, {"size": [3, 2]}),
            one_operation("mean", {"x": x}, {"float": (4, 5, 1)}, {}, {"over": "c"}),
            one_operation("add", {"a": x, "b": (1, 1, channels)}, {"float": x}, {}, {}),
            one_operation("multiply", {"a": (4, 1, 1), "b": x}, {"float": x}, {}, {}),
            one_operation("concat", {"x0": x, "x1": (4, 5, 2)}, {"float": (4, 5, channels + 2)}, {}, {}),
            one_operation("reshape", {"x": x}, {"float": (5, channels, 4)}, {}, {"order": "chw"}),
            one_operation("slice", {"x": x}, {"float": (2, 2, channels)}, {},
                          {"start": [0, 1, 0], "stop": [4, 5, channels], "step": [2, 2, 1]}),
            *(one_operation("select", {"x": x}, {"float": y}, {}, {"places": places, "axis": axis})
              for axis, y, places in (("h", (2, 5, channels), [3, 0]), ("w", (4, 6, channels), [4, 4, 2, 1, 0, 3]),
                                      ("c", (4, 5, 3), [7, 0, 7]))),
            one_operation("pad", {"x": x}, {"float": (6, 5, channels + 1)}, {},
                          {"before": [1, 0, 0], "after": [1, 0, 1], "value": 0.5}),
            one_operation("int8_conv", {"x": x}, {"float": (2, 4, outputs)},
                          {"weight": rng.integers(-128, 128, (outputs, 3, 2, channels), np.int8)}, window),
            one_operation("quantize", {"x": x}, {"bytes": x}, {r: floats(channels) for r in ("scale", "shift")}, {}),
            one_operation("constant", {}, {"float": (2, 3, 4)}, {"value": floats(2, 3, 4)}, {}),
            one_operation("mean", {"x": x}, {"float": (1, 5, 1)}, {}, {"over": "hc"}),
            one_operation("reduce", {"x": x}, {"float": (4, 1, channels)}, {}, {"over": "w", "how": "max"}),
            one_operation("reduce", {"x": x}, {"float": (1, 1, 1)}, {}, {"over": "hwc", "how": "sum"}),
            one_operation("softmax", {"x": x}, {"float": x}, {}, {"over": "c", "log": True}),
            one_operation("standardize", {"x": x}, {"float": x}, {}, {"over": "hwc", "groups": 2, "eps": 0.5}),
            one_operation("local_norm", {"x": x}, {"float": x}, {}, {"window": 5, "alpha": 1, "beta": 0.5, "k": 2}),
            *(one_operation(kind, {"a": x, "b": (1, 5, 1)}, {"float": x}, {}, {})
              for kind in ("divide", "maximum", "minimum")),
            one_operation("matmul", {"a": x, "b": (5, 3, channels)}, {"float": (4, 3, channels)}, {}, {}),
            one_operation("concat", {"x0": x, "x1": (2, 5, channels)}, {"float": (6, 5, channels)}, {}, {"axis": "h"}),
            one_operation("permute", {"x": x}, {"float": (10, 2, channels)}, {},
                          {"sides": [2, 2, 5, channels], "order": [2, 0, 1, 3]}),
            one_operation("resize", {"x": x}, {"float": (7, 3, channels)}, {},
                          {"size": [7, 3], "mode": "bilinear", "align": True}),
            one_operation("resize", {"x": x}, {"float": (8, 10, channels)}, {},
                          {"size": [8, 10], "mode": "nearest", "scale": [2, 2]}),
            one_operation("resize", {"x": x}, {"float": (2, 9, channels)}, {}, {"size": [2, 9], "mode": "bicubic"}),
            *(one_operation("pad", {"x": x}, {"float": (7, 6, channels)}, {},
                            {"before": [2, 1, 0], "after": [1, 0, 0], "mode": mode})
              for mode in ("reflect", "replicate", "circular")),
            *(one_operation("activation", {"x": x}, {"float": x}, {}, {"activation": activation})
              for activation in (["elu", 0.5], ["gelu"], ["softplus", 1, 20], ["power", 2])),
        ]  # fmt: skip
    several = small_network()
    graphs.append(replace(several, output={"logits": several.output, "maps": ["e", "b"]}, input=Input("image")))
    buffers = {name: Buffer("float", shape) for name, shape in (("a", (4, 5, 3)), ("b", (1, 1, 3)), ("y", (4, 5, 3)))}
    joined = Operation("multiply", "joined", {"a": "a", "b": "b"}, {"float": "y"})
    graphs.append(Graph(Input("a", names={"picture": "a", "vector": "b"}), "y", buffers, [joined]))
    for graph in graphs:
        graph.check()
    assert {operation.kind for graph in graphs for operation in graph.operations} == set(KINDS)
    return graphs
