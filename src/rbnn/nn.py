"""Binary layers with the names of their counterparts in ``torch.nn``.  The binarization method is part of the layer."""

import inspect
import itertools
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbnn.errors import ConfigError
from rbnn.functional import (
    BranchEnd,
    ScaledSigns,
    as_tensor,
    branch,
    branch_possible,
    sign_conv2d,
    sign_conv_possible,
    whole,
)
from rbnn.methods import Method, create_method
from rbnn.own_forward import forward_of

HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
"""Where torch keeps the hooks of a module; there is no public API for it."""
LIBRARIES = tuple(os.path.dirname(path) + os.sep for path in (__file__, torch.__file__))
"""The directories of rbnn and torch."""
_numbers = itertools.count(1)
"""One for each binary layer, in the order in which the layers get their methods."""


def _level_of_user() -> int:
    """The ``stacklevel`` of the first caller outside torch and rbnn: the line in the user's code."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        frame, level = frame.f_back, level + 1
    return max(level, 1)


def has_hooks(*modules: nn.Module) -> bool:
    """Whether one of ``modules`` has hooks.  Such modules must be called and cannot be replaced by a kernel."""
    return any(getattr(module, kind) for module in modules for kind in HOOKS)


class _Binary:
    """What the layers share.  ``weight`` is the latent float weight; ``method`` turns its filters into signs."""

    weight: Tensor
    method: Method
    training: bool
    has_schedule = False
    """Whether a schedule was created for the layer; it may not have begun yet."""
    _number = 0
    _last_warned = 0
    """Shared by all layers: one warning about a missing schedule covers every layer with a number up to this one."""

    def __init__(self, *args: Any, method: str = "rbnn", options: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_method(method, options)

    def set_method(self, method: str, options: dict[str, Any] | None = None) -> None:
        """Binarize with ``method`` from now on.  Its scales and rotations start from the current weight."""
        made, before = create_method(method, self.filters, **(options or {})), getattr(self, "method", None)
        if type(before) is type(made):
            made.inherit(before)
        self.adopt(made)

    def restart_method(self) -> None:
        """Restart the method's scales and rotations.  Call it after the weight has been replaced."""
        origin = self.method.origin
        if origin is None:
            raise ConfigError(
                f"{type(self.method).__name__} was created without the registry, so its options are unknown: call "
                "adopt() with a new one"
            )
        self.set_method(origin.method, origin.options)
        self.method.origin = origin

    def adopt(self, method: Method) -> None:
        """Binarize with this object from now on."""
        self.method = method
        self._number = next(_numbers)
        method.linear = self._linear

    @staticmethod
    def as_filters(values: Tensor) -> Tensor:
        """A view of ``values``, which are in the shape of the weight, as the method takes them: the first dimension is
        that of the outputs."""
        return values

    @property
    def filters(self) -> Tensor:
        """The latent weight as the method takes it."""
        return self.as_filters(self.weight)

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if input.dim() == self.weight.dim() - 1:  # no batch: a method must not mistake the channels for images
            return self.forward(input[None], *args, **kwargs)[0]
        if not torch.compiler.is_compiling():  # a graph that reads the schedule would be recompiled in each epoch
            self._warn_unstepped()
        if not input.is_meta and torch.is_autocast_enabled(input.device.type):
            # Rotations, means and sums of signs need the weight's own precision, so autocast is for other layers only.
            with torch.autocast(input.device.type, enabled=False):
                return self._forward(input.to(self.weight.dtype), *args, **kwargs)
        return self._forward(input, *args, **kwargs)

    @abstractmethod
    def _forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer's output for a batch, with torch's other arguments for such a layer."""

    @abstractmethod
    def _linear(self, a: Tensor, w: Tensor) -> Tensor:
        """The layer's linear map with the filters ``w``, without bias."""

    def _warn_unstepped(self) -> None:
        # A method that needs an example gets it from a forward pass before there is an optimiser, in any mode.
        unstepped = self.method.progress is None and not self.method.needs_example
        if self.training and unstepped and torch.is_grad_enabled():
            if self._number > _Binary._last_warned:
                begin = "call schedule.step(epoch) before each epoch"
                warnings.warn(
                    f"the schedule of the binary layers has not begun: {begin}"
                    if self.has_schedule
                    else "binary layers are being trained without a schedule: create "
                    f"schedule = rbnn.BinarySchedule(model, optimizer, epochs), and {begin}",
                    stacklevel=_level_of_user(),
                )
                _Binary._last_warned = next(_numbers)
            self.method.progress = 0.0

    def extra_repr(self) -> str:
        origin = self.method.origin
        name = type(self.method).__name__ if origin is None else origin.method
        return f"{super().extra_repr()}, method={name!r}"  # type: ignore[misc]


class _BinaryConv(_Binary):
    """What convolutions over signals and images share.  A signal (N, C, L) is an image (N, C, 1, L)."""

    bias: Tensor | None
    stride: tuple[int, ...]
    padding: str | tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    padding_mode: Literal["zeros", "reflect", "replicate", "circular"]
    _conv_forward: Callable[[Tensor, Tensor, Tensor | None], Tensor]

    pads_like: type[nn.Module] | None = None
    """The class whose forward pads and convolves the signs, for a layer that was of such a class."""

    def _forward(self, x: Tensor) -> Tensor:
        y = self.method.output(self._convolved(x, self.method.weight(self.filters)), x)
        return y if self.bias is None else y + self.bias.reshape(-1, *[1] * (y.dim() - 2))

    def _convolved(self, x: Tensor, w: ScaledSigns | Tensor) -> Tensor:
        """``conv(activation(x), w)``, on bits if the method, layer and device allow it."""
        binarization = self.method.binarization()
        if isinstance(w, ScaledSigns) and binarization is not None and self._plain and x.dim() == w.signs.dim():
            signal = x.dim() == 3
            pictures, filters = (x[:, :, None], w.of_height_one()) if signal else (x, w)
            padding = (0, *self.padding) if signal else self.padding
            if sign_conv_possible(pictures, filters.signs, binarization, padding):  # type: ignore[arg-type]
                stride = (1, *self.stride) if signal else self.stride
                y = sign_conv2d(pictures, filters, binarization, stride, padding)  # type: ignore[arg-type]
                return y[:, :, 0] if signal else y
        return self._linear(self.method.activation(x), as_tensor(w))

    def branch(self, x: Tensor, norm: nn.Module, shortcut: Tensor, end: BranchEnd) -> Tensor | None:
        """``end(norm(self(x)) + shortcut)`` with one kernel in each direction, in training and where no gradient is
        needed.  None if no kernel fits.  It calls no hooks."""
        if self.bias is not None or not self._plain or torch.is_autocast_enabled("cpu"):
            return None
        if not self.training and (torch.is_grad_enabled() or torch.compiler.is_compiling() or type(x) is not Tensor):
            return None
        binarization, where = self.method.binarization(), (self.stride, self.padding)
        if binarization is None or not self.method.plain_output:
            return None
        if not branch_possible(x, self.weight, binarization, *where, norm, shortcut):  # type: ignore[arg-type]
            return None
        w = self.method.weight(self.filters)
        if not isinstance(w, ScaledSigns):
            return None
        if not torch.compiler.is_compiling():
            self._warn_unstepped()
        return branch(x, w, binarization, *where, norm, shortcut, end)  # type: ignore[arg-type]

    @property
    def _plain(self) -> bool:
        """Whether the layer has numeric zero padding, no dilation and no groups."""
        numbers = self.padding_mode == "zeros" and not isinstance(self.padding, str) and self.pads_like is None
        return numbers and set(self.dilation) == {1} and self.groups == 1

    def _linear(self, a: Tensor, w: Tensor) -> Tensor:
        if self.pads_like is not None:
            return forward_of(self.pads_like, self, a, weight=w, bias=None)  # type: ignore[arg-type]
        return self._conv_forward(a, w, None)


class BinaryConv1d(_BinaryConv, nn.Conv1d):
    """``torch.nn.Conv1d`` with ±1 weights and ±1 inputs; zero padding pads the ±1 tensor with zeros."""


class BinaryConv2d(_BinaryConv, nn.Conv2d):
    """``torch.nn.Conv2d`` with ±1 weights and ±1 inputs; zero padding pads the ±1 tensor with zeros."""


class BinaryConvTranspose2d(_Binary, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d`` with ±1 weights and ±1 inputs; an output counts only the taps inside the input.

    ``groups`` must be 1."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.groups != 1:
            raise ConfigError(
                f"BinaryConvTranspose2d takes groups=1, got {self.groups}: use one layer for each group, or "
                "nn.ConvTranspose2d"
            )

    @staticmethod
    def as_filters(values: Tensor) -> Tensor:
        return values.transpose(0, 1)

    def _forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # type: ignore[override]
        size = self.stride, self.padding, self.kernel_size, 2, self.dilation
        more = self._output_padding(x, output_size, *size)  # type: ignore[arg-type]
        w = as_tensor(self.method.weight(self.filters))
        y = self.method.output(self._transposed(self.method.activation(x), w, more), x)
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)

    def _linear(self, a: Tensor, w: Tensor) -> Tensor:
        return self._transposed(a, w, self.output_padding)

    def _transposed(self, a: Tensor, w: Tensor, more: Sequence[int]) -> Tensor:
        how = self.stride, self.padding, more, 1, self.dilation
        return F.conv_transpose2d(a, w.transpose(0, 1), None, *how)  # type: ignore[arg-type]


class BinaryLinear(_Binary, nn.Linear):
    """``torch.nn.Linear`` with ±1 weights and ±1 inputs."""

    def _forward(self, x: Tensor) -> Tensor:
        w = as_tensor(self.method.weight(self.filters))
        y = self.method.output(self._linear(self.method.activation(x), w), x)
        return y if self.bias is None else y + self.bias

    def _linear(self, a: Tensor, w: Tensor) -> Tensor:
        return F.linear(a, w)


BinaryLayer: TypeAlias = BinaryConv1d | BinaryConv2d | BinaryConvTranspose2d | BinaryLinear


def binary_layers(model: nn.Module) -> Iterator[tuple[str, BinaryLayer]]:
    """Every binary layer of ``model`` with its name, in the order of registration."""
    for name, module in model.named_modules():
        if isinstance(module, BinaryLayer):
            yield name, module


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put ``model`` into eval mode inside the block, and restore the mode of every module afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield
    finally:
        for module, training in modes:
            module.training = training


@torch.no_grad()
def show_example(model: nn.Module, example_input: Tensor) -> None:
    """Run an example through ``model`` if a method needs one, so that all parameters exist before the optimizer is
    created.  Nothing else changes."""
    if not any(layer.method.needs_example for _, layer in binary_layers(model)):
        return
    with evaluation_mode(model):
        model(example_input)


def penalty(model: nn.Module) -> Tensor | float:
    """Return the sum of the penalties of the model's methods, to be added to the loss.  It is 0 for most methods."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"penalty takes the model, got {type(model).__name__}: write loss + rbnn.penalty(model)")
    layers = [layer for _, layer in binary_layers(model)]
    terms = [term for layer in layers if (term := layer.method.penalty(layer.filters)) is not None]
    for layer in layers:
        layer.method.penalty_asked = True
    return torch.stack([whole(term) for term in terms]).sum() if terms else 0.0
