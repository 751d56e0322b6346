"""The torch operators of the compiled training kernels: ``torch.ops.rbnn``.

Because they are operators, torch.compile keeps them in its graph.  Each has a function that returns only the shapes of
its results, and a gradient, which is also an operator.  On a CPU, for dense float32 tensors, the fused kernels of
``rbnn._core`` work on the memory of the tensors.  For other tensors, plain torch computes the same, if the operator
supports them at all.

A tent, ``d sign/dx = max(peak − slope·|x|, 0) (1 − tanh²(steepness·x))`` for ``|x| ≤ support``, is a tensor with four
numbers.
"""

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rbnn import _core
from rbnn.functional.estimators import Tent, sign
from rbnn.functional.filters import per_filter

Pair = tuple[int, int]
Four = tuple[Tensor, Tensor, Tensor, Tensor]
Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
Function = Callable[..., Any]

_library = torch.library.Library("rbnn", "DEF")  # type: ignore[no-untyped-call]


class _Operator:
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


def _operator(shapes: Function) -> Callable[[Function], _Operator]:
    """Register a function as the operator with its name and with a schema from its annotations.  ``shapes`` returns
    empty results.  (``torch.library.infer_schema`` is not in every torch, and does not support pairs.)"""

    def register(function: Function) -> _Operator:
        name, types = function.__name__.lstrip("_"), get_type_hints(function)
        results = ", ".join("Tensor" for _ in get_args(types.pop("return")) or (Tensor,))
        parameters = ", ".join(f"{_IN_A_SCHEMA[type]} {parameter}" for parameter, type in types.items())
        _library.define(f"{name}({parameters}) -> ({results})")  # type: ignore[no-untyped-call]
        _library.impl(name, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"rbnn::{name}", shapes, lib=_library)
        return _Operator(name, function)

    return register


def _differentiable(operator: _Operator, keep: Function, backward: Function) -> None:
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
    torch.library.register_autograd(operator.overload, backward, setup_context=setup, lib=_library)


# The memory of tensors, for the kernels.


def _single(t: Tensor) -> bool:
    return t.device.type == "cpu" and t.dtype == torch.float32


def fusable(*tensors: Tensor) -> bool:
    """Whether all are dense float32 tensors on the CPU in the same memory order, with a dimension besides the batch."""
    first = tensors[0]
    return all(
        _single(t)
        and t.dim() > 1
        and t.shape == first.shape
        and t.stride() == first.stride()
        and (t.is_contiguous() or (t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)))
        for t in tensors
    )


def channels_last(t: Tensor) -> bool:
    """Whether it is float32 images on the CPU, with the channels last in memory."""
    return _single(t) and t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)


def _run(kernel: Function, *args: Any) -> None:
    """Call a function of ``rbnn._core`` on the memory of the tensors."""
    kernel(*map(_memory, args), torch.get_num_threads())


def _memory(arg: Any) -> Any:
    """A capsule, which is ten times as fast as a NumPy array.  After ``.numpy()``, torch could no longer resize the
    memory of a parameter, as FSDP does between its uses."""
    return torch.to_dlpack(arg) if isinstance(arg, Tensor) else arg  # type: ignore[attr-defined]


def _pictures(x: Tensor) -> Tensor:
    """``x`` with the channels last in memory, copied if it has another order."""
    return x.contiguous(memory_format=torch.channels_last)


def _dense(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.contiguous()


def _like(grad: Tensor, x: Tensor) -> Tensor:
    """``grad`` in the memory order of ``x``."""
    return grad if grad.stride() == x.stride() else torch.empty_like(x).copy_(grad)


# sign(x), with a tent for its derivative.


@_operator(lambda grad, x, *tent: torch.empty_like(x))
def _sign_backward(grad: Tensor, x: Tensor, tent: Tensor) -> Tensor:
    if not fusable(x):
        return grad * Tent(*tent.tolist())(x)
    grad_x = torch.empty_like(x)
    _run(_core.sign_backward, _like(grad, x), x, grad_x, tent)
    return grad_x


@_operator(lambda x, *tent: torch.empty_like(x))
def tent_sign(x: Tensor, tent: Tensor) -> Tensor:
    """``sign(x)``."""
    if not fusable(x):
        return sign(x)
    out = torch.empty_like(x)
    _run(_core.sign_forward, x, out)
    return out


_differentiable(
    tent_sign,
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lambda ctx, grad: (_sign_backward(grad, *ctx.saved_tensors), None),
)


# sign((x − mean)/std), with the mean and std of each image.


@_operator(lambda grad, x, *rest: torch.empty_like(x))
def _standardised_sign_backward(grad: Tensor, x: Tensor, mean: Tensor, inverse_std: Tensor, tent: Tensor) -> Tensor:
    grad_x = torch.empty_like(x)
    _run(_core.standardised_sign_backward, _like(grad, x), x, mean, inverse_std, grad_x, tent)
    return grad_x


@_operator(lambda x, *tent: (torch.empty_like(x), x.new_empty(x.shape[0]), x.new_empty(x.shape[0])))
def standardised_tent_sign(x: Tensor, tent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The signs, mean and 1/std.  Only for tensors that are ``fusable``."""
    out, mean, inverse_std = torch.empty_like(x), x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
    _run(_core.standardised_sign_forward, x, out, mean, inverse_std)
    return out, mean, inverse_std


_differentiable(
    standardised_tent_sign,
    lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], *output[1:], inputs[1]),
    lambda ctx, grad, *_: (_standardised_sign_backward(grad, *ctx.saved_tensors), None),
)


# The values whose signs are binary weights: standardised filters, mixed with their rotated values.


@_operator(lambda grad, w, r1, r2, beta, *rest: (torch.empty_like(w), w.new_empty(0 if beta is None else w.shape[0])))
def _rotated_weight_backward(
    grad: Tensor, w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool,
    turned: Tensor, statistics: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of w, and of β for each filter."""
    grad_w, grad_beta = torch.empty_like(w), w.new_empty(0 if beta is None else w.shape[0])
    _run(
        _core.rotated_weight_backward, _like(grad, w), w, _dense(r1), _dense(r2), _dense(beta), rotated_gradient,
        turned, statistics, grad_w, grad_beta,
    )  # fmt: skip
    return grad_w, grad_beta


def _rotated_weight_shapes(w: Tensor, r1: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    turned = w.new_empty((0, 0) if r1 is None else (w.shape[0], w[0].numel()))
    return torch.empty_like(w), turned, w.new_empty((2, w.shape[0]))


@_operator(_rotated_weight_shapes)
def rotated_weight(
    w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """w̃; Rᵀŵ; mean and 1/std of each filter.  Only for tensors that are ``fusable``, with two or more values per
    filter."""
    mixed, turned, statistics = _rotated_weight_shapes(w, r1)
    _run(_core.rotated_weight, w, _dense(r1), _dense(r2), _dense(beta), mixed, turned, statistics)
    return mixed, turned, statistics


def _keep_rotated(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    w, r1, r2, beta, ctx.rotated_gradient = inputs
    ctx.save_for_backward(w, r1, r2, beta, *output[1:])


def _through_rotation(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    w, r1, r2, beta, *kept = ctx.saved_tensors
    grad_w, grad_beta = _rotated_weight_backward(grad, w, r1, r2, beta, ctx.rotated_gradient, *kept)
    return grad_w, None, None, None if beta is None else grad_beta.sum_to_size(beta.shape), None


_differentiable(rotated_weight, _keep_rotated, _through_rotation)


# Their signs.


def _rotated_signs_shapes(w: Tensor, r1: Tensor | None, *rest: Any) -> Four:
    return torch.empty_like(w), *_rotated_weight_shapes(w, r1)


@_operator(lambda grad, w, r1, r2, beta, *rest: (torch.empty_like(w), w.new_empty(0 if beta is None else w.shape[0])))
def _rotated_signs_backward(
    grad: Tensor, w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool,
    tent: Tensor, mixed: Tensor, turned: Tensor, statistics: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gradients of w, and of β for each filter."""
    through = _sign_backward.function(grad, mixed, tent)
    return _rotated_weight_backward.function(through, w, r1, r2, beta, rotated_gradient, turned, statistics)  # type: ignore[no-any-return]


@_operator(_rotated_signs_shapes)
def rotated_signs(
    w: Tensor, r1: Tensor | None, r2: Tensor | None, beta: Tensor | None, rotated_gradient: bool, tent: Tensor
) -> Four:
    """The signs of w̃; then the results of ``rotated_weight``, for the same tensors."""
    mixed, turned, statistics = rotated_weight.function(w, r1, r2, beta, rotated_gradient)
    return tent_sign.function(mixed, tent), mixed, turned, statistics


def _keep_rotated_signs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    w, r1, r2, beta, ctx.rotated_gradient, tent = inputs
    ctx.save_for_backward(w, r1, r2, beta, tent, *output[1:])


def _through_rotated_signs(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    w, r1, r2, beta, *kept = ctx.saved_tensors
    grad_w, grad_beta = _rotated_signs_backward(grad, w, r1, r2, beta, ctx.rotated_gradient, *kept)
    return grad_w, None, None, None if beta is None else grad_beta.sum_to_size(beta.shape), None, None


_differentiable(rotated_signs, _keep_rotated_signs, _through_rotated_signs)


# hardtanh(a + b).


@_operator(lambda grad, out: torch.empty_like(out))
def _add_hardtanh_backward(grad: Tensor, out: Tensor) -> Tensor:
    if not fusable(out):
        return grad * (out.abs() < 1)
    grad_in = torch.empty_like(out)
    _run(_core.add_hardtanh_backward, _like(grad, out), out, grad_in)
    return grad_in


@_operator(lambda a, b: torch.empty_like(a + b))
def add_hardtanh(a: Tensor, b: Tensor) -> Tensor:
    if not fusable(a, b):
        return torch.nn.functional.hardtanh(a + b)
    out = torch.empty_like(a)
    _run(_core.add_hardtanh_forward, a, b, out)
    return out


_differentiable(
    add_hardtanh,
    lambda ctx, inputs, output: ctx.save_for_backward(output),
    lambda ctx, grad: (_add_hardtanh_backward(grad, *ctx.saved_tensors),) * 2,
)


# hardtanh(batch_norm(y) + shortcut) in training.


@_operator(
    lambda grad, y, weight, *rest: (
        torch.empty_like(y), torch.empty_like(weight), torch.empty_like(weight), torch.empty_like(y)
    ),
)  # fmt: skip
def _norm_add_hardtanh_backward(
    grad: Tensor, y: Tensor, weight: Tensor, out: Tensor, mean: Tensor, inverse_std: Tensor
) -> Four:
    count = y.numel() // y.shape[1]
    grad_sum, grad_y = torch.empty_like(y), torch.empty_like(y)
    total, product = torch.empty(2, y.shape[1], dtype=torch.float64)
    centre = mean.float()
    _run(_core.norm_add_hardtanh_backward, _pictures(grad), out, y, centre, grad_sum, total, product)
    # With g = grad_sum, s = 1/std:  dy = γ s (g − Σg/n − (y − mean) s² Σ(g (y − mean))/n)
    factor = weight.detach() * inverse_std
    pull, shift = -factor * inverse_std.square() * product / count, -factor * total / count
    _run(_core.norm_backward, grad_sum, y, centre, factor.float(), pull.float(), shift.float(), grad_y)
    return grad_y, (product * inverse_std).float(), total.float(), grad_sum


@_operator(lambda y, *rest: (torch.empty_like(y), *(y.new_empty(y.shape[1], dtype=torch.float64) for _ in range(3))))
def norm_add_hardtanh(y: Tensor, weight: Tensor, bias: Tensor, shortcut: Tensor, eps: float) -> Four:
    """The output; mean, variance and 1/std of each channel, in double."""
    out = torch.empty_like(y)
    mean, variance = (torch.empty(y.shape[1], dtype=torch.float64) for _ in range(2))
    _run(_core.batch_statistics, y, mean, variance)
    inverse_std = (variance + eps).rsqrt()
    scale = weight.detach() * inverse_std
    shift = bias.detach() - mean * scale
    _run(_core.norm_add_hardtanh, y, scale.float(), shift.float(), shortcut, out)
    return out, mean, variance, inverse_std


def _keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    y, weight, *_ = inputs
    out, mean, _, inverse_std = output
    ctx.save_for_backward(y, weight, out, mean, inverse_std)


_differentiable(
    norm_add_hardtanh,
    _keep_norm,
    lambda ctx, grad, *_: (*_norm_add_hardtanh_backward(grad, *ctx.saved_tensors), None),
)


# scale · (signs ⊛ sign(x)), standardised or not: bits forward, sums of signed gradients backward.


@_operator(lambda grad, x, *rest: torch.empty_like(x, memory_format=torch.channels_last))
def _sign_conv_grad_input(
    grad: Tensor, x: Tensor, signs: Tensor, scale: Tensor | None, mean: Tensor, inverse_std: Tensor, stride: Pair,
    padding: Pair, tent: Tensor,
) -> Tensor:  # fmt: skip
    grad_x = torch.empty_like(x, memory_format=torch.channels_last)
    _run(
        _core.sign_conv_grad_input, _pictures(grad), _pictures(signs), _dense(scale), stride, padding, x, mean,
        inverse_std, tent, grad_x,
    )  # fmt: skip
    return grad_x


@_operator(lambda grad, x, signs, *rest: torch.empty_like(signs, memory_format=torch.channels_last))
def _sign_conv_grad_weight(
    grad: Tensor, x: Tensor, signs: Tensor, planes: Tensor, stride: Pair, padding: Pair
) -> Tensor:
    """The gradient of ``scale · signs``."""
    grad_weight = torch.empty_like(signs, memory_format=torch.channels_last)
    _run(_core.sign_conv_grad_weight, _pictures(grad), planes, x.shape[2:], stride, padding, grad_weight)
    return grad_weight


def _convolved_shapes(x: Tensor, signs: Tensor, stride: Pair, padding: Pair) -> tuple[Tensor, Tensor]:
    """The output, channels last; the bits of x."""
    count, channels, *sides = x.shape
    height, width = ((sides[i] + 2 * padding[i] - signs.shape[i + 2]) // stride[i] + 1 for i in (0, 1))
    shape = count, signs.shape[0], height, width
    out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    return out, x.new_empty(count * sides[0] * stride[1] * channels, dtype=torch.int64)


def _sign_conv_shapes(
    x: Tensor, signs: Tensor, scale: Any, soft: Any, stride: Pair, padding: Pair, standardised: bool, tent: Tensor
) -> Four:
    numbers = x.shape[0] if standardised else 0
    return *_convolved_shapes(x, signs, stride, padding), x.new_empty(numbers), x.new_empty(numbers)


@_operator(_sign_conv_shapes)
def sign_conv(
    x: Tensor, signs: Tensor, scale: Tensor | None, soft: Tensor | None, stride: Pair, padding: Pair,
    standardised: bool, tent: Tensor,
) -> Four:  # fmt: skip
    """The output; the bits of x, its mean and 1/std.  Only for what ``sign_conv_possible`` allows, with the channels of
    x last."""
    out, planes, mean, inverse_std = _sign_conv_shapes(x, signs, scale, soft, stride, padding, standardised, tent)
    _run(_core.sign_conv_forward, x, _pictures(signs), _dense(scale), stride, padding, out, planes, mean, inverse_std)
    return out, planes, mean, inverse_std


def _keep_sign_conv(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, signs, scale, _, ctx.stride, ctx.padding, _, tent = inputs
    ctx.save_for_backward(x, signs, scale, *output[1:], tent)


def _sign_conv_backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, signs, scale, planes, mean, inverse_std, tent = ctx.saved_tensors
    grad_x = grad_signs = grad_scale = grad_soft = None
    if ctx.needs_input_grad[0]:
        grad_x = _sign_conv_grad_input(grad, x, signs, scale, mean, inverse_std, ctx.stride, ctx.padding, tent)
    if any(ctx.needs_input_grad[1:4]):
        grad_weight = _sign_conv_grad_weight(grad, x, signs, planes, ctx.stride, ctx.padding)
        factor = None if scale is None else per_filter(scale, signs)
        if ctx.needs_input_grad[3]:
            grad_soft = grad_weight
        else:
            grad_signs = grad_weight if factor is None else grad_weight * factor
            if factor is not None and ctx.needs_input_grad[2]:
                grad_scale = (grad_weight * signs).sum_to_size(factor.shape).reshape(scale.shape)
    return grad_x, grad_signs, grad_scale, grad_soft, None, None, None, None


_differentiable(sign_conv, _keep_sign_conv, _sign_conv_backward)


# A whole branch in training, end(norm(scale · (signs ⊛ sign(x))) + shortcut).  The end is hardtanh or, with slopes,
# prelu(· + before) + after.


def _branch_results(x: Tensor, signs: Tensor, stride: Pair, padding: Pair, standardised: bool) -> Five:
    out, planes = _convolved_shapes(x, signs, stride, padding)
    of_images = x.new_empty((2, x.shape[0] if standardised else 0))
    of_counts = x.new_empty((2, signs.shape[0]), dtype=torch.float64)
    return out, torch.empty_like(out, dtype=torch.int16), planes, of_images, of_counts


def _branch_gradients(x: Tensor, signs: Tensor, x_is_shortcut: bool, out: Tensor) -> Four:
    return (
        torch.empty_like(x, memory_format=torch.channels_last),
        out.new_empty((0, 0, 0, 0)) if x_is_shortcut else torch.empty_like(out),
        torch.empty_like(signs, memory_format=torch.channels_last),
        signs.new_empty((5, signs.shape[0])),
    )


def _branch(x: Tensor, signs: Tensor, scale: Tensor | None, *rest: Any) -> tuple[Any, ...]:
    """The arguments of a branch for the kernels: after these follow stride, padding, weight, bias, eps, slope, before,
    after, shortcut, counts, planes, out and of_images."""
    return tuple(map(_memory, (x, _pictures(signs), _dense(scale), *rest)))


@_operator(lambda grad, x, signs, *rest: _branch_gradients(x, signs, rest[8], rest[13]))
def _branch_backward(
    grad: Tensor, x: Tensor, signs: Tensor, scale: Tensor | None, split: bool, weight: Tensor, bias: Tensor,
    shortcut: Tensor | None, slope: Tensor | None, before: Tensor | None, after: Tensor | None, x_is_shortcut: bool,
    stride: Pair, padding: Pair, tent: Tensor, eps: float, out: Tensor, counts: Tensor, planes: Tensor,
    of_images: Tensor, of_counts: Tensor,
) -> Four:  # fmt: skip
    """Gradients of x, shortcut and signs (or, without ``split``, of scale · signs); of the scale of each filter, weight
    and bias of the norm, slope and after.  The gradient of ``before`` is that of the bias.  The shortcut is needed only
    with slopes."""
    grads = grad_x, grad_shortcut, grad_signs, numbers = _branch_gradients(x, signs, x_is_shortcut, out)
    grad = _pictures(grad)
    seen = grad if slope is None else x if shortcut is None else shortcut
    given = _branch(
        x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, seen, counts, planes, out, of_images
    )
    _run(
        _core.branch_backward, grad, tent, grad_x, None if x_is_shortcut else grad_shortcut, grad_signs, numbers, split,
        given, of_counts,
    )  # fmt: skip
    return grads


@_operator(lambda x, signs, *rest: _branch_results(x, signs, *rest[8:11]))
def branch(
    x: Tensor, signs: Tensor, scale: Tensor | None, soft: Tensor | None, weight: Tensor, bias: Tensor,
    shortcut: Tensor | None, slope: Tensor | None, before: Tensor | None, after: Tensor | None, stride: Pair,
    padding: Pair, standardised: bool, tent: Tensor, eps: float,
) -> Five:  # fmt: skip
    """The output; the integers before the norm; the bits of x, its mean and 1/std; mean and variance of the integers.
    Without a shortcut, x itself is the shortcut.  Only for what ``branch_possible`` allows, with the channels of x and
    shortcut last."""
    made = out, counts, planes, of_images, of_counts = _branch_results(x, signs, stride, padding, standardised)
    given = _branch(
        x, signs, scale, stride, padding, weight, bias, eps, slope, before, after, x if shortcut is None else shortcut,
        counts, planes, out, of_images,
    )  # fmt: skip
    _run(_core.branch_forward, given, of_counts, None, None)
    return made


def evaluated_branch(
    x: Tensor, signs: Tensor, scale: Tensor | None, norm: torch.nn.BatchNorm2d, shortcut: Tensor, slope: Tensor | None,
    before: Tensor | None, after: Tensor | None, stride: Pair, padding: Pair, standardised: bool,
) -> Tensor:  # fmt: skip
    """The output of ``branch`` with the running statistics of ``norm``.  It has no gradient."""
    out, counts, planes, of_images, _ = _branch_results(x, signs, stride, padding, standardised)
    given = _branch(
        x, signs, scale, stride, padding, norm.weight, norm.bias, norm.eps, slope, before, after, shortcut, counts,
        planes, out, of_images,
    )  # fmt: skip
    _run(_core.branch_forward, given, None, norm.running_mean, norm.running_var)
    return out


def _keep_branch(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, signs, scale, soft, weight, bias, shortcut, *end, ctx.stride, ctx.padding, _, tent, ctx.eps = inputs
    ctx.soft, ctx.x_is_shortcut = soft is not None, shortcut is None
    seen = None if end[0] is None else shortcut  # the gradient of hardtanh follows from its output
    ctx.save_for_backward(x, signs, scale, weight, bias, tent, seen, *end, *output)


def _through_branch(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, signs, scale, weight, bias, tent, shortcut, slope, before, after, *kept = ctx.saved_tensors
    split = scale is not None and not ctx.soft
    grad_x, grad_shortcut, grad_signs, numbers = _branch_backward(
        grad, x, signs, scale, split, weight, bias, shortcut, slope, before, after, ctx.x_is_shortcut, ctx.stride,
        ctx.padding, tent, ctx.eps, *kept,
    )  # fmt: skip
    of_scale, of_weight, of_bias, of_slope, of_after = numbers.unbind()
    of_signs, of_soft = (None, grad_signs) if ctx.soft else (grad_signs, None)
    return (
        grad_x, of_signs, of_scale.sum_to_size(scale.shape) if split else None, of_soft, of_weight, of_bias,
        None if ctx.x_is_shortcut else grad_shortcut, None if slope is None else of_slope,
        None if before is None else of_bias, None if after is None else of_after, None, None, None, None, None,
    )  # fmt: skip


_differentiable(branch, _keep_branch, _through_branch)
