"""A graph as an ONNX model; bits become the numbers −1 and 1."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from rbnn.packed.graph import Graph
from rbnn.translating.translate import Array, Window, translate

OPSET, IR_VERSION = 20, 10
"""Old enough for every engine that is still in use."""


def to_onnx(graph: Graph, batch: int) -> "onnx.ModelProto":
    """The model that takes ``image`` (batch, C, H, W) and gives ``answer`` (batch, O, H', W')."""
    builder = _Nodes()
    answer = translate(graph, builder, "image", batch)
    shapes = [graph.buffers[name].shape for name in (graph.input.buffer, graph.output)]
    described = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, channels, height, width])
        for name, (height, width, channels) in zip(("image", answer), shapes, strict=True)
    ]
    made = helper.make_graph(builder.nodes, "rbnn", described[:1], described[1:], builder.tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


class _Nodes:
    """A builder whose values are the names of ONNX values."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"value{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}{len(self.nodes)}", **attributes))
        return name

    def constant(self, array: Array) -> str:
        name = f"tensor{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def numbers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def conv(self, x: str, weight: Array, bias: Array | None, window: Window, groups: int) -> str:
        more = [] if bias is None else [self.constant(bias)]
        return self.node("Conv", x, self.constant(weight), *more, group=groups, **_window(window, dilated=True))

    def linear(self, x: str, weight: Array, bias: Array | None) -> str:
        more = [] if bias is None else [self.constant(bias)]
        answer = self.node("Gemm", self.node("Flatten", x, axis=1), self.constant(weight), *more, transB=1)
        return self.node("Unsqueeze", answer, self.numbers(2, 3))

    def add(self, a: str, b: str) -> str:
        return self.node("Add", a, b)

    def multiply(self, a: str, b: str) -> str:
        return self.node("Mul", a, b)

    def activation(self, x: str, name: str, numbers: Sequence[float], slope: Array | None) -> str:
        if name in ("hardtanh", "relu6"):
            low, high = (self.constant(np.array(number, np.float32)) for number in (numbers or (0.0, 6.0)))
            return self.node("Clip", x, low, high)
        if name == "prelu":
            assert slope is not None
            return self.node("PRelu", x, self.constant(slope.reshape(-1, 1, 1)))
        if name == "leaky_relu":
            return self.node("LeakyRelu", x, alpha=float(numbers[0]))
        return self.node({"relu": "Relu", "sigmoid": "Sigmoid", "hardswish": "HardSwish", "abs": "Abs"}[name], x)

    def max_pool(self, x: str, window: Window) -> str:
        return self.node("MaxPool", x, ceil_mode=int(window.ceil), **_window(window, dilated=True))

    def avg_pool(self, x: str, window: Window, count_padding: bool) -> str:
        more = {"ceil_mode": int(window.ceil), "count_include_pad": int(count_padding)}
        return self.node("AveragePool", x, **more, **_window(window, dilated=False))

    def reduce(self, x: str, how: str, axes: tuple[int, ...]) -> str:
        if axes == (2, 3):
            return self.node("GlobalAveragePool" if how == "mean" else "GlobalMaxPool", x)
        return self.node("ReduceMean" if how == "mean" else "ReduceMax", x, self.numbers(*axes), keepdims=1)

    def concat(self, values: Sequence[str], axis: int) -> str:
        return self.node("Concat", *values, axis=axis)

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        return self.node("Reshape", x, self.numbers(*shape))

    def transpose(self, x: str, axes: tuple[int, ...]) -> str:
        return self.node("Transpose", x, perm=list(axes))

    def slice(self, x: str, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> str:
        axes = self.numbers(1, 2, 3)
        return self.node("Slice", x, self.numbers(*start), self.numbers(*stop), axes, self.numbers(*step))

    def pad(self, x: str, before: Sequence[int], after: Sequence[int], value: float) -> str:
        return self.node("Pad", x, self.numbers(0, *before, 0, *after), self.constant(np.array(value, np.float32)))

    def binarize(self, x: str, level: Array) -> str:
        """Numbers −1 and 1: ONNX has no bits."""
        plus, minus = (self.constant(np.array(number, np.float32)) for number in (1, -1))
        return self.node("Where", self.node("Greater", x, self.constant(level)), plus, minus)

    def binary_conv(self, x: str, weight: Array, window: Window, pad: int) -> str:
        if pad:
            margins = 0, *window.padding
            x, window = self.pad(x, margins, margins, pad), replace(window, padding=(0, 0))
        return self.conv(x, weight, None, window, 1)


def _window(window: Window, *, dilated: bool) -> dict[str, list[int]]:
    given = {
        "kernel_shape": list(window.kernel),
        "strides": list(window.stride),
        "pads": [*window.padding, *window.padding],
    }
    return given | {"dilations": list(window.dilation)} if dilated else given
