"""What stands before and after the layers of a model: the ReLUs that feed them, the norms and outputs after them."""

import copy
import json
import operator
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.nn.modules import activation as activations

from rbnn.nn import BinaryLayer

LAYERS = nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear


@dataclass(frozen=True)
class _Kind:
    """Operations of one kind: as modules, as functions and as methods of tensors."""

    modules: tuple[type[nn.Module], ...] = ()
    functions: frozenset[Any] = frozenset()
    methods: frozenset[str] = frozenset()

    def has(self, node: fx.Node, module: nn.Module | None) -> bool:
        called = {"call_function": self.functions, "call_method": self.methods}.get(node.op, frozenset())
        return isinstance(module, self.modules) or node.target in called


_RELU = _Kind(
    (nn.ReLU, nn.ReLU6),
    frozenset({F.relu, F.relu6, torch.relu, torch.relu_, F.relu_}),
    frozenset({"relu", "relu_"}),
)
# Operations that leave zeros and positive values unchanged: a ReLU is seen through them.
_TRANSPARENT = _Kind(
    (
        nn.Identity, nn.Flatten, nn.Dropout, nn.Dropout2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d,
        nn.AdaptiveMaxPool2d, nn.Dropout1d, nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d,
        nn.ZeroPad1d, nn.ZeroPad2d, nn.Unflatten, nn.PixelShuffle, nn.ChannelShuffle,
    ),
    frozenset({
        torch.flatten, torch.cat, torch.max_pool2d, torch.dropout, torch.reshape, torch.mean,
        F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d, F.dropout, F.dropout2d, F.pad,
        F.max_pool1d, F.avg_pool1d, F.adaptive_avg_pool1d, F.adaptive_max_pool1d, torch.max_pool1d, torch.avg_pool1d,
    }),
    frozenset({"flatten", "view", "reshape", "contiguous", "mean", "permute", "transpose", "squeeze", "to"}),
)  # fmt: skip
_NORM = _Kind(
    (
        nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, nn.InstanceNorm1d, nn.InstanceNorm2d,
        nn.InstanceNorm3d, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm,
    ),
    frozenset({F.batch_norm, F.layer_norm, F.group_norm, F.instance_norm, F.rms_norm, F.normalize}),
)  # fmt: skip
# Activations keep large values large, or saturate: a norm counts behind them, too.
_ACTIVATION = _Kind(
    tuple(getattr(activations, name) for name in activations.__all__ if name != "MultiheadAttention"),
    frozenset({
        F.hardtanh, F.leaky_relu, F.prelu, F.gelu, F.silu, F.mish, F.elu, F.selu, F.softplus, F.hardswish, F.tanh,
        torch.tanh, torch.sigmoid, F.sigmoid,
    }),
    frozenset({"tanh", "sigmoid", "clamp"}),
)  # fmt: skip
# What may stand between the last layers and the outputs, besides activations and what a ReLU is seen through.
_RESHAPED = _Kind(
    (nn.Upsample, nn.PixelUnshuffle),
    frozenset({
        F.interpolate, F.pixel_shuffle, F.softmax, F.log_softmax, F.logsigmoid, torch.softmax, torch.log_softmax,
        torch.squeeze, torch.unsqueeze, torch.permute, torch.transpose, torch.chunk, torch.split, torch.clamp,
        operator.getitem,
    }),
    frozenset({"softmax", "log_softmax", "unsqueeze", "unflatten", "chunk", "split", "float"}),
)  # fmt: skip
_SUM = _Kind((), frozenset({operator.add, operator.iadd, torch.add}), frozenset({"add", "add_"}))


class Untraceable(Exception):
    """The forward of a model is not written for tracing."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        leaf = isinstance(m, (*LAYERS, BinaryLayer, *_RELU.modules))
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

    def only_read(self, layers: Collection[str]) -> list[str]:
        """The layers whose weight the forward reads, as in ``F.linear(x, self.layer.weight)``, and that it never
        calls."""
        read = {str(node.target) for node in self.graph.nodes if node.op == "get_attr"}
        return [name for name in layers if f"{name}.weight" in read and not self._calls([name])]

    def before_outputs(self) -> list[str]:
        """The layers that feed the outputs of a model with several, through nothing but shape changes, activations and
        resizing.  None for a single output."""
        outputs = self.graph.output_node().all_input_nodes
        return list(dict.fromkeys(self._last_layers(outputs, set()))) if len(outputs) > 1 else []

    def _calls(self, layers: Collection[str]) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.op == "call_module" and node.target in layers]

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self.model.get_submodule(str(node.target)) if node.op == "call_module" else None

    def _is(self, node: fx.Node, *kinds: _Kind) -> bool:
        return any(kind.has(node, self._module(node)) for kind in kinds)

    def _feeding(self, node: fx.Node) -> Iterator[str | None]:
        for source in node.all_input_nodes:
            if self._is(source, _RELU):
                yield str(source.target) if source.op == "call_module" else None
            elif self._is(source, _TRANSPARENT):
                yield from self._feeding(source)

    def _last_layers(self, nodes: list[fx.Node], seen: set[fx.Node]) -> Iterator[str]:
        for node in nodes:
            if node in seen:
                continue
            seen.add(node)
            if isinstance(self._module(node), LAYERS):
                yield str(node.target)
            elif self._is(node, _TRANSPARENT, _RELU, _ACTIVATION, _RESHAPED):
                yield from self._last_layers(node.all_input_nodes, seen)

    def _reached(self, node: fx.Node, seen: set[fx.Node]) -> Iterator[str]:
        """``layer``, ``norm`` or ``other`` for everything that the values of ``node`` reach unnormalised."""
        for user in node.users:
            if user in seen:
                continue
            seen.add(user)
            if self._is(user, _NORM):
                yield "norm"
            elif isinstance(self._module(user), (*LAYERS, BinaryLayer)):
                yield "layer"
            elif self._is(user, _TRANSPARENT, _RELU, _ACTIVATION, _SUM):
                yield from self._reached(user, seen)
            else:
                yield "other"


def missing_norms(bare: list[str], keep: list[str] | None = None, possible: bool = True) -> Iterator[str]:
    """A warning that names the layers without a norm, if there are any.  If it is ``possible`` to keep them float, it
    says so, with the whole list ``keep`` to pass."""
    if bare:
        its, it, each = ("its", "it", "it") if len(bare) == 1 else ("their", "them", "each of them")
        instead = f", or keep {it} float{f' with {keeping(keep)}' if keep else ''}" if possible else ""
        yield (
            f"no norm follows binary {named(bare)}, so {its} sums of signs reach the next layer as they are and "
            f"training may diverge: put a BatchNorm after {each}{instead}"
        )


def keeping(layers: list[str]) -> str:
    """``keep=["a", "b"]``, to be copied into a call."""
    return f"keep={json.dumps(layers, ensure_ascii=False)}"


def named(layers: list[str]) -> str:
    """``layer 'a'``, ``layers 'a', 'b'``."""
    return f"{'layer' if len(layers) == 1 else 'layers'} {', '.join(map(repr, layers))}"
