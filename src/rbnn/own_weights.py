"""Convolutions whose forward computes another weight from their own, such as a standardised one: found by trying."""

import warnings
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from rbnn.own_forward import try_forward


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
    with _Convolutions() as convolutions:
        made = try_forward(kind, layer, x, weight=weight)
    ((given, result),) = convolutions.seen
    plain = {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1} | given
    ours = {name: getattr(layer, name) for name in ("stride", "padding", "dilation", "groups")}
    one_for_all = [plain[name] == each or {plain[name]} == set(each) for name, each in ours.items() if name != "groups"]
    used = plain["weight"]
    same = made is result and given["input"] is x and plain["bias"] is layer.bias and plain["groups"] == layer.groups
    if not same or layer.padding_mode != "zeros" or not all(one_for_all) or used.shape != weight.shape:
        return False
    filters = used.flatten(1).gather(1, weight.flatten(1).argsort(1))
    slack = 1e-5 * filters.abs().amax(1, keepdim=True)
    return bool((filters.diff(dim=1) >= -slack).all() and (filters[:, -1:] - filters[:, :1] > slack).all())
