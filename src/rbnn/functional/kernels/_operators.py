"""Registration of a kernel as a torch operator, with its shapes and its gradient."""

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor, library
from torch.autograd.function import once_differentiable

Pair = tuple[int, int]
Four = tuple[Tensor, Tensor, Tensor, Tensor]
Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Function = Callable[..., Any]

_rbnn = library.Library("rbnn", "DEF")  # type: ignore[no-untyped-call]


class Operator:
    """An operator of ``torch.ops.rbnn``.  In eager mode its function is called directly, through an autograd function
    if it has a gradient, because torch's dispatcher takes several times as long."""

    def __init__(self, name: str, function: Function) -> None:
        self.overload = getattr(torch.ops.rbnn, name).default
        self.function, self.with_gradient = function, function

    def __call__(self, *args: Any) -> Any:
        if torch.compiler.is_compiling() or type(args[0]) not in (Tensor, torch.nn.Parameter):
            return self.overload(*args)
        return self.with_gradient(*args) if torch.is_grad_enabled() else self.function(*args)


_IN_A_SCHEMA = {Tensor: "Tensor", Tensor | None: "Tensor?", Pair: "int[2]", bool: "bool", float: "float"}


def operator(shapes: Function) -> Callable[[Function], Operator]:
    """Register a function as the operator with its name and with a schema from its annotations.  ``shapes`` returns
    empty results.  (torch's ``infer_schema`` is not in every version, and does not support pairs.)"""

    def register(function: Function) -> Operator:
        name, types = function.__name__.lstrip("_"), get_type_hints(function)
        results = ", ".join("Tensor" for _ in get_args(types.pop("return")) or (Tensor,))
        parameters = ", ".join(f"{_IN_A_SCHEMA[type]} {parameter}" for parameter, type in types.items())
        _rbnn.define(f"{name}({parameters}) -> ({results})")  # type: ignore[no-untyped-call]
        _rbnn.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        library.register_fake(f"rbnn::{name}", shapes, lib=_rbnn)
        return Operator(name, function)

    return register


def differentiable(operator: Operator, keep: Function, backward: Function) -> None:
    """``keep(ctx, inputs, output)`` saves what ``backward(ctx, *grads)`` needs."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        keep(ctx, inputs, output)
        ctx.set_materialize_grads(isinstance(output, Tensor))  # only the first result has a gradient

    def forward(ctx: Any, *args: Any) -> Any:  # no setup_context: torch would inspect signatures in each call
        output = operator.function(*args)
        setup(ctx, args, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(once_differentiable(backward))}
    operator.with_gradient = type("Node", (torch.autograd.Function,), members).apply  # type: ignore[attr-defined]
    library.register_autograd(operator.overload, backward, setup_context=setup, lib=_rbnn)
