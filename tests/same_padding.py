"""Convolutions with their own forward, as in public networks."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def total(side: int, kernel: int, stride: int, dilation: int) -> int:
    return max((math.ceil(side / stride) - 1) * stride + (kernel - 1) * dilation + 1 - side, 0)


class SameByFunction(nn.Conv2d):
    """TensorFlow's "same": an odd padding pixel goes to the end, also with a stride."""

    def forward(self, x: Tensor) -> Tensor:
        down, right = (
            total(*each) for each in zip(x.shape[-2:], self.kernel_size, self.stride, self.dilation, strict=True)
        )
        if down or right:
            x = F.pad(x, [right // 2, right - right // 2, down // 2, down - down // 2])
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class SameByModule(nn.Conv2d):
    """The padding is a module that was created for one size."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.static_padding = nn.ZeroPad2d((0, 1, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.static_padding(x))


class ByConvForward(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(F.pad(input, (2, 0, 0, 0)), weight, bias)


class Causal(nn.Conv1d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(F.pad(input, ((self.kernel_size[0] - 1) * self.dilation[0], 0)))


class Standardised(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Gained(nn.Conv2d):
    """A standardised weight with a learned gain, as in networks without norms."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gain = nn.Parameter(torch.full((self.out_channels, 1, 1, 1), 0.7))

    def forward(self, x: Tensor) -> Tensor:
        norm = F.batch_norm(self.weight.view(1, self.out_channels, -1), None, None, self.gain.view(-1), None, True)
        return self._conv_forward(x, norm.view_as(self.weight), self.bias)


class OfSigns(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.sign() * self.weight.abs().mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, stride=self.stride, padding=self.padding)


class Counting(nn.Conv2d):
    """Keeps a running mean of what it sees."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        return F.conv2d(x, self.weight - self.weight.mean(), self.bias, self.stride, self.padding)


class Plain(nn.Conv2d):
    """Only calls torch, and does not look at the padding mode."""

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Masked(nn.Conv2d):
    """Sees only what is above and on the left."""

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.ones_like(self.weight).flatten(2).triu_().view_as(self.weight)
        mask[:, :, 1:] = 0
        return self._conv_forward(x, self.weight * mask, self.bias)


class Flipped(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, -self.weight, self.bias)


class Scaled(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


class Reflecting(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(F.pad(input, (1, 1, 1, 1), mode="reflect"))


class Activated(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(torch.relu(input))


class Failing(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        assert input.shape[-1] == 224
        return super().forward(input)


PADDING: list[nn.Module] = [
    SameByFunction(16, 12, 3, 2), SameByFunction(16, 12, (2, 5), (3, 1)), SameByFunction(16, 12, 3, 2, dilation=2),
    SameByFunction(16, 12, 3, 2, groups=2), SameByFunction(16, 12, 3, bias=False), SameByFunction(16, 12, 1, 2),
    SameByModule(16, 12, 3, 2), SameByModule(16, 12, 2, padding=1), ByConvForward(16, 12, 3),
]  # fmt: skip
"""These only pad and convolve."""

MORE: list[nn.Module] = [kind(16, 12, 3, padding=1) for kind in (
    Masked, Flipped, Scaled, Reflecting, Activated, Failing,
)]  # fmt: skip
"""These also do something else, or cannot be called with random numbers."""

WEIGHED: list[nn.Module] = [
    Standardised(16, 12, 3, padding=1), Gained(16, 12, (3, 2), 2, groups=2), OfSigns(16, 12, 3, 2, bias=False),
]  # fmt: skip
"""These convolve with a weight that ascends with their own in each filter."""
