"""XNOR-Net (Rastegari et al., ECCV 2016)."""

from dataclasses import replace

import torch
from torch import Tensor

from rbnn.errors import ConfigError
from rbnn.functional import ScaledSigns, binarize, mean_magnitude
from rbnn.methods._form import BinaryForm
from rbnn.methods._method import SignInputs
from rbnn.methods._options import estimators, one_of
from rbnn.methods._registry import register_method


@register_method("xnor-net")
class XNORNet(SignInputs):
    """Signs times the mean magnitude of each filter.

        forward   α sign(w) ⊛ sign(x),  α_o = mean|w_o|
        backward  n (1 − 1/C) · g_j (1/n + α·1[|w_j| ≤ 1]) for the weight
                  1[|x| ≤ 1] for the activation;  n values and C input channels per filter

    After every step, in place: subtract the mean over the input channels at each kernel position, clamp to [−1, 1].

    gradient     of the weight: ``paper``: g_j (1/n + α·1[|w_j| ≤ 1]); ``release``, the default: that · n (1 − 1/C), as
                 in the authors' code with SGD, which hardly moves weights of magnitude α ≪ 1 without the factor (Adam
                 ignores a factor; with C = 1 it is n); ``exact``: the derivative of α b itself,
                 α·1[|w_j| ≤ 1] g_j + sign(w_j)/n · Σ_i g_i sign(w_i);  ``sgd``: exact · n (1 − 1/C), as in a public
                 PyTorch version
    k_map        multiply the output by K = mean_c|x| ⊛ box(1/(kh·kw)), with the layer's own stride, padding and
                 dilation; no gradient flows through K.  Off, as in both public implementations
    estimator    gradient estimator for both signs, in place of 1[|·| ≤ 1]
    """

    def __init__(
        self, weight: Tensor, *, gradient: str = "release", k_map: bool = False, estimator: str = "ste"
    ) -> None:
        super().__init__()
        one_of("xnor-net", "gradient", gradient, ("release", "paper", "exact", "sgd"))
        estimators("xnor-net", estimator=estimator)
        self.gradient, self.k_map, self.estimator = gradient, k_map, estimator
        self.plain_output = not k_map
        self.shape = tuple(weight.shape)

    def weight(self, w: Tensor) -> ScaledSigns:
        exact = ScaledSigns(binarize(w, self.derivative(self.estimator)), scale := mean_magnitude(w))
        if self.gradient == "exact":
            return exact
        signs, scale = exact.signs.detach(), scale.detach()
        soft = exact.product()
        if self.gradient in ("paper", "release"):
            soft = replace(exact, scale=scale).product() + w / w[0].numel()
        if self.gradient in ("release", "sgd"):
            # after_step leaves 1 − 1/C of a step in one weight.
            soft = soft * (w[0].numel() * (1 - 1 / w.shape[1] if w.shape[1] > 1 else 1))
        return ScaledSigns(signs, scale, soft=soft)

    def output(self, y: Tensor, x: Tensor) -> Tensor:
        if not self.k_map:
            return y
        k = self.magnitudes(x)
        if len(self.shape) > 2 and k.shape[2:] != y.shape[2:]:  # a linear layer has one K for all outputs
            raise ConfigError(
                f"K has the size {tuple(k.shape[2:])}, but the output {tuple(y.shape[2:])}: give the transposed "
                "convolution an output_padding in place of an output_size"
            )
        return y * k

    @torch.no_grad()
    def magnitudes(self, x: Tensor) -> Tensor:
        """K: mean|x| at each position of the kernel, over the channels that the filter sees."""
        assert self.linear is not None, "the layer says how its kernel moves"
        filters, *window = self.shape
        groups = x.shape[1] // window[0] if len(window) > 1 else 1
        box = x.new_ones(groups, *window)
        k = self.linear(x.abs(), box / box[0].numel())
        return k.repeat_interleave(filters // groups, dim=1) if groups > 1 else k

    def binary_form(self, w: Tensor) -> BinaryForm:
        return replace(super().binary_form(w), magnitudes=self.k_map)

    @torch.no_grad()
    def after_step(self, w: Tensor) -> None:
        if w.shape[1] > 1:  # with one input channel the mean is the weight itself, and the result would be 0
            w.sub_(w.mean(dim=1, keepdim=True))
        w.clamp_(-1, 1)
