"""A graph, bits included, as an OpenVINO model.

Its binary convolution is correct only for activations 0 and 1 that represent −1 and +1, made by a FakeQuantize with two
levels, and for weights of type u1 in the order O, C, kh, kw, lowest bit first.  With −1 and +1 its results are wrong
without any error, so users should check them (`rbnn.bench.rivals.exactness`).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset1, opset14

from rbnn.bench.rivals.amx import avoid_deadly_amx
from rbnn.packed.formulas import CUBIC, SELU_ALPHA, SELU_SCALE
from rbnn.packed.graph import Graph
from rbnn.translating.builder import Array, Filters, Window
from rbnn.translating.translate import translate


@cache
def core() -> ov.Core:
    """One core for the process, which is never released: with its last core OpenVINO frees the stack on which the
    system runs signal handlers, and the next signal (a child that ends, Ctrl-C) kills the process."""
    avoid_deadly_amx()
    return ov.Core()


def to_openvino(graph: Graph, batch: int) -> Any:
    """The ``ov.Model`` that takes (batch, C, H, W) and returns (batch, O, H', W')."""
    height, width, channels = graph.buffers[graph.input.buffer].shape
    image = opset14.parameter([batch, channels, height, width], np.float32)
    output = graph.only_output("other engines take networks with one")
    values = translate(graph, _Nodes(batch), image)
    return ov.Model([values[output]], [image], "rbnn")


class _Nodes:
    """A builder whose values are nodes of OpenVINO."""

    layer = ""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.binarized: dict[int, tuple[Any, Any, Array]] = {}
        """The results of `binarize`, and their inputs."""

    def constant(self, array: Array) -> Any:
        return opset14.constant(np.array(array, order="C"))

    def picture(self, array: Array) -> Any:
        return self.constant(array)

    def repeat(self, picture: Array) -> Any:
        return self.constant(np.repeat(picture, self.batch, 0))

    def conv(self, x: Any, filters: Filters, bias: Array | None, window: Window, groups: int) -> Any:
        weight = filters.numbers
        if groups == 1:
            y = opset14.convolution(x, self.constant(weight), *_window(window))
        else:
            grouped = weight.reshape(groups, len(weight) // groups, *weight.shape[1:])
            y = opset14.group_convolution(x, self.constant(grouped), *_window(window))
        return y if bias is None else opset14.add(y, self.constant(bias.reshape(1, -1, 1, 1)))

    def linear(self, x: Any, filters: Filters, bias: Array | None) -> Any:
        flat = opset14.squeeze(x, self.constant(np.array([2, 3])))
        y = opset14.matmul(flat, self.constant(filters.numbers[:, :, 0, 0]), False, True)
        if bias is not None:
            y = opset14.add(y, self.constant(bias.reshape(1, -1)))
        return opset14.unsqueeze(y, self.constant(np.array([2, 3])))

    def pairwise(self, how: str, a: Any, b: Any) -> Any:
        return getattr(opset14, how)(a, b, *([False, False] if how == "matmul" else []))

    def number(self, value: float) -> Any:
        return self.constant(np.array(value, np.float32))

    def activation(self, x: Any, name: str, numbers: Sequence[float], slope: Array | None) -> Any:
        if name in ("hardtanh", "relu6"):
            low, high = numbers or (0.0, 6.0)
            return opset14.clamp(x, float(low), float(high))
        if name in ("prelu", "leaky_relu"):
            return opset14.prelu(x, self.constant(np.array(numbers, np.float32) if slope is None else slope))
        if name == "elu":
            return opset14.elu(x, float(numbers[0]))
        if name == "selu":
            return opset14.selu(x, self.number(SELU_ALPHA), self.number(SELU_SCALE))
        if name in ("gelu", "gelu_tanh"):
            return opset14.gelu(x, "erf" if name == "gelu" else "tanh")
        if name == "hardsigmoid":
            return opset14.hard_sigmoid(x, self.number(1 / 6), self.number(0.5))
        if name == "power":
            return opset14.power(x, self.number(numbers[0]))
        if name == "softplus":
            return self.softplus(x, *numbers)
        functions = {
            "relu": opset14.relu, "sigmoid": opset14.sigmoid, "hardswish": opset14.hswish, "abs": opset14.absolute,
            "silu": opset14.swish, "tanh": opset14.tanh, "mish": opset14.mish, "exp": opset14.exp,
        }  # fmt: skip
        return functions[name](x)

    def softplus(self, x: Any, beta: float, threshold: float) -> Any:
        scaled = opset14.multiply(x, self.number(beta))
        soft = opset14.divide(opset14.softplus(scaled), self.number(beta))
        return opset14.select(opset14.greater(scaled, self.number(threshold)), x, soft)

    def softmax(self, x: Any, axis: int, log: bool) -> Any:
        return opset14.log_softmax(x, axis) if log else opset14.softmax(x, axis)

    def standardize(self, x: Any, axes: tuple[int, ...], eps: float) -> Any:
        return opset14.mvn(x, self.constant(np.array(axes)), True, eps, "inside_sqrt")

    def local_norm(self, x: Any, window: int, alpha: float, beta: float, k: float) -> Any:
        return opset14.lrn(x, self.constant(np.array([1])), alpha, beta, k, window)

    def max_pool(self, x: Any, window: Window) -> Any:
        padding = list(window.padding)
        return opset14.max_pool(
            x, list(window.stride), list(window.dilation), padding, padding, list(window.kernel), _rounding(window)
        ).output(0)

    def avg_pool(self, x: Any, window: Window, count_padding: bool) -> Any:
        padding, exclude = list(window.padding), not count_padding
        return opset14.avg_pool(
            x, list(window.stride), padding, padding, list(window.kernel), exclude, _rounding(window)
        )  # fmt: skip

    def reduce(self, x: Any, how: str, axes: tuple[int, ...]) -> Any:
        functions = {
            "mean": opset14.reduce_mean, "sum": opset14.reduce_sum, "max": opset14.reduce_max,
            "min": opset14.reduce_min,
        }  # fmt: skip
        return functions[how](x, self.constant(np.array(axes)), True)

    def concat(self, values: Sequence[Any], axis: int) -> Any:
        return opset14.concat(list(values), axis)

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return opset14.reshape(x, self.constant(np.array([self.batch, *shape])), False)

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        return opset14.transpose(x, self.constant(np.array(axes)))

    def slice(self, x: Any, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> Any:
        bounds = [self.constant(np.array(each)) for each in (start, stop, step, (1, 2, 3))]
        return opset14.slice(x, *bounds)

    def gather(self, x: Any, places: Array, axis: int) -> Any:
        return opset14.gather(x, self.constant(places), self.constant(np.array(axis)))

    def resize(self, x: Any, size: tuple[int, int], mode: str, align: bool, scale: tuple[float, float] | None) -> Any:
        named = {"nearest": "nearest", "bilinear": "linear_onnx", "bicubic": "cubic"}[mode]
        places = "align_corners" if align else "asymmetric" if mode == "nearest" else "half_pixel"
        to = self.constant(np.array(size) if scale is None else np.array(scale, np.float32))
        return opset14.interpolate(
            x, to, named, "sizes" if scale is None else "scales", coordinate_transformation_mode=places,
            nearest_mode="floor", cube_coeff=CUBIC, axes=self.constant(np.array([2, 3])),
        )  # fmt: skip

    def pad(self, x: Any, before: Sequence[int], after: Sequence[int], value: float) -> Any:
        margins = [self.constant(np.array([0, *each])) for each in (before, after)]
        return opset14.pad(x, *margins, "constant", self.constant(np.array(value, np.float32)))

    def border(self, x: Any, before: Sequence[int], after: Sequence[int], mode: str) -> Any:
        margins = [self.constant(np.array([0, *each])) for each in (before, after)]
        return opset14.pad(x, *margins, {"reflect": "reflect", "replicate": "edge"}[mode])

    def round_to_bytes(self, x: Any) -> Any:
        return opset14.clamp(opset14.round(x, "half_to_even"), 0.0, 255.0)

    def binarize(self, x: Any, level: Array) -> Any:
        low, high = (self.constant(np.full((1, 1, 1, 1), number, np.float32)) for number in (0, 1))
        border = self.constant(level)  # one per channel, because with a single number some networks crash the process
        node = opset14.fake_quantize(x, border, border, low, high, 2)
        self.binarized[id(node)] = node, x, level
        return node

    def binary_conv(self, x: Any, weight: Array, window: Window, pad: int, groups: int) -> Any:
        if groups > 1:  # in floats: OpenVINO's binary convolution has no groups
            _, before, level = self.binarized[id(x)]
            above = opset14.greater(before, self.constant(level))
            numbers = opset14.select(above, self.number(1), self.number(-1))
            if pad:
                margins = 0, *window.padding
                numbers, window = self.pad(numbers, margins, margins, pad), replace(window, padding=(0, 0))
            return self.conv(numbers, Filters(weight), None, window, groups)
        signs = ov.Tensor(ov.Type.u1, ov.Shape(list(weight.shape)))
        signs.data[:] = np.packbits((weight > 0).reshape(-1), bitorder="little")
        weights = opset14.constant(signs)
        return opset1.binary_convolution(x, weights, *_window(window), "xnor-popcount", float(pad))


def _window(window: Window) -> tuple[list[int], list[int], list[int], list[int]]:
    padding = list(window.padding)
    return list(window.stride), padding, padding, list(window.dilation)


def _rounding(window: Window) -> str:
    return "ceil_torch" if window.ceil else "floor"
