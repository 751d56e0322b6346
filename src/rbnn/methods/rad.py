"""RAD, also called BNN-DL: Regularizing Activation Distribution (Ding et al., CVPR 2019)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rbnn.errors import ConfigError
from rbnn.functional.batch_norm import BatchNorm
from rbnn.methods._options import between
from rbnn.methods._registry import register_method
from rbnn.methods.bnn import BNN

VARIANCE_FLOOR = 1e-10


def distribution_loss(x: Tensor) -> Tensor:
    """``mean_c (2 − |μ| − σ)₊² + mean_c (σ − 4)₊² + mean_c (μ² − σ²)₊``, μ and σ per channel over all else (biased).

    Its parts: the gradient of hardtanh does not match, activations saturate, all signs of a channel are the same."""
    others = [dim for dim in range(x.dim()) if dim != 1]
    mean = x.mean(others)
    variance = x.var(others, correction=0) + VARIANCE_FLOOR
    std = variance.sqrt()
    mismatch = (2 - mean.abs() - std).clamp_min(0).square()
    saturation = (std - 4).clamp_min(0).square()
    degeneration = (mean.square() - variance).clamp_min(0)
    return (mismatch + saturation + degeneration).mean()


@register_method("rad")
class RAD(BNN):
    """Plain signs as in BNN, and a penalty on the distribution of batch-norm outputs.

        forward   sign(w) ⊛ sign(x)
        backward  identity for the weight, which is clamped to [−1, 1]; 1[|x| ≤ 1] for the activation
        penalty   λ · mean over layers of L(x)
                  x is the output of the batch norm after the layer, before hardtanh
                  L = mean_c (2 − |μ| − σ)₊² + mean_c (σ − 4)₊² + mean_c (μ² − σ²)₊

    The form is that of the authors' code.  The batch norm of a layer is the next one registered after it, before
    another convolution or linear layer.  It must have a learned gamma; otherwise σ would stay 1.  The schedule lets
    the method register a hook on that batch norm, which computes L in each forward pass of training.  If a
    shortcut is added after the batch norm, L still sees only the batch norm's output.

    strength            λ
    until               fraction of the training after which the penalty is off
    estimator           gradient estimator for the activation's sign
    weight_estimator    gradient estimator for the weight's sign
    """

    def __init__(
        self,
        weight: Tensor,
        *,
        strength: float = 2.0,
        until: float = 60 / 65,
        estimator: str = "ste",
        weight_estimator: str = "identity",
    ) -> None:
        super().__init__(weight, estimator=estimator, weight_estimator=weight_estimator)
        between("rad", "strength", strength, 0, float("inf"))
        between("rad", "until", until, 0, 1)
        self.strength, self.until = strength, until
        self._filters = weight.shape[0]
        self._share = 1.0
        self._hook: RemovableHandle | None = None
        self._found: Tensor | None = None
        self._on = True

    def see_network(self, model: nn.Module) -> None:
        methods = [module for module in model.modules() if isinstance(module, RAD)]
        norms = [norm for method in methods if (norm := method.norm_behind(model)) is not None]
        if not norms:
            raise ConfigError(
                "method 'rad' penalises the outputs of batch norms that follow binary layers, but there are none: add "
                "batch norms, or choose another method"
            )
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._share = None, 1 / len(norms)
        norm = self.norm_behind(model)
        if norm is not None:
            if not norm.affine:
                raise ConfigError("method 'rad' needs batch norms with a learned gamma: set affine = True")
            self._hook = norm.register_forward_hook(self._measure)

    def norm_behind(self, model: nn.Module) -> BatchNorm | None:
        """The batch norm that follows the layer of this method."""
        modules = iter(model.modules())
        for module in modules:
            if getattr(module, "method", None) is self:
                break
        for module in modules:
            if isinstance(module, BatchNorm):
                return module if module.num_features == self._filters else None
            if isinstance(module, nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
                return None
        return None

    def _measure(self, norm: nn.Module, inputs: Any, out: Tensor) -> None:
        if norm.training and torch.is_grad_enabled():
            # A copy, because the network may overwrite the output of its batch norm.
            self._found = distribution_loss(out.clone()) if self._on else None

    def penalty(self, w: Tensor) -> Tensor | None:
        return None if self._found is None else self.strength * self._share * self._found

    def begin_epoch(self, w: Tensor, epoch: float, epochs: int) -> None:
        super().begin_epoch(w, epoch, epochs)
        self._found = None
        self._switch()

    def set_extra_state(self, state: Any) -> None:
        super().set_extra_state(state)
        self._switch()

    def _switch(self) -> None:
        self._on = self.progress is None or self.progress < self.until

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_found": None}  # part of one step's graph, which cannot be copied
