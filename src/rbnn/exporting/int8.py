"""Float layers in int8: integer weights with one step per filter, and a first layer that works on bytes.

    q ≈ w / step_o, rounded up or down to an integer,  step_o = max|w_o|/127

The weights are rounded in a copy of the torch model before it runs, so the packed network is compared with a torch
network with the same numbers.  In a first layer on bytes u, x = (u − 255 mean_c)/(255 std_c), so w/(255 std_c) is
rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rbnn.errors import ExportError
from rbnn.exporting.dispatch import called
from rbnn.exporting.draft import Array, Draft
from rbnn.exporting.trace import Step, Traced
from rbnn.packed.operations import Buffer, Operation

FORMS = ("float32", "int8")
LARGEST = 127

_FUNCTIONS = ("conv1d", "conv2d", "linear")


@dataclass(frozen=True)
class Rounding:
    """Which layers become int8, and how images are normalised."""

    stem: bool
    float_layers: bool
    mean: Array
    """255·mean, per channel."""
    std: Array
    """255·std, per channel."""

    @classmethod
    def of(cls, stem: str, float_layers: str, mean: Sequence[float], std: Sequence[float], channels: int) -> "Rounding":
        for word, form in (("stem", stem), ("float_layers", float_layers)):
            if form not in FORMS:
                raise ExportError(f"{word} must be one of {', '.join(FORMS)}, got {form!r}")
        sizes = {len(mean), len(std)}
        if stem == "int8" and not (sizes <= {1, channels} and all(each > 0 for each in std)):
            raise ExportError(
                f"an int8 stem works on images of bytes: it needs mean and std of the {channels} channels, "
                f"got {len(mean)} and {len(std)} numbers"
            )
        whole = [255 * np.broadcast_to(np.asarray(each, np.float64), channels) if stem == "int8" else np.zeros(0)
                 for each in (mean, std)]  # fmt: skip
        return cls(stem == "int8", float_layers == "int8", *whole)

    def pictures(self, images: Tensor) -> Tensor:
        """The nearest images that bytes can represent."""
        if not self.stem:
            return images
        if images.dim() != 4:
            raise ExportError(f"an int8 stem works on images of bytes, but the example is {tuple(images.shape)}")
        mean, std = (torch.from_numpy(each)[:, None, None] for each in (self.mean, self.std))
        return (((images.double() * std + mean).round().clamp(0, 255) - mean) / std).float()

    @property
    def rounds(self) -> bool:
        """Whether any weight is rounded."""
        return self.stem or self.float_layers

    def round_weights(self, traced: Traced) -> None:
        """Round the weights of the traced model, which is our copy, to those of the packed network."""
        first = self._stem(traced) if self.stem else None
        done: set[int] = set()
        for step in traced.steps:
            weight = _weight(traced.model, step)
            # Rounding has the largest effect in layers that read the images, so only ``stem`` rounds them.
            wanted = step is first if set(traced.images) & set(step.inputs) else self.float_layers
            if weight is None or id(weight) in done or not wanted:
                continue
            done.add(id(weight))
            with torch.no_grad():
                values = weight.double().numpy()
                factor = self.std[:, None, None] if step is first else 1.0
                whole, step_size = _rounded(values / factor)
                weight.copy_(torch.from_numpy(whole * _along(step_size, whole) * factor))

    def _stem(self, traced: Traced) -> Step:
        readers = [step for step in traced.steps if traced.images[0] in step.inputs]
        weight = _weight(traced.model, readers[0]) if len(readers) == 1 else None
        if weight is None or weight.dim() != 4 or weight.shape[1] != len(self.std):
            raise ExportError("an int8 stem needs a float convolution without groups as the only reader of the images")
        return readers[0]

    def apply(self, draft: Draft) -> None:
        """Turn the float convolutions of the draft, whose weights are already rounded, into int8."""
        for conv in list(draft.operations):
            if conv.kind != "float_conv":
                continue
            if conv.inputs["x"] in (draft.input, *draft.names):
                if self.stem:
                    self._on_bytes(draft, conv)
            elif self.float_layers:
                _store(conv, conv.tensors["weight"])
        if self.stem and not any(conv.kind == "int8_conv" for conv in draft.operations):
            raise ExportError(
                "an int8 stem needs numeric padding: 'same' with an even kernel is a separate padding operation"
            )

    def _on_bytes(self, draft: Draft, conv: Operation) -> None:
        shape = draft.buffers[draft.input].shape
        made = draft.new_buffer(f"{draft.input}.bytes", Buffer("bytes", shape))
        tensors = {"scale": self.std, "shift": self.mean}
        draft.operations.insert(0, Operation("quantize", made, {"x": draft.input}, {"bytes": made}, tensors))
        _store(conv, conv.tensors["weight"] / self.std)
        conv.kind, conv.inputs["x"], conv.tensors["zero"] = "int8_conv", made, self.mean
        del conv.attributes["groups"]


def _rounded(values: Array) -> tuple[Array, Array]:
    """Integers from −127 to 127 and their step, per filter."""
    largest = np.abs(values).reshape(len(values), -1).max(1)
    step = np.where(largest > 0, largest, LARGEST) / LARGEST
    exact = values / _along(step, values)
    return _with_their_sums(np.round(exact), exact) if values.ndim > 2 else np.round(exact), step


def _with_their_sums(whole: Array, exact: Array) -> Array:
    """Round some numbers the other way, those nearest to a half first, until the sum over each kernel is within a half
    of the exact sum.  In flat regions of an image, only that sum matters."""
    kernels, wanted = (each.reshape(-1, whole[0, 0].size) for each in (whole, exact))
    missing = np.round((wanted - kernels).sum(1, keepdims=True))
    rest = (wanted - kernels) * np.sign(missing)
    rest[np.abs(kernels) == LARGEST] = -1  # the largest stays as it is, because it defines the step
    place = np.argsort(np.argsort(-rest, 1), 1)
    turned = (place < np.abs(missing)) & (rest > 0)
    return np.asarray(whole + (turned * np.sign(missing)).reshape(whole.shape))


def _along(step: Array, values: Array) -> Array:
    return step.reshape(-1, *[1] * (values.ndim - 1))


def _store(conv: Operation, values: Array) -> None:
    """Store integers instead of ``values``, if they are integers; a weight that was computed in torch stays float32."""
    whole, size = _rounded(values)
    if np.allclose(whole * _along(size, whole), values, rtol=1e-5, atol=0):
        conv.tensors["weight"] = whole.astype(np.int8)
        conv.tensors["scale"] = conv.tensors.get("scale", np.ones(len(size))) * size


def _weight(model: nn.Module, step: Step) -> Tensor | None:
    """The weight of a float convolution or linear layer, if it is a tensor of the model itself."""
    if isinstance(step.target, nn.Module):
        return step.target.weight if type(step.target) in (nn.Conv1d, nn.Conv2d, nn.Linear) else None  # type: ignore[return-value]
    if called(step.target) not in _FUNCTIONS:
        return None
    weight = step.args[1] if len(step.args) > 1 else step.kwargs.get("weight")
    own = any(weight is each for each in (*model.parameters(), *model.buffers()))
    return weight if own else None
