"""What stands before and after the layers of a model: the ReLUs that feed them, the norms and outputs after them."""

import copy
import json
import operator
import warnings
from collections.abc import Collection, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules import activation as activations

from rbnn.nn import BinaryLayer

LAYERS = nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear
_RELU_MODULES = nn.ReLU, nn.ReLU6
_RELUS: dict[str, set[Any]] = {
    "call_function": {F.relu, F.relu6, torch.relu, torch.relu_, F.relu_},
    "call_method": {"relu", "relu_"},
}

# Operations that leave zeros and positive values unchanged: a ReLU is seen through them.
_SEEN_THROUGH_MODULES = (
    nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d, nn.Dropout1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d,
    nn.ZeroPad1d, nn.ZeroPad2d, nn.Unflatten, nn.PixelShuffle, nn.ChannelShuffle,
)  # fmt: skip
_SEEN_THROUGH: dict[str, set[Any]] = {
    "call_function": {
        torch.flatten, torch.cat, torch.max_pool2d, torch.dropout, torch.reshape, torch.mean,
        F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d, F.dropout, F.dropout2d, F.pad,
        F.max_pool1d, F.avg_pool1d, F.adaptive_avg_pool1d, F.adaptive_max_pool1d, torch.max_pool1d, torch.avg_pool1d,
    },
    "call_method": {"flatten", "view", "reshape", "contiguous", "mean", "permute", "transpose", "squeeze", "to"},
}  # fmt: skip

_NORM_MODULES = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.InstanceNorm1d, nn.InstanceNorm2d,
    nn.InstanceNorm3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm,
)  # fmt: skip
_NORMS = {F.batch_norm, F.layer_norm, F.group_norm, F.instance_norm, F.rms_norm, F.normalize}
# Activations keep large values large, or saturate: a norm counts behind them, too.
_ACTIVATION_MODULES = tuple(
    kind for name in activations.__all__ if name != "MultiheadAttention" and (kind := getattr(activations, name))
)
_ACTIVATIONS: dict[str, set[Any]] = {
    "call_function": {
        F.hardtanh, F.leaky_relu, F.prelu, F.gelu, F.silu, F.mish, F.elu, F.selu, F.softplus, F.hardswish, F.tanh,
        torch.tanh, torch.sigmoid, F.sigmoid,
    },
    "call_method": {"tanh", "sigmoid", "clamp"},
}  # fmt: skip
# What may stand between the last layers and the outputs, besides activations and what a ReLU is seen through.
_RESHAPED_MODULES = nn.Upsample, nn.PixelUnshuffle
_RESHAPED: dict[str, set[Any]] = {
    "call_function": {
        F.interpolate, F.pixel_shuffle, F.softmax, F.log_softmax, F.logsigmoid, torch.softmax, torch.log_softmax,
        torch.squeeze, torch.unsqueeze, torch.permute, torch.transpose, torch.chunk, torch.split, torch.clamp,
        operator.getitem,
    },
    "call_method": {"softmax", "log_softmax", "unsqueeze", "unflatten", "chunk", "split", "float"},
}  # fmt: skip
_SUMS: dict[str, set[Any]] = {"call_function": {operator.add, operator.iadd, torch.add}, "call_method": {"add", "add_"}}


class Untraceable(Exception):
    """The forward of a model is not written for tracing."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaf = isinstance(m, (*LAYERS, BinaryLayer, *_RELU_MODULES))
        return leaf or super().is_leaf_module(m, module_qualified_name)


class Neighbours:
    """The graph of a model's forward."""

    def __init__(self, model: nn.Module) -> None:
        # Tracing runs the forward, which may have side effects, so it runs on a copy that shares only the weights.
        try:
            self.model = copy.deepcopy(model, {id(p): p for p in model.parameters()})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.graph = _Tracer().trace(self.model)
        except Exception as obstacle:  # anything may happen in a forward that was not written for tracing
            raise Untraceable(str(obstacle).partition("\n")[0] or type(obstacle).__name__) from obstacle

    def relus_before(self, layers: Collection[str]) -> list[tuple[str, str | None]]:
        """(layer, ReLU module that feeds it) by name, None for a ReLU that is not a module."""
        calls = self._calls(layers)
        return [(str(node.target), relu) for node in calls for relu in dict.fromkeys(self._feeding(node))]

    def without_norm(self, layers: Collection[str]) -> list[str]:
        """The layers whose outputs reach another layer, but no norm."""
        found = {str(node.target): set(self._reached(node, set())) for node in self._calls(layers)}
        return [name for name, reached in found.items() if reached == {"layer"}]

    def before_outputs(self) -> list[str]:
        """The layers that feed the outputs of a model with several, through nothing but shape changes, activations and
        resizing.  None for a single output."""
        outputs = self.graph.output_node().all_input_nodes
        return list(dict.fromkeys(self._last_layers(outputs, set()))) if len(outputs) > 1 else []

    def _calls(self, layers: Collection[str]) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.op == "call_module" and node.target in layers]

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self.model.get_submodule(str(node.target)) if node.op == "call_module" else None

    def _feeding(self, node: fx.Node) -> Iterator[str | None]:
        for source in node.all_input_nodes:
            module = self._module(source)
            if isinstance(module, _RELU_MODULES):
                yield str(source.target)
            elif source.target in _RELUS.get(source.op, ()):
                yield None
            elif isinstance(module, _SEEN_THROUGH_MODULES) or source.target in _SEEN_THROUGH.get(source.op, ()):
                yield from self._feeding(source)

    def _last_layers(self, nodes: list[fx.Node], seen: set[fx.Node]) -> Iterator[str]:
        for node in nodes:
            if node in seen:
                continue
            seen.add(node)
            module = self._module(node)
            if isinstance(module, LAYERS):
                yield str(node.target)
            elif isinstance(module, (*_SEEN_THROUGH_MODULES, *_ACTIVATION_MODULES, *_RESHAPED_MODULES)) or any(
                node.target in known.get(node.op, ()) for known in (_SEEN_THROUGH, _RELUS, _ACTIVATIONS, _RESHAPED)
            ):
                yield from self._last_layers(node.all_input_nodes, seen)

    def _reached(self, node: fx.Node, seen: set[fx.Node]) -> Iterator[str]:
        """``layer``, ``norm`` or ``other`` for everything that the values of ``node`` reach unnormalised."""
        for user in node.users:
            if user in seen:
                continue
            seen.add(user)
            module = self._module(user)
            if isinstance(module, _NORM_MODULES) or user.target in _NORMS:
                yield "norm"
            elif isinstance(module, (*LAYERS, BinaryLayer)):
                yield "layer"
            elif isinstance(module, (*_SEEN_THROUGH_MODULES, *_ACTIVATION_MODULES)) or any(
                user.target in known.get(user.op, ()) for known in (_SEEN_THROUGH, _RELUS, _ACTIVATIONS, _SUMS)
            ):
                yield from self._reached(user, seen)
            else:
                yield "other"


def missing_norms(bare: list[str], instead: str) -> Iterator[str]:
    """A warning that names the layers without a norm, if there are any, and what helps ``instead`` of a norm."""
    if bare:
        one = len(bare) == 1
        yield (
            f"no norm follows binary {named(bare)}, so {'its' if one else 'their'} sums of signs reach the next layer "
            f"as they are and training may diverge: put a BatchNorm after {'it' if one else 'each of them'}{instead}"
        )


def keeping(layers: list[str]) -> str:
    """``keep=["a", "b"]``, to be copied into a call."""
    return f"keep={json.dumps(layers, ensure_ascii=False)}"


def named(layers: list[str]) -> str:
    """``layer 'a'``, ``layers 'a', 'b'``."""
    return f"{'layer' if len(layers) == 1 else 'layers'} {', '.join(map(repr, layers))}"
