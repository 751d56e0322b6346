"""The torch operators of the compiled training kernels: ``torch.ops.rbnn``.

Because they are operators, torch.compile keeps them in its graph.  Each has a function that returns only the shapes of
its results, and a gradient, which is also an operator.  On a CPU, for dense float32 tensors, the fused kernels of
``rbnn._core`` work on the memory of the tensors.  For other tensors, plain torch computes the same, if the operator
supports them at all.

A tent, ``d sign/dx = max(peak − slope·|x|, 0) (1 − tanh²(steepness·x))`` for ``|x| ≤ support``, is a tensor with four
numbers.
"""

from rbnn.functional.kernels._memory import channels_last, fusable
from rbnn.functional.kernels.branches import branch, evaluated_branch
from rbnn.functional.kernels.convolution import sign_conv
from rbnn.functional.kernels.joins import add_hardtanh, norm_add_hardtanh
from rbnn.functional.kernels.signs import standardised_tent_sign, tent_sign
from rbnn.functional.kernels.weights import rotated_signs, rotated_weight

__all__ = [
    "add_hardtanh", "branch", "channels_last", "evaluated_branch", "fusable", "norm_add_hardtanh", "rotated_signs",
    "rotated_weight", "sign_conv", "standardised_tent_sign", "tent_sign",
]  # fmt: skip
