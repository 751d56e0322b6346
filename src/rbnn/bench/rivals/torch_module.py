"""A graph as a torch module, as one would write it by hand; bits become the numbers −1 and 1."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import fx

from rbnn.packed.graph import Graph
from rbnn.translating.builder import Array, Filters, Window
from rbnn.translating.translate import translate


def to_torch(graph: Graph, batch: int) -> fx.GraphModule:
    """The module that takes (batch, C, H, W) and returns (batch, O, H', W')."""
    builder = _Calls(batch)
    output = graph.only_output("other engines take networks with one")
    values = translate(graph, builder, builder.graph.placeholder("image"))
    builder.graph.output(values[output])  # type: ignore[arg-type]
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

    def pairwise(self, how: str, a: fx.Node, b: fx.Node) -> fx.Node:
        return self.call(getattr(torch, how), a, b)

    def activation(self, x: fx.Node, name: str, numbers: Sequence[float], slope: Array | None) -> fx.Node:
        if name == "prelu":
            return self.call(F.prelu, x, self.optional(slope))
        if name == "gelu_tanh":
            return self.call(F.gelu, x, approximate="tanh")
        functions: dict[str, Callable[..., Any]] = {
            "hardtanh": F.hardtanh, "relu": F.relu, "relu6": F.relu6, "leaky_relu": F.leaky_relu,
            "sigmoid": torch.sigmoid, "hardswish": F.hardswish, "abs": torch.abs, "elu": F.elu, "selu": F.selu,
            "gelu": F.gelu, "silu": F.silu, "softplus": F.softplus, "tanh": torch.tanh, "hardsigmoid": F.hardsigmoid,
            "mish": F.mish, "exp": torch.exp, "power": torch.pow,
        }  # fmt: skip
        return self.call(functions[name], x, *numbers)

    def softmax(self, x: fx.Node, axis: int, log: bool) -> fx.Node:
        return self.call(torch.log_softmax if log else torch.softmax, x, axis)

    def standardize(self, x: fx.Node, axes: tuple[int, ...], eps: float) -> fx.Node:
        return self.call(_standardized, x, axes, eps)

    def local_norm(self, x: fx.Node, window: int, alpha: float, beta: float, k: float) -> fx.Node:
        return self.call(F.local_response_norm, x, window, alpha, beta, k)

    def max_pool(self, x: fx.Node, window: Window) -> fx.Node:
        numbers = window.kernel, window.stride, window.padding, window.dilation, window.ceil
        return self.call(F.max_pool2d, x, *numbers)

    def avg_pool(self, x: fx.Node, window: Window, count_padding: bool) -> fx.Node:
        numbers = window.kernel, window.stride, window.padding, window.ceil, count_padding
        return self.call(F.avg_pool2d, x, *numbers)

    def reduce(self, x: fx.Node, how: str, axes: tuple[int, ...]) -> fx.Node:
        functions: dict[str, Callable[..., Any]] = {
            "mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin,
        }  # fmt: skip
        return self.call(functions[how], x, axes, keepdim=True)

    def concat(self, values: Sequence[fx.Node], axis: int) -> fx.Node:
        return self.call(torch.cat, list(values), axis)

    def reshape(self, x: fx.Node, shape: tuple[int, ...]) -> fx.Node:
        return self.call(torch.reshape, x, (-1, *shape))

    def transpose(self, x: fx.Node, axes: tuple[int, ...]) -> fx.Node:
        return self.call(torch.permute, x, axes)

    def slice(self, x: fx.Node, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> fx.Node:
        cuts = slice(None), *(slice(*each) for each in zip(start, stop, step, strict=True))
        return self.call(torch.Tensor.__getitem__, x, cuts)

    def gather(self, x: fx.Node, places: Array, axis: int) -> fx.Node:
        return self.call(torch.index_select, x, axis, self.constant(places))

    def resize(
        self, x: fx.Node, size: tuple[int, int], mode: str, align: bool, scale: tuple[float, float] | None
    ) -> fx.Node:
        corners = None if mode == "nearest" else align
        return self.call(
            F.interpolate, x, size if scale is None else None, scale_factor=scale, mode=mode, align_corners=corners
        )

    def pad(self, x: fx.Node, before: Sequence[int], after: Sequence[int], value: float) -> fx.Node:
        last_axis_first = [side for pair in reversed(list(zip(before, after, strict=True))) for side in pair]
        return self.call(F.pad, x, last_axis_first, "constant", value)

    def border(self, x: fx.Node, before: Sequence[int], after: Sequence[int], mode: str) -> fx.Node:
        (_, top, left), (_, bottom, right) = before, after
        return self.call(F.pad, x, [left, right, top, bottom], mode)

    def round_to_bytes(self, x: fx.Node) -> fx.Node:
        return self.call(torch.clamp, self.call(torch.round, x), 0, 255)

    def binarize(self, x: fx.Node, level: Array) -> fx.Node:
        """Numbers −1 and 1: torch has no bits."""
        return self.call(torch.where, self.call(torch.gt, x, self.constant(level)), 1.0, -1.0)

    def binary_conv(self, x: fx.Node, weight: Array, window: Window, pad: int, groups: int) -> fx.Node:
        if pad:
            margins = 0, *window.padding
            x, window = self.pad(x, margins, margins, pad), replace(window, padding=(0, 0))
        return self.conv(x, Filters(weight), None, window, groups)


def _standardized(x: torch.Tensor, axes: tuple[int, ...], eps: float) -> torch.Tensor:
    """Uses torch's function for these axes."""
    if axes == (2, 3):
        return torch.group_norm(x, x.shape[1], eps=eps)
    if axes == (1, 2, 3):
        return torch.group_norm(x, 1, eps=eps)
    variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps)
