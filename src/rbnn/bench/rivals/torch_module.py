"""A graph as a torch module, as somebody would write it by hand; bits become the numbers −1 and 1."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx

from rbnn.packed.graph import Graph
from rbnn.translating.translate import Array, Filters, Window, translate


def to_torch(graph: Graph, batch: int) -> fx.GraphModule:
    """The module that takes (batch, C, H, W) and gives (batch, O, H', W')."""
    builder = _Calls(batch)
    values = translate(graph, builder, builder.graph.placeholder("image"))
    builder.graph.output(values[graph.outputs[0]])  # type: ignore[arg-type]
    root = torch.nn.Module()
    for name, tensor in builder.tensors.items():
        root.register_buffer(name, tensor)
    return fx.GraphModule(root, builder.graph).eval()


class _Calls:
    """A builder whose values are nodes of a torch.fx graph."""

    layer = ""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.graph = fx.Graph()
        self.tensors: dict[str, torch.Tensor] = {}

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> fx.Node:
        return self.graph.call_function(function, arguments, named)

    def constant(self, array: Array) -> fx.Node:
        name = f"tensor{len(self.tensors)}"
        self.tensors[name] = torch.from_numpy(np.array(array))
        return self.graph.get_attr(name)

    def picture(self, array: Array) -> fx.Node:
        return self.constant(array)

    def repeat(self, picture: Array) -> fx.Node:
        return self.constant(np.repeat(picture, self.batch, 0))

    def conv(self, x: fx.Node, filters: Filters, bias: Array | None, window: Window, groups: int) -> fx.Node:
        numbers = window.stride, window.padding, window.dilation, groups
        return self.call(F.conv2d, x, self.constant(filters.numbers), self.optional(bias), *numbers)

    def linear(self, x: fx.Node, filters: Filters, bias: Array | None) -> fx.Node:
        weight = filters.numbers[:, :, 0, 0]
        answer = self.call(F.linear, self.call(torch.flatten, x, 1), self.constant(weight), self.optional(bias))
        return self.call(torch.reshape, answer, (-1, len(weight), 1, 1))

    def optional(self, array: Array | None) -> fx.Node | None:
        return None if array is None else self.constant(array)

    def add(self, a: fx.Node, b: fx.Node) -> fx.Node:
        return self.call(torch.add, a, b)

    def subtract(self, a: fx.Node, b: fx.Node) -> fx.Node:
        return self.call(torch.sub, a, b)

    def multiply(self, a: fx.Node, b: fx.Node) -> fx.Node:
        return self.call(torch.mul, a, b)

    def activation(self, x: fx.Node, name: str, numbers: Sequence[float], slope: Array | None) -> fx.Node:
        if name == "prelu":
            return self.call(F.prelu, x, self.optional(slope))
        functions: dict[str, Callable[..., Any]] = {
            "hardtanh": F.hardtanh, "relu": F.relu, "relu6": F.relu6, "leaky_relu": F.leaky_relu,
            "sigmoid": torch.sigmoid, "hardswish": F.hardswish, "abs": torch.abs,
        }  # fmt: skip
        return self.call(functions[name], x, *numbers)

    def max_pool(self, x: fx.Node, window: Window) -> fx.Node:
        numbers = window.kernel, window.stride, window.padding, window.dilation, window.ceil
        return self.call(F.max_pool2d, x, *numbers)

    def avg_pool(self, x: fx.Node, window: Window, count_padding: bool) -> fx.Node:
        numbers = window.kernel, window.stride, window.padding, window.ceil, count_padding
        return self.call(F.avg_pool2d, x, *numbers)

    def reduce(self, x: fx.Node, how: str, axes: tuple[int, ...]) -> fx.Node:
        return self.call(torch.mean if how == "mean" else torch.amax, x, axes, keepdim=True)

    def concat(self, values: Sequence[fx.Node], axis: int) -> fx.Node:
        return self.call(torch.cat, list(values), axis)

    def reshape(self, x: fx.Node, shape: tuple[int, int, int]) -> fx.Node:
        return self.call(torch.reshape, x, (-1, *shape))

    def transpose(self, x: fx.Node, axes: tuple[int, ...]) -> fx.Node:
        return self.call(torch.permute, x, axes)

    def slice(self, x: fx.Node, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> fx.Node:
        cuts = slice(None), *(slice(*each) for each in zip(start, stop, step, strict=True))
        return self.call(torch.Tensor.__getitem__, x, cuts)

    def pad(self, x: fx.Node, before: Sequence[int], after: Sequence[int], value: float) -> fx.Node:
        last_axis_first = [side for pair in reversed(list(zip(before, after, strict=True))) for side in pair]
        return self.call(F.pad, x, last_axis_first, "constant", value)

    def round_to_bytes(self, x: fx.Node) -> fx.Node:
        return self.call(torch.clamp, self.call(torch.round, x), 0, 255)

    def binarize(self, x: fx.Node, level: Array) -> fx.Node:
        """Numbers −1 and 1: torch has no bits."""
        return self.call(torch.where, self.call(torch.gt, x, self.constant(level)), 1.0, -1.0)

    def binary_conv(self, x: fx.Node, weight: Array, window: Window, pad: int) -> fx.Node:
        if pad:
            margins = 0, *window.padding
            x, window = self.pad(x, margins, margins, pad), replace(window, padding=(0, 0))
        return self.conv(x, Filters(weight), None, window, 1)
