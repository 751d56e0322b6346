"""The speed of the kernels: single binary convolutions, compared with the limit of the core."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn import _core
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.session import Session

SHAPES = ((64, 56), (128, 28), (256, 14), (512, 7), (128, 32), (16, 32), (32, 16), (64, 8))
"""Channels and side of the 3×3 layers of ResNet-18 @224, VGG-small and ResNet-20 @32."""


@dataclass(frozen=True)
class Speed:
    """One layer with one set of kernels."""

    kernels: str
    channels: int
    side: int
    milliseconds: float
    gmacs: float
    """Multiply-adds per second, in 10⁹."""
    limit: float
    """What xor + popcount achieve on this core in registers alone, in the same unit."""

    @property
    def share(self) -> float:
        """The share of the limit."""
        return self.gmacs / self.limit


def layer(channels: int, side: int) -> Graph:
    """A 3×3 binary layer with everything fused: scale and shift, shortcut, hardtanh, float and packed output."""
    rng = np.random.default_rng(0)
    shape = side, side, channels
    buffers = {
        "x": Buffer("float", shape),
        "x.bits": Buffer("bits", shape),
        "y": Buffer("float", shape),
        "y.bits": Buffer("bits", shape),
    }
    tensors: dict[str, NDArray[Any]] = {
        "weight": np.packbits(rng.integers(0, 2, (channels, 3, 3, channels), np.uint8), axis=-1, bitorder="little"),
        "scale": rng.normal(size=channels).astype(np.float32),
        "shift": rng.normal(size=channels).astype(np.float32),
    }
    operations = [
        Operation("pack", "pack", {"x": "x"}, {"bits": "x.bits"}),
        Operation(
            "binary_conv",
            "conv",
            {"x": "x.bits", "residual": "x"},
            {"float": "y", "bits": "y.bits"},
            tensors,
            {"kernel": [3, 3], "padding": [1, 1], "activation": ["hardtanh", -1.0, 1.0]},
        ),
    ]
    return Graph(Input("x"), "y", buffers, operations)


def measure(kernels: str, channels: int, side: int, limit: float, threads: int = 1, seconds: float = 0.2) -> Speed:
    """The best time of a layer within about ``seconds``."""
    session = Session(layer(channels, side), threads, kernels)
    image = np.random.default_rng(1).normal(size=(1, channels, side, side)).astype(np.float32)
    once = session.profile(image, repeats=3)[1][1]
    best = session.profile(image, repeats=int(max(seconds / max(once, 1e-6), 3)))[1][1]
    work = channels * channels * 9 * side * side
    return Speed(kernels, channels, side, 1e3 * best, work / best / 1e9, limit / 1e9)


def usable_kernels() -> list[str]:
    """Kernels that this machine can run, best first."""
    return [name for name, supported in _core.kernels() if supported]
