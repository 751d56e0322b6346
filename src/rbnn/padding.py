"""Convolutions with their own forward: whether it only pads, such as "same" padding with a stride, or only computes
another weight, such as a standardised one.  Both are found by trying."""

import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Sides = list[tuple[int, int]]
"""Padding before and after, of height and width, or of a length."""


def with_weight(layer: nn.Module, kind: type[nn.Module], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What the forward of ``kind`` makes of ``x`` with this weight and the other attributes of ``layer``."""
    stand_in = kind.__new__(kind)
    vars(stand_in).update(vars(layer) | {"_parameters": {"weight": weight, "bias": bias}})
    made: Tensor = kind.forward(stand_in, x)
    return made


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
            wanted = with_weight(layer, kind, x, weight, bias)
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


class _Convolutions(TorchFunctionMode):
    """Writes down the arguments and results of convolutions."""

    NAMES = "input", "weight", "bias", "stride", "padding", "dilation", "groups"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[dict[str, Any], Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in ("conv1d", "conv2d"):
            self.seen.append((dict(zip(self.NAMES, args, strict=False)) | (kwargs or {}), made))
        return made


@torch.no_grad()
def only_weighs(layer: nn.Conv1d | nn.Conv2d, kind: type[nn.Module]) -> bool:
    """Whether the forward of ``kind`` convolves its input as an ordinary layer does, but with a weight that it computes
    from the layer's and that ascends with it in each filter: a standardised or scaled weight, or its signs.  A method
    that takes signs of the layer's weight can stand in for that."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _ascends(layer, kind)
    except Exception:  # anything may happen in a forward that was written for other numbers
        return False


def _ascends(layer: nn.Conv1d | nn.Conv2d, kind: type[nn.Module]) -> bool:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(layer.weight.shape, generator=generator).to(layer.weight)
    sides = [gap * (taps - 1) + 1 for taps, gap in zip(layer.kernel_size, layer.dilation, strict=True)]
    x = torch.randn((1, layer.in_channels, *sides), generator=generator).to(layer.weight)
    stand_in = kind.__new__(kind)
    vars(stand_in).update(vars(layer) | {"_parameters": layer._parameters | {"weight": weight}})
    with _Convolutions() as convolutions:
        made = kind.forward(stand_in, x)
    ((given, result),) = convolutions.seen
    plain = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1} | given
    ours = {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}
    one_for_all = [plain[name] == each or {plain[name]} == set(each) for name, each in ours.items() if name != "groups"]
    used = plain["weight"]
    same = made is result and given["input"] is x and plain["bias"] is layer.bias and plain["groups"] == layer.groups
    if not same or not all(one_for_all) or used.shape != weight.shape:
        return False
    filters = used.flatten(1).gather(1, weight.flatten(1).argsort(1))
    slack = 1e-5 * filters.abs().amax(1, keepdim=True)
    return bool((filters.diff(dim=1) >= -slack).all() and (filters[:, -1:] - filters[:, :1] > slack).all())
