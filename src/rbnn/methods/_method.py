"""The one interface of every binarization method."""

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
    """How one layer is binarized.  One instance per layer: its rotations, scales and moments live here, so that
    ``state_dict``, ``.to()`` and DistributedDataParallel just work.

    A subclass gives ``weight``, and ``binarization`` or ``activation``; the rest has defaults.  Its constructor takes
    the layer's initial weight and keyword options; the keywords are what ``options`` in a recipe may set.
    """

    origin: Origin | None = None
    """What it was made with; None for one that was made without the registry."""

    _progress: float | None = None

    penalty_asked = False
    """Whether the loss of this step has the penalty in it; the schedule refuses a step without."""

    version_of_weight: int | None = None
    """torch's count of writes to the weight as of the optimiser's last step; None before it, and after loading."""

    linear: Callable[[Tensor, Tensor], Tensor] | None = None
    """The layer's own map of (values, weight) to outputs, without bias; the layer sets it.  It knows stride, padding,
    dilation and groups."""

    needs_example = False
    """Whether the method has to see one forward pass before its parameters are complete."""

    plain_output = True
    """Whether ``output`` is what the layer computes; False for a class that has an ``output`` of its own."""

    inputs_near_one = False
    """Whether the method compares inputs with a threshold of its own, so that they must not be arbitrarily small."""

    def __init__(self) -> None:
        super().__init__()
        self._progress_in_graphs = torch.zeros((), dtype=torch.float64, device="cpu")

    @property
    def progress(self) -> float | None:
        """e/E as of the last ``begin_epoch``; None until the schedule has been stepped."""
        return self._progress

    @progress.setter
    def progress(self, value: float | None) -> None:
        self._progress = value
        self._progress_in_graphs.fill_(value or 0.0)

    def now(self) -> Number:
        """e/E for what the forward pass computes; 0 for a layer that was never stepped."""
        return self._progress_in_graphs if torch.compiler.is_compiling() else self.progress or 0.0

    def before_sign(self, w: Tensor) -> Tensor:
        """The values whose signs become bits, in the shape of ``w``.  Angles and errors are measured here."""
        return w

    @abstractmethod
    def weight(self, w: Tensor) -> ScaledSigns | Tensor:
        """The binarized weight, differentiable: signs and their scale; or, where it is something else, such as a sum of
        several bases, one tensor, and the layer computes with floats."""

    def binarization(self) -> Binarization | None:
        """How activations become signs, where they are ±1 and nothing else: the layer may then compute with bits.  None
        where they are more than that, and ``activation`` says what."""
        return None

    def activation(self, x: Tensor) -> Tensor:
        """The binarized activation, differentiable."""
        plain = self.binarization()
        if plain is None:
            raise ConfigError(
                f"the method {type(self).__name__} says how weights become signs, not activations: give it a "
                "binarization, or an activation of its own"
            )
        return plain(x)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuses an activation of one's own with the binarization of another class: layers would take the one or the
        other, as it suits their kernels."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        if "output" in own and "plain_output" not in own:
            cls.plain_output = False
        if "activation" in own and "binarization" not in own and cls.binarization is not Method.binarization:
            raise ConfigError(
                f"{cls.__name__} has an activation of its own and inherits a binarization: give it one that returns "
                "None, or that says the same"
            )

    def output(self, y: Tensor, x: Tensor) -> Tensor:
        """What becomes of the layer's output ``y``, still without bias, for the input ``x`` (before binarization)."""
        return y

    def penalty(self, w: Tensor) -> Tensor | None:
        """A term for the loss, or None."""
        return None

    def see_network(self, model: nn.Module) -> None:
        """Called once by the schedule, for a method that has to look beyond its layer: the network around it."""

    def inherit(self, before: "Method") -> None:
        """Takes over what a restart on the same layer does not change, from the method that was there."""

    def continue_from(self, before: "Method") -> bool:
        """Goes on where ``before``, the method of a trained layer, stood: all its tensors are taken over, and training
        begins anew at epoch 0.  False, and nothing is changed, where it is another method or its tensors have other
        shapes."""
        own, theirs = self.state_dict(), before.state_dict()
        shapes = [{name: t.shape for name, t in each.items() if name != "_extra_state"} for each in (own, theirs)]
        if type(before) is not type(self) or shapes[0] != shapes[1]:
            return False
        progress = self.progress
        self.load_state_dict(theirs, strict=False)  # options may be others
        self.progress = progress
        return True

    def keep_signs(self) -> None:
        """From now on the signs of the latent weight itself are the binary ones, also when training begins: for weights
        that were made from known signs."""

    def begin_epoch(self, w: Tensor, epoch: float, epochs: int) -> None:
        """What the schedule does between steps (no gradient): rotation, sharpness, annealing.  ``epoch`` may be a
        fraction; ``epoch/epochs`` is the paper's e/E."""
        self.progress = epoch / epochs

    def after_step(self, w: Tensor) -> None:
        """What follows each step of the optimiser (no gradient): clipping, moments."""

    def derivative(self, name: str, low: float = T_MIN, high: float = T_MAX) -> Derivative:
        """The estimator called ``name`` at the present e/E; at its start for a layer that was never stepped."""
        return estimator(name, *sharpness_and_gain(name, self.now(), low, high))

    @torch.no_grad()
    def signs(self, w: Tensor) -> Tensor:
        """The ±1 weights as of now."""
        return sign(self.before_sign(w))

    @torch.no_grad()
    def binary_form(self, w: Tensor) -> BinaryForm:
        """The layer at inference, for the export; NotBinary says why there is no such form.

        By default the signs and the scale of ``weight``, and inputs by their sign.  A method that does more (another
        threshold, several bases, an ``output`` of its own) says so here; what it forgets, the export notices.
        """
        weight = self.weight(w)
        if not isinstance(weight, ScaledSigns):
            raise NotBinary(
                f"{type(self).__name__} gives weights that are not signs and their scale: "
                "write binary_form for it, or keep the layer float"
            )
        scale = weight.signs.new_ones(()) if weight.scale is None else weight.scale
        factors = scale.expand(len(w))[None].cpu().double().numpy()
        return BinaryForm(weight.signs[None].to(torch.int8).cpu().numpy(), factors)

    def measures(self) -> dict[str, float]:
        """Numbers of this method worth logging for each layer, such as α."""
        return self.figures()

    def figures(self) -> dict[str, float]:
        """What ``measures`` was called before: methods of that time still log."""
        return {}

    def decay_factors(self) -> dict[str, float]:
        """Weight decay of the method's own parameters, as a multiple of the weights' own; those not named have
        none with ``decay = "weights"`` and the weights' own with ``"all"``.
        ``layer.weight`` names the weight of the layer, whose factor is else 1."""
        return {}

    def extra_repr(self) -> str:
        return "" if self.origin is None else ", ".join(f"{k}={v!r}" for k, v in self.origin.options.items())

    # What ``begin_epoch`` left behind, and what the layer was made with, must survive a checkpoint.
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
                unexpected_keys.append(f"{key} ({difference}: make it with the same, or load with strict=False)")
        super()._load_from_state_dict(  # type: ignore[no-untyped-call]
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, *rest
        )


class SignInputs(Method):
    """A method whose inputs are plain signs, with an ``estimator`` for their derivative."""

    estimator: str

    def binarization(self) -> Binarization:
        return Binarization(self.derivative(self.estimator))
