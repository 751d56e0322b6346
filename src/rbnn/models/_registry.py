"""Networks by name.  The name of a network is the name of its function."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rbnn import plugins
from rbnn.errors import ConfigError, UnknownName
from rbnn.methods import check_method
from rbnn.models._after_add import ACTIVATIONS, Join, create_activation
from rbnn.models._shortcuts import SHORTCUTS, create_shortcut
from rbnn.nn import BinaryConv2d, show_example
from rbnn.text import quoted

OWN = "own"
"""The shortcut with which a network was published."""
NARROWEST, WIDEST = 0.125, 16


@dataclass(frozen=True)
class Bricks:
    """The parts of a network: binary layers with hardtanh or another activation, or ``torch.nn``'s convolutions with
    ReLU for the float twin."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    num_classes: int = 10
    in_channels: int = 3
    image_size: int = 32
    activation_name: str = "hardtanh"
    shortcut_name: str = OWN
    width: float = 1.0
    used: set[str] = field(default_factory=set)
    """The options that the network used."""

    @property
    def binary(self) -> bool:
        return self.method != "float"

    def channels(self, published: int) -> int:
        """The number of channels of a layer that was published with ``published``: an even number."""
        self.used.add("width")
        return max(2, 2 * round(published * self.width / 2))

    def conv(self, in_channels: int, out_channels: int, kernel: int, stride: int = 1) -> nn.Module:
        """A convolution without bias that is binary unless the network is a float twin."""
        shape = in_channels, out_channels, kernel, stride, kernel // 2
        if self.binary:
            return BinaryConv2d(*shape, bias=False, method=self.method, options=self.options)
        return nn.Conv2d(*shape, bias=False)

    def activation(self, channels: int = 1) -> nn.Module:
        """The activation that the user chose, with learned numbers for each of ``channels``; 1 shares them."""
        self.used.add("activation")
        return create_activation(self.activation_name, channels, self.binary)

    def join(self, channels: int = 1) -> Join:
        """The activation after a sum of branch and shortcut."""
        return Join(self.activation(channels))

    def shortcut(self, in_channels: int, out_channels: int, stride: int, own: Callable[[], nn.Module]) -> nn.Module:
        """The shortcut of a block: ``own()`` if the size or channels change and the user chose nothing else."""
        self.used.add("shortcut")
        if self.shortcut_name != OWN:
            return create_shortcut(self.shortcut_name, in_channels, out_channels, stride)
        return nn.Identity() if stride == 1 and in_channels == out_channels else own()


Build = Callable[[Bricks], nn.Module]


@dataclass(frozen=True)
class Entry:
    """A registered network."""

    build: Build
    image_size: int

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.build.__doc__ or "").strip().partition("\n")[0]


MODELS: dict[str, Entry] = {}


def register_model(image_size: int) -> Callable[[Build], Build]:
    """Register a network under its function's name, with ``-`` for ``_``.  It is meant for ``image_size`` pixels."""

    def register(build: Build) -> Build:
        name = build.__name__.replace("_", "-")
        plugins.claim("model", name, build, known=name in MODELS)
        MODELS[name] = Entry(build, image_size)
        return build

    return register


def model_names() -> list[str]:
    """All networks, including those of installed packages."""
    plugins.import_installed()
    return list(MODELS)


def check_width(width: float) -> None:
    """Raise if no network can be built with ``width`` times its channels."""
    if not isinstance(width, int | float) or not NARROWEST <= width <= WIDEST:
        raise ConfigError(f"width must be {NARROWEST} to {WIDEST}, got {quoted(width)}")


def create_model(
    name: str,
    method: str = "rbnn",
    num_classes: int = 10,
    in_channels: int = 3,
    image_size: int | None = None,
    *,
    activation: str = "hardtanh",
    shortcut: str = OWN,
    width: float = 1.0,
    **options: Any,
) -> nn.Module:
    """Build the network ``name``, binarized with ``method`` (``float`` builds the float twin).

    activation    after each batch norm or sum with a shortcut: ``hardtanh``, ``none``, ``prelu`` or ``rprelu``; the
                  float twin uses ReLU instead of the first two
    shortcut      where the size changes: ``own`` (as the network was published), ``option-a``, ``pool-pad``,
                  ``pool-conv`` or ``conv``
    width         multiplies the channels of every layer, rounded to even numbers
    options       options of the method
    """
    if name not in MODELS and name not in model_names():
        raise UnknownName("model", name, MODELS)
    check_method(method, options)
    for word, number in (("num_classes", num_classes), ("in_channels", in_channels)):
        if not isinstance(number, int):
            raise ConfigError(f"{word} must be an integer, got {number!r}")
    if num_classes < 2 or in_channels < 1:
        raise ConfigError(
            f"num_classes must be at least 2 and in_channels at least 1, got {num_classes} and {in_channels}"
        )
    if activation not in ACTIVATIONS:
        raise UnknownName("activation", activation, ACTIVATIONS)
    if shortcut not in (OWN, *SHORTCUTS):
        raise UnknownName("shortcut", shortcut, (OWN, *SHORTCUTS))
    check_width(width)
    entry = MODELS[name]
    size = image_size or entry.image_size
    bricks = Bricks(method, options, num_classes, in_channels, size, activation, shortcut, width)
    model = entry.build(bricks)
    if shortcut != OWN and "shortcut" not in bricks.used:
        raise ConfigError(f"{name} has no shortcuts: leave out shortcut = {shortcut!r}")
    if activation != "hardtanh" and "activation" not in bricks.used:
        raise ConfigError(f"{name} has a fixed activation: leave out activation = {activation!r}")
    if width != 1 and "width" not in bricks.used:
        raise ConfigError(f"{name} has fixed channels: leave out width = {width}")
    show_example(model, torch.zeros(1, in_channels, size, size))
    return model
