"""The handler for each module and function of torch."""

from typing import Any

from torch import nn

from rbnn.exporting import activations as a
from rbnn.exporting import arithmetic as m
from rbnn.exporting import comparisons as k
from rbnn.exporting import handlers as o
from rbnn.exporting import pools as q
from rbnn.exporting import products as p
from rbnn.exporting import reductions as r
from rbnn.exporting import resizing as z
from rbnn.exporting import selections as c
from rbnn.exporting import shapes as s
from rbnn.exporting.traced_call import Handler
from rbnn.exporting.unpooling import max_unpool
from rbnn.models import Join, OptionA, RPReLU

MODULES: dict[type[nn.Module], Handler] = {
    nn.Conv1d: o.conv,
    nn.Conv2d: o.conv,
    nn.ConvTranspose1d: z.conv_transpose_module,
    nn.ConvTranspose2d: z.conv_transpose_module,
    nn.Linear: o.linear,
    nn.BatchNorm1d: o.batch_norm,
    nn.BatchNorm2d: o.batch_norm,
    nn.Hardtanh: a.hardtanh,
    nn.ReLU: a.relu,
    nn.ReLU6: a.relu6,
    nn.PReLU: a.prelu,
    nn.LeakyReLU: a.leaky_relu,
    nn.Sigmoid: a.sigmoid,
    nn.Hardswish: a.hardswish,
    nn.MaxPool1d: q.max_pool,
    nn.MaxPool2d: q.max_pool,
    nn.AvgPool1d: q.avg_pool,
    nn.AvgPool2d: q.avg_pool,
    nn.AdaptiveAvgPool1d: q.adaptive_avg_pool,
    nn.AdaptiveAvgPool2d: q.adaptive_avg_pool,
    nn.AdaptiveMaxPool1d: q.adaptive_max_pool,
    nn.AdaptiveMaxPool2d: q.adaptive_max_pool,
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
}
"""A module is treated as a function.  Its attributes with the names of parameters are the other arguments.  Modules
that are not listed are entered, and the calls inside them are handled."""

FUNCTIONS: dict[str, Handler] = {
    "conv1d": o.conv, "conv2d": o.conv, "linear": o.linear, "batch_norm": o.batch_norm,
    "conv_transpose1d": z.conv_transpose, "conv_transpose2d": z.conv_transpose,
    "group_norm": r.group_norm, "instance_norm": r.instance_norm, "layer_norm": r.layer_norm,
    "local_response_norm": r.local_response_norm, "normalize": r.normalize, "norm": r.norm,
    "vector_norm": r.vector_norm, "linalg_vector_norm": r.vector_norm,
    "softmax": r.softmax, "log_softmax": r.log_softmax, "softmin": r.softmin,
    "hardtanh": a.hardtanh, "clamp": a.clamp, "clip": a.clamp, "clamp_min": a.clamp_min, "clamp_max": a.clamp_max,
    "relu": a.relu, "relu6": a.relu6, "leaky_relu": a.leaky_relu, "prelu": a.prelu, "sigmoid": a.sigmoid,
    "hardswish": a.hardswish, "abs": a.absolute, "elu": a.elu, "selu": a.selu, "gelu": a.gelu,
    "silu": a.silu, "softplus": a.softplus, "tanh": a.tanh, "hardsigmoid": a.hardsigmoid, "mish": a.mish, "exp": a.exp,
    "celu": a.celu, "rrelu": a.rrelu, "logsigmoid": a.logsigmoid, "log_sigmoid": a.logsigmoid, "sign": a.sign,
    "threshold": a.threshold, "_threshold": a.threshold, "hardshrink": k.hardshrink, "where": k.where,
    "gt": k.greater, "greater": k.greater, "lt": k.less, "less": k.less, "ge": k.greater_equal, "le": k.less_equal,
    "greater_equal": k.greater_equal, "less_equal": k.less_equal, "masked_fill": k.masked_fill,
    "eq": k.equal, "ne": k.not_equal, "not_equal": k.not_equal,
    "softsign": m.softsign, "tanhshrink": m.tanhshrink, "softshrink": m.softshrink,
    "glu": m.glu, "pow": a.power, "sqrt": a.sqrt, "rsqrt": a.rsqrt, "square": a.square, "reciprocal": a.reciprocal,
    "max_pool1d": q.max_pool, "max_pool2d": q.max_pool, "avg_pool1d": q.avg_pool, "avg_pool2d": q.avg_pool,
    "adaptive_avg_pool1d": q.adaptive_avg_pool, "adaptive_avg_pool2d": q.adaptive_avg_pool,
    "adaptive_max_pool1d": q.adaptive_max_pool, "adaptive_max_pool2d": q.adaptive_max_pool,
    "max_pool2d_with_indices": q.max_pool, "max_unpool2d": max_unpool,
    "lp_pool1d": q.lp_pool, "lp_pool2d": q.lp_pool,
    "mean": r.mean, "sum": r.total, "var": r.var, "std": r.std,
    "var_mean": r.var_mean, "std_mean": r.var_mean, "logsumexp": r.logsumexp,
    "amax": r.amax, "amin": r.amin, "max": r.largest, "min": r.smallest,
    "add": m.add, "radd": m.add, "sub": m.sub, "subtract": m.sub, "rsub": m.rsub, "neg": m.neg, "negative": m.neg,
    "mul": m.mul, "rmul": m.mul, "multiply": m.mul, "div": m.div, "divide": m.div, "true_divide": m.div,
    "truediv": m.div, "rtruediv": m.rdiv, "rdiv": m.rdiv, "addcmul": m.addcmul,
    "maximum": m.maximum, "minimum": m.minimum,
    "matmul": m.matmul, "bmm": m.matmul, "mm": m.matmul, "einsum": p.einsum,
    "scaled_dot_product_attention": p.attention, "multi_head_attention_forward": p.multi_head_attention,
    "cat": s.cat, "concat": s.cat, "concatenate": s.cat, "stack": s.stack, "chunk": s.parts, "split": s.parts,
    "tensor_split": s.parts, "split_with_sizes": s.parts, "unbind": s.unbind, "getitem": c.getitem,
    "narrow": s.narrow, "select": s.select, "setitem": c.setitem, "index_select": c.index_select, "roll": c.roll,
    "flip": c.flip, "repeat_interleave": c.repeat_interleave,
    "flatten": s.reshape, "reshape": s.reshape, "view": s.reshape, "squeeze": s.reshape, "unsqueeze": s.reshape,
    "unflatten": s.reshape, "view_as": s.reshape, "reshape_as": s.reshape, "ravel": s.reshape,
    "expand": s.expand, "expand_as": s.expand, "broadcast_to": s.expand, "repeat": s.repeat, "tile": s.repeat,
    "transpose": s.move, "permute": s.move, "swapaxes": s.move, "swapdims": s.move, "movedim": s.move,
    "moveaxis": s.move, "t": s.move, "mT": s.move, "pixel_shuffle": s.move, "pixel_unshuffle": s.move,
    "channel_shuffle": s.move, "native_channel_shuffle": s.move,
    "pad": s.pad, "interpolate": z.interpolate,
    "unfold": z.unfold, "fold": z.fold,
    "dropout": o.dropout, "dropout1d": o.dropout, "dropout2d": o.dropout, "alpha_dropout": o.dropout,
    "feature_dropout": o.dropout, "feature_alpha_dropout": o.dropout,
    "contiguous": o.identity, "clone": o.identity, "detach": o.identity, "data": o.identity, "to": o.same_numbers,
    "float": o.same_numbers, "type_as": o.same_numbers, "cpu": o.identity, "requires_grad_": o.identity,
    "alias": o.identity,
}  # fmt: skip
"""By the name of the function, whether it is from torch, torch.nn.functional or a tensor."""

TAKE_SIDES_OF_ONE = (m.add, m.sub, m.rsub, m.mul, m.div, m.rdiv, m.maximum, m.minimum, s.expand)
"""Handlers of operations that broadcast dimensions of size 1 themselves."""

_OPERATORS = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "truediv", "ipow": "pow", "rmatmul": "matmul"}


def called(target: Any) -> str:
    """The name of a function: ``add`` for ``__add__``, ``add_`` and ``__iadd__``, ``shape`` for its getter."""
    if isinstance(target, nn.Module):
        return type(target).__name__
    name = getattr(target, "__name__", type(target).__name__)
    if name == "__get__":
        return str(getattr(target.__self__, "__name__", name))
    if name.startswith("__") and name.endswith("__"):
        plain = name.strip("_")
        return _OPERATORS.get(plain, plain)
    return name.rstrip("_") if name != "requires_grad_" else name
