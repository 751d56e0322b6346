"""The interface of all binarization methods."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rbnn.errors import ConfigError, NotBinary
from rbnn.functional import Binarization, Derivative, Number, ScaledSigns, estimator, sharpness_and_gain, sign
from rbnn.methods._form import BinaryForm
from rbnn.methods._origin import Origin, decoded, encoded

T_MIN, T_MAX = -2.0, 1.0
"""``t = 10^(T_MIN + e/E (T_MAX − T_MIN))``, the paper's range."""


class Method(nn.Module, ABC):
    """How one layer is binarized.  Each layer has its own instance, which holds its rotations, scales and moments, so
    that ``state_dict``, ``.to()`` and DistributedDataParallel just work.

    A subclass defines ``weight``, and ``binarization`` or ``activation``; the rest has defaults.  Its constructor takes
    the layer's initial weight and keyword options, which are the keys that ``options`` in a recipe may set.
    """

    origin: Origin | None = None
    """What it was created with; None if it was created without the registry."""

    _progress: float | None = None

    penalty_asked = False
    """Whether the loss of this step includes the penalty; the schedule refuses a step without it."""

    version_of_weight: int | None = None
    """torch's count of writes to the weight at the optimiser's last step; None before it, and after loading."""

    linear: Callable[[Tensor, Tensor], Tensor] | None = None
    """The layer's map of (values, weight) to outputs, without bias, with its stride, padding, dilation and groups.  The
    layer sets it."""

    needs_example = False
    """Whether the method needs one forward pass before its parameters are complete."""

    plain_output = True
    """Whether ``output`` returns the layer's result unchanged; False for a class with its own ``output``."""

    inputs_near_one = False
    """Whether the method compares inputs with its own threshold, so that they must not be arbitrarily small."""

    def __init__(self) -> None:
        super().__init__()
        self._progress_in_graphs = torch.zeros((), dtype=torch.float64, device="cpu")

    @property
    def progress(self) -> float | None:
        """e/E at the last ``begin_epoch``; None until the schedule has been stepped."""
        return self._progress

    @progress.setter
    def progress(self, value: float | None) -> None:
        self._progress = value
        self._progress_in_graphs.fill_(value or 0.0)

    def now(self) -> Number:
        """e/E for the forward pass; 0 for a layer that was never stepped."""
        return self._progress_in_graphs if torch.compiler.is_compiling() else self.progress or 0.0

    def before_sign(self, w: Tensor) -> Tensor:
        """The values whose signs become bits, in the shape of ``w``.  Angles and errors are measured here."""
        return w

    @abstractmethod
    def weight(self, w: Tensor) -> ScaledSigns | Tensor:
        """The binarized weight, differentiable: signs and their scale.  A weight of another form, such as a sum of
        several bases, is one tensor, and the layer computes with floats."""

    def binarization(self) -> Binarization | None:
        """How activations become signs, if they are exactly ±1: the layer may then compute with bits.  None if they are
        something else, which ``activation`` defines."""
        return None

    def activation(self, x: Tensor) -> Tensor:
        """The binarized activation, differentiable."""
        plain = self.binarization()
        if plain is None:
            raise ConfigError(
                f"the method {type(self).__name__} does not say how activations become signs: define its method "
                "binarization or activation"
            )
        return plain(x)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse a class that defines an activation and inherits a binarization: layers would use one or the other,
        depending on their kernels."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        if "output" in own and "plain_output" not in own:
            cls.plain_output = False
        if "activation" in own and "binarization" not in own and cls.binarization is not Method.binarization:
            raise ConfigError(
                f"{cls.__name__} defines an activation but inherits a binarization: define a binarization that returns "
                "None, or one that computes the same"
            )

    def output(self, y: Tensor, x: Tensor) -> Tensor:
        """The final output for the layer's output ``y``, still without bias, and the input ``x`` (before
        binarization)."""
        return y

    def penalty(self, w: Tensor) -> Tensor | None:
        """A term for the loss, or None."""
        return None

    def see_network(self, model: nn.Module) -> None:
        """Called once by the schedule, for a method that needs the network around its layer."""

    def inherit(self, before: "Method") -> None:
        """Take over from the layer's previous method what a restart does not change."""

    def continue_from(self, before: "Method") -> bool:
        """Continue from ``before``, the method of a trained layer: take over all its tensors and start at epoch 0.
        Returns False and changes nothing if it is another method or its tensors have other shapes."""
        own, theirs = self.state_dict(), before.state_dict()
        shapes = [{name: t.shape for name, t in each.items() if name != "_extra_state"} for each in (own, theirs)]
        if type(before) is not type(self) or shapes[0] != shapes[1]:
            return False
        progress = self.progress
        self.load_state_dict(theirs, strict=False)  # options may differ
        self.progress = progress
        return True

    def keep_signs(self) -> None:
        """Use the signs of the latent weight itself from now on, also when training begins.  This is for weights that
        were made from known signs."""

    def begin_epoch(self, w: Tensor, epoch: float, epochs: int) -> None:
        """What the schedule does at the start of an epoch, without gradients: rotation, sharpness, annealing.
        ``epoch`` may be a fraction; ``epoch/epochs`` is the paper's e/E."""
        self.progress = epoch / epochs

    def after_step(self, w: Tensor) -> None:
        """What happens after each step of the optimiser, without gradients: clipping, moments."""

    def derivative(self, name: str, low: float = T_MIN, high: float = T_MAX) -> Derivative:
        """The estimator ``name`` at the current e/E, or at 0 for a layer that was never stepped."""
        return estimator(name, *sharpness_and_gain(name, self.now(), low, high))

    @torch.no_grad()
    def signs(self, w: Tensor) -> Tensor:
        """The current ±1 weights."""
        return sign(self.before_sign(w))

    @torch.no_grad()
    def binary_form(self, w: Tensor) -> BinaryForm:
        """The layer at inference, for the export.  Raises NotBinary with the reason if there is no such form.

        The default has the signs and the scale of ``weight``, and the signs of the inputs.  A method that does more
        (another threshold, several bases, its own ``output``) overrides this; the export notices what it forgets.
        """
        weight = self.weight(w)
        if not isinstance(weight, ScaledSigns):
            raise NotBinary(
                f"the weights of {type(self).__name__} are not signs with a scale: "
                "define its binary_form, or keep the layer float"
            )
        scale = weight.signs.new_ones(()) if weight.scale is None else weight.scale
        factors = scale.expand(len(w))[None].cpu().double().numpy()
        return BinaryForm(weight.signs[None].to(torch.int8).cpu().numpy(), factors)

    def measures(self) -> dict[str, float]:
        """Numbers of this method worth logging for each layer, such as α."""
        return self.figures()

    def figures(self) -> dict[str, float]:
        """The former name of ``measures``, so that older methods still log."""
        return {}

    def decay_factors(self) -> dict[str, float]:
        """Weight decay of the method's own parameters, as a multiple of the decay of weights.  Parameters that are not
        named have no decay with ``decay = "weights"``, and the decay of weights with ``"all"``.  ``layer.weight`` names
        the weight of the layer, whose factor is otherwise 1."""
        return {}

    def extra_repr(self) -> str:
        return "" if self.origin is None else ", ".join(f"{k}={v!r}" for k, v in self.origin.options.items())

    # The state from ``begin_epoch``, and what the layer was created with, must survive a checkpoint.
    def get_extra_state(self) -> Tensor:
        return encoded(self.origin, self.progress)

    def set_extra_state(self, state: Any) -> None:
        self.version_of_weight = None
        self.progress = decoded(state)[1]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Tensor],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        *rest: Any,
    ) -> None:
        key = prefix + "_extra_state"
        if self.origin is not None and key in state_dict:
            difference = self.origin.difference(decoded(state_dict[key])[0])
            if difference:  # an unexpected key: torch refuses it unless strict=False
                unexpected_keys.append(f"{key} ({difference}: create it with the same, or load with strict=False)")
        super()._load_from_state_dict(  # type: ignore[no-untyped-call]
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, *rest
        )


class SignInputs(Method):
    """A method whose inputs are plain signs, with an ``estimator`` for their derivative."""

    estimator: str

    def binarization(self) -> Binarization:
        return Binarization(self.derivative(self.estimator))
