"""A torch model as a list of calls with the values that they gave for some pictures."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from rbnn.errors import ExportError
from rbnn.models import Join, OptionA, RPReLU
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryLinear

WHOLE = BinaryConv1d, BinaryConv2d, BinaryLinear, Join, OptionA, RPReLU
"""Modules of ours that are one call, like those of ``torch.nn``."""


@dataclass(frozen=True)
class Traced:
    """The calls of one forward pass in evaluation mode and what each gave."""

    model: nn.Module
    """A copy of the user's: float32, on the CPU, in evaluation mode."""
    nodes: list[fx.Node]
    values: dict[fx.Node, Any]
    unprepared: Any
    """The answers before anything was changed."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, WHOLE) or super().is_leaf_module(m, module_qualified_name)


class _Recorder(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        # A copy: a later call may write over it.
        self.values[n] = result.detach().clone() if isinstance(result, Tensor) else result
        return result


def trace(model: nn.Module, images: Tensor, prepare: Callable[[nn.Module, fx.Graph], None]) -> Traced:
    """Run ``images`` through a copy of ``model`` and write down every call.  The model itself is not touched;
    ``prepare`` may change the copy's weights before."""
    try:
        stand_in = copy.deepcopy(model).to("cpu", torch.float32).eval()
    except Exception as error:  # whatever hangs on a model may refuse to be copied
        raise ExportError(f"{type(model).__name__} cannot be copied for the export ({_reason(error)})") from None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers = stand_in(images)  # complaints about the pictures come from here, without the tracer's words
        except Exception as error:
            shape = tuple(images.shape)
            raise ExportError(
                f"{type(model).__name__} does not take the example input {shape}: {_reason(error)}"
            ) from None
        try:
            graph = _Tracer().trace(stand_in)
        except Exception as error:
            raise ExportError(
                f"the forward of {type(model).__name__} cannot be traced ({_reason(error)}): "
                "it must not decide by values or shapes of tensors"
            ) from None
        prepare(stand_in, graph)
        recorder = _Recorder(fx.GraphModule(stand_in, graph))
        recorder.run(images)
    return Traced(stand_in, list(graph.nodes), recorder.values, answers)


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def owner(node: fx.Node) -> str:
    """The name of the module in whose forward a call stands; of the module itself, if it is one that is called."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack") or {}
    names = [entry[0] if isinstance(entry, tuple) else str(name) for name, entry in stack.items()]
    return names[-1] if names and names[-1] else "the model"
