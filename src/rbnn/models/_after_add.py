"""What follows the sum of a shortcut and its branch, or a layer without shortcut."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbnn.functional import BranchEnd, add_hardtanh, norm_add_hardtanh, norm_add_hardtanh_possible
from rbnn.nn import BinaryConv2d, has_hooks

ACTIVATIONS = ("hardtanh", "none", "prelu", "rprelu")
SLOPE = 0.25
"""Initial slope for negative values."""


class RPReLU(nn.Module):
    """``prelu(x + shift_in; weight) + shift_out``, three learned numbers per channel (ReActNet's)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shift_in = nn.Parameter(torch.zeros(channels))
        self.weight = nn.Parameter(torch.full((channels,), SLOPE))
        self.shift_out = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        shape = (-1, *[1] * (x.dim() - 2))
        moved = F.prelu(x + self.shift_in.view(shape), self.weight)
        return moved + self.shift_out.view(shape)


def create_activation(name: str, channels: int, binary: bool) -> nn.Module:
    """The activation ``name`` for the given number of channels.  A float twin has ReLU where the binary network has
    hardtanh or none, because without any activation it would be one linear map."""
    if name == "prelu":
        return nn.PReLU(channels, SLOPE)
    if name == "rprelu":
        return RPReLU(channels)
    if not binary:
        return nn.ReLU()
    return nn.Hardtanh() if name == "hardtanh" else nn.Identity()


class Join(nn.Module):
    """``activation(branch + shortcut)``; without a hardtanh it overwrites the branch."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        if self._hardtanh:
            return add_hardtanh(branch, shortcut)
        total = branch.add_(shortcut)
        return total.relu_() if type(self.activation) is nn.ReLU else self.activation(total)  # type: ignore[no-any-return]

    @property
    def _hardtanh(self) -> bool:
        return type(self.activation) is nn.Hardtanh

    def after(self, conv: nn.Module, norm: nn.Module, x: Tensor, shortcut: Tensor) -> Tensor:
        """The same for ``norm(conv(x))``, with one kernel if there is one."""
        end = None if has_hooks(conv, norm, self, self.activation) else self._end()
        whole = conv.branch(x, norm, shortcut, end) if isinstance(conv, BinaryConv2d) and end is not None else None
        if whole is not None:
            return whole
        branch = conv(x)
        if self._hardtanh and end is not None and norm_add_hardtanh_possible(branch, norm, shortcut):
            return norm_add_hardtanh(branch, norm, shortcut)  # type: ignore[arg-type]
        return self(norm(branch), shortcut)  # type: ignore[no-any-return]

    def _end(self) -> BranchEnd | None:
        """The activation in the form that a kernel takes; None if there is no kernel for it."""
        activation = self.activation
        if self._hardtanh:
            return BranchEnd()
        if isinstance(activation, RPReLU):
            return BranchEnd(activation.weight, activation.shift_in, activation.shift_out)
        if type(activation) is nn.PReLU and activation.num_parameters > 1:
            return BranchEnd(activation.weight)
        return None
