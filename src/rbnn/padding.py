"""Convolutions whose forward pads by itself, such as "same" padding with a stride: what it pads, found by trying."""

import warnings
from collections.abc import Iterator, Sequence
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbnn.own_forward import try_forward

Sides = list[tuple[int, int]]
"""Padding before and after, of height and width, or of a length."""


def only_pads(layer: nn.Conv1d | nn.Conv2d, kind: type[nn.Module]) -> bool:
    """Whether the forward of ``kind`` pads with zeros and convolves, and does nothing else, at some odd and even
    sizes."""
    reaches = [gap * (taps - 1) + 1 for taps, gap in zip(layer.kernel_size, layer.dilation, strict=True)]
    sizes = [[reach + 3 * step + more for reach, step in zip(reaches, layer.stride, strict=True)] for more in (0, 1, 4)]
    return all(padding_of(layer, kind, size) is not None for size in sizes)


@torch.no_grad()
def padding_of(layer: nn.Conv1d | nn.Conv2d, kind: type[nn.Module], size: Sequence[int]) -> Sides | None:
    """What the forward of ``kind`` pads around inputs of this height and width, or of this length.  None if it does not
    compute what an ordinary convolution of the padded input computes."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    channels = 2 * layer.groups
    x, weight, bias = random(2, channels, *size), random(channels, 2, *layer.kernel_size), random(channels)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = try_forward(kind, layer, x, weight=weight, bias=bias)
            if wanted.dim() != x.dim():
                return None
    except Exception:  # anything may happen in a forward that was written for other numbers
        return None
    convolve = F.conv1d if x.dim() == 3 else F.conv2d
    possible = [
        list(_possible(side, *each))
        for side, *each in zip(size, wanted.shape[2:], layer.kernel_size, layer.stride, layer.dilation, strict=True)
    ]
    for sides in product(*possible):
        padded = F.pad(x, [each for both in reversed(sides) for each in both])
        made = convolve(padded, weight, bias, layer.stride, 0, layer.dilation, layer.groups)  # type: ignore[arg-type]
        if made.shape == wanted.shape and torch.allclose(made, wanted.to(made.dtype), 1e-9, 1e-9):
            return list(sides)
    return None


def _possible(inputs: int, outputs: int, kernel: int, stride: int, dilation: int) -> Iterator[tuple[int, int]]:
    """The paddings before and after with which a convolution has this many outputs."""
    total = (outputs - 1) * stride + dilation * (kernel - 1) + 1 - inputs
    yield from ((before, max(total - before, 0)) for before in range(total + stride))
