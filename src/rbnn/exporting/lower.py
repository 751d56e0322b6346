"""From torch's calls to operations: which handler takes which module, function and method."""

import operator
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from rbnn.errors import ExportError
from rbnn.exporting import handlers as o
from rbnn.exporting import shapes as s
from rbnn.exporting.binary import Known, binary_layer
from rbnn.exporting.draft import Draft, picture_shape
from rbnn.exporting.trace import Traced, owner
from rbnn.exporting.traced_call import Call, Place
from rbnn.models import Join, OptionA, RPReLU
from rbnn.nn import BinaryLayer
from rbnn.packed.operations import Buffer

Handler = Callable[..., str]

MODULES: dict[type[nn.Module], Handler] = {
    nn.Conv1d: o.conv,
    nn.Conv2d: o.conv,
    nn.Linear: o.linear,
    nn.BatchNorm1d: o.batch_norm,
    nn.BatchNorm2d: o.batch_norm,
    nn.Hardtanh: o.hardtanh,
    nn.ReLU: o.relu,
    nn.ReLU6: o.relu6,
    nn.PReLU: o.prelu,
    nn.LeakyReLU: o.leaky_relu,
    nn.Sigmoid: o.sigmoid,
    nn.Hardswish: o.hardswish,
    nn.MaxPool1d: o.max_pool,
    nn.MaxPool2d: o.max_pool,
    nn.AvgPool1d: o.avg_pool,
    nn.AvgPool2d: o.avg_pool,
    nn.AdaptiveAvgPool1d: o.adaptive_avg_pool,
    nn.AdaptiveAvgPool2d: o.adaptive_avg_pool,
    nn.AdaptiveMaxPool1d: o.adaptive_max_pool,
    nn.AdaptiveMaxPool2d: o.adaptive_max_pool,
    nn.Flatten: s.reshape,
    nn.Unflatten: s.reshape,
    nn.ZeroPad1d: s.zero_pad,
    nn.ZeroPad2d: s.zero_pad,
    nn.Identity: o.identity,
    nn.Dropout: o.identity,
    nn.Dropout1d: o.identity,
    nn.Dropout2d: o.identity,
    OptionA: o.option_a,
    Join: o.join,
    RPReLU: o.rprelu,
}  # fmt: skip
"""A module is a function whose other arguments are the attributes of the module that are called as its parameters."""

FUNCTIONS: dict[Any, Handler] = {
    F.conv2d: o.conv, torch.conv2d: o.conv, F.linear: o.linear, F.batch_norm: o.batch_norm,
    F.hardtanh: o.hardtanh, torch.clamp: o.clamp, F.relu: o.relu, torch.relu: o.relu, F.relu6: o.relu6,
    F.leaky_relu: o.leaky_relu, F.prelu: o.prelu, torch.prelu: o.prelu, torch.sigmoid: o.sigmoid,
    F.sigmoid: o.sigmoid, F.hardswish: o.hardswish,
    F.max_pool2d: o.max_pool, torch.max_pool2d: o.max_pool, F.avg_pool2d: o.avg_pool,
    F.adaptive_avg_pool2d: o.adaptive_avg_pool, F.adaptive_max_pool2d: o.adaptive_max_pool, torch.mean: o.mean,
    F.conv1d: o.conv, F.max_pool1d: o.max_pool, torch.max_pool1d: o.max_pool, F.avg_pool1d: o.avg_pool,
    F.adaptive_avg_pool1d: o.adaptive_avg_pool, F.adaptive_max_pool1d: o.adaptive_max_pool,
    torch.transpose: s.transpose, torch.permute: s.permute,
    operator.add: o.add, operator.iadd: o.add, torch.add: o.add, operator.sub: o.sub, operator.isub: o.sub,
    torch.sub: o.sub, operator.neg: o.neg, torch.neg: o.neg, operator.mul: o.mul, operator.imul: o.mul,
    torch.mul: o.mul, torch.multiply: o.mul, operator.truediv: o.div, torch.div: o.div,
    torch.cat: s.cat, torch.concat: s.cat, torch.flatten: s.reshape, torch.reshape: s.reshape,
    torch.squeeze: s.reshape, torch.unsqueeze: s.reshape, operator.getitem: s.getitem, F.pad: s.pad,
    F.dropout: o.dropout, F.dropout2d: o.dropout,
}  # fmt: skip

METHODS: dict[str, Handler] = {
    "relu": o.relu, "relu_": o.relu, "sigmoid": o.sigmoid, "clamp": o.clamp, "clamp_": o.clamp, "mean": o.mean,
    "add": o.add, "add_": o.add, "sub": o.sub, "mul": o.mul, "mul_": o.mul, "div": o.div, "neg": o.neg,
    "view": s.reshape, "reshape": s.reshape, "flatten": s.reshape, "squeeze": s.reshape, "unsqueeze": s.reshape,
    "transpose": s.transpose, "permute": s.permute, "contiguous": o.identity, "clone": o.identity, "detach": o.identity,
}  # fmt: skip


def lower(traced: Traced, images: Tensor) -> Draft:
    """The network as operations, one or several for each call, nothing fused."""
    shape = picture_shape(tuple(images.shape))
    assert shape is not None, "the example was checked"
    draft = Draft("image", {"image": Buffer("float", shape)})
    places: dict[fx.Node, str] = {}
    known: Known = {}
    for node in traced.nodes:
        value = traced.values[node]
        if node.op == "placeholder":
            if places:
                continue  # a further argument, left at its default
            places[node] = draft.input
        elif node.op == "output":
            draft.output = _output(node, places, draft)
        elif node.op != "get_attr" and any(each in places for each in node.all_input_nodes):
            if not isinstance(value, Tensor) and not _only_asks(node):
                raise _call(draft, traced, node).fail(f"it gives {type(value).__name__}, not a tensor")
            if isinstance(value, Tensor):
                places[node] = _lowered(draft, traced, node, places, known)
                if (over := _written_over(traced, node)) is not None:
                    places[over], traced.values[over] = places[node], value
    return draft


def _only_asks(node: fx.Node) -> bool:
    """Whether a call asks for the size of a tensor, not for its values."""
    return (node.op == "call_method" and node.target in ("size", "dim", "numel")) or (
        node.op == "call_function" and node.target is getattr
    )


def _written_over(traced: Traced, node: fx.Node) -> fx.Node | None:
    """The value that a call replaces by its result, as ``ReLU(inplace=True)`` and ``x.add_`` do: whoever reads it later
    gets the result."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return None
    if node.op == "call_module":
        module = traced.model.get_submodule(str(node.target))
        in_place = isinstance(module, Join) or bool(getattr(module, "inplace", False))
    elif node.op == "call_method":
        in_place = str(node.target).endswith("_")
    else:
        in_place = bool(node.kwargs.get("inplace")) or node.target in (operator.iadd, operator.isub, operator.imul)
    return source if in_place else None


def _lowered(draft: Draft, traced: Traced, node: fx.Node, places: dict[fx.Node, str], known: Known) -> str:
    call = _call(draft, traced, node)
    if picture_shape(tuple(call.result.shape)) is None:
        raise call.fail(f"it gives the shape {tuple(call.result.shape)}, neither pictures nor vectors")

    def put(each: fx.Node) -> Any:
        value = traced.values[each]
        return Place(places[each], value) if each in places else value

    args: Any = fx.map_arg(node.args, put)
    kwargs: Any = fx.map_arg(node.kwargs, put)
    handler: Handler | None
    if node.op == "call_module":
        module = traced.model.get_submodule(str(node.target))
        if isinstance(module, BinaryLayer):
            return binary_layer(call, args[0], module, known)
        handler = MODULES.get(type(module))
        if getattr(module, "padding_mode", "zeros") != "zeros":
            raise call.fail(f"padding_mode {getattr(module, 'padding_mode', '')!r} is not supported")
        names = [] if handler is None else [name for name in signature(handler).parameters if hasattr(module, name)]
        kwargs = kwargs | {name: getattr(module, name) for name in names}
    else:
        handler = METHODS.get(str(node.target)) if node.op == "call_method" else FUNCTIONS.get(node.target)
    if handler is None:
        raise call.fail("the packed format has no such operation")
    try:
        bound = signature(handler).bind(call, *args, **kwargs)
    except TypeError as error:  # an argument that the handler does not know
        raise call.fail(f"it is called in a way that is not supported ({error})") from None
    return handler(*bound.args, **bound.kwargs)


def _call(draft: Draft, traced: Traced, node: fx.Node) -> Call:
    if node.op == "call_module":
        what = f"nn.{type(traced.model.get_submodule(str(node.target))).__name__}"
    elif node.op == "call_method":
        what = f"Tensor.{node.target}"
    else:
        what = getattr(node.target, "__name__", str(node.target))
    name = str(node.target) if node.op == "call_module" else node.name
    return Call(draft, name, what, owner(node), traced.values[node])


def _output(node: fx.Node, places: dict[fx.Node, str], draft: Draft) -> str:
    (answer,) = node.args
    if not isinstance(answer, fx.Node) or answer not in places:
        raise ExportError("the network must answer with one tensor, made from its pictures")
    if places[answer] == draft.input:
        raise ExportError("the network gives back its pictures: there is nothing to pack")
    return places[answer]
