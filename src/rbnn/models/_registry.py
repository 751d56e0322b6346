"""Networks by name: the name of the function is the name of the network."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.errors import ConfigError, UnknownName
from rbnn.functional import add_hardtanh, norm_add_hardtanh, norm_add_hardtanh_possible
from rbnn.methods import check_method
from rbnn.nn import BinaryConv2d, show_example


@dataclass(frozen=True)
class Bricks:
    """What a network is built from, by method: binary layers with hardtanh, or for the float twin ``torch.nn``'s
    convolutions with ReLU."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    num_classes: int = 10
    in_channels: int = 3
    image_size: int = 32

    @property
    def binary(self) -> bool:
        return self.method != "float"

    def conv(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Module:
        """A convolution without bias that is binary unless the network is a float twin."""
        shape = in_channels, out_channels, kernel, stride, kernel // 2
        if self.binary:
            return BinaryConv2d(*shape, bias=False, method=self.method, options=self.options)
        return nn.Conv2d(*shape, bias=False)

    def activation(self) -> nn.Module:
        return nn.Hardtanh() if self.binary else nn.ReLU()

    def join(self) -> "Join":
        return Join(self.binary)


class Join(nn.Module):
    """``activation(branch + shortcut)``: hardtanh in a binary network, ReLU in its twin; written over the branch."""

    def __init__(self, binary: bool) -> None:
        super().__init__()
        self.binary = binary

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        return add_hardtanh(branch, shortcut, inplace=True) if self.binary else branch.add_(shortcut).relu_()

    def after(self, norm: nn.Module, branch: Tensor, shortcut: Tensor) -> Tensor:
        """The same of ``norm(branch)``, in one go where there is a kernel for it."""
        if self.binary and norm_add_hardtanh_possible(branch, norm, shortcut):
            return norm_add_hardtanh(branch, norm, shortcut)  # type: ignore[arg-type]
        return self(norm(branch), shortcut)  # type: ignore[no-any-return]


Build = Callable[[Bricks], nn.Module]


@dataclass(frozen=True)
class Entry:
    """A registered network."""

    build: Build
    image_size: int

    @property
    def summary(self) -> str:
        """The first line of the doc string."""
        return (self.build.__doc__ or "").strip().partition("\n")[0]


MODELS: dict[str, Entry] = {}


def register_model(image_size: int) -> Callable[[Build], Build]:
    """Makes a network known by its function's name, ``_`` spelled ``-``; it is meant for ``image_size`` pixels."""

    def register(build: Build) -> Build:
        MODELS[build.__name__.replace("_", "-")] = Entry(build, image_size)
        return build

    return register


def model_names() -> list[str]:
    return list(MODELS)


def create_model(
    name: str,
    method: str = "rbnn",
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: int | None = None,
    **options: Any,
) -> nn.Module:
    """The network ``name``, binarized by ``method`` (``float``: its float twin).  ``options`` are the method's."""
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    check_method(method, options)
    if num_classes < 2 or in_channels < 1:
        raise ConfigError(f"at least 2 classes and 1 input channel expected, got {num_classes} and {in_channels}")
    entry = MODELS[name]
    size = image_size or entry.image_size
    model = entry.build(Bricks(method, options, num_classes, in_channels, size))
    show_example(model, torch.zeros(1, in_channels, size, size))
    return model
