"""XNOR-Net (Rastegari et al., ECCV 2016)."""

import torch
from torch import Tensor

from rbnn.functional import binarize, estimator
from rbnn.methods._method import Method
from rbnn.methods._registry import register_method


@register_method("xnor-net")
class XNORNet(Method):
    """Signs times the mean magnitude of each filter.

        forward   α sign(w) ⊛ sign(x),  α_o = mean|w_o|
        backward  ∂(α b_j)/∂w:  α·1[|w_j| ≤ 1] g_j  +  sign(w_j)/n · Σ_i g_i sign(w_i)      (exact derivative of α)
                  1[|x| ≤ 1] for the activation

    After every step, in place: subtract the mean over the input channels at each kernel position, clamp to [−1, 1].
    The map K of input magnitudes is left out, as in both public implementations.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()

    def weight(self, w: Tensor) -> Tensor:
        magnitude = w.abs().flatten(1).mean(1).reshape(-1, *[1] * (w.dim() - 1))
        return magnitude * binarize(w, estimator("ste", 1.0, 1.0))

    def activation(self, x: Tensor) -> Tensor:
        return binarize(x, estimator("ste", 1.0, 1.0))

    @torch.no_grad()
    def after_step(self, w: Tensor) -> None:
        if w.shape[1] > 1:  # with one input channel the mean is the weight itself, and nothing would be left
            w.sub_(w.mean(dim=1, keepdim=True))
        w.clamp_(-1, 1)
