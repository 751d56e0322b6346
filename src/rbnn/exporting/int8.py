"""Float layers in int8: weights as whole numbers with one step per filter, and a first layer that works on bytes.

    q ≈ w / step_o, up or down to a whole number,  step_o = max|w_o|/127

The weights are rounded in torch's copy of the model before it answers, so that the packed network is compared with a
torch network of the same numbers.  In a first layer on bytes u, x = (u − 255 mean_c)/(255 std_c): there
w/(255 std_c) is what is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from rbnn.errors import ExportError
from rbnn.exporting.draft import Array, Draft
from rbnn.packed.operations import Buffer, Operation

FORMS = ("float32", "int8")
LARGEST = 127

_FUNCTIONS = (F.conv1d, F.conv2d, torch.conv2d, F.linear)


@dataclass(frozen=True)
class Rounding:
    """Which layers become int8, and how pictures are normalised."""

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
                raise ExportError(f"{word} is one of {', '.join(FORMS)}, got {form!r}")
        sizes = {len(mean), len(std)}
        if stem == "int8" and not (sizes <= {1, channels} and all(each > 0 for each in std)):
            raise ExportError(
                f"an int8 stem works on the bytes of pictures: it needs mean and std of the {channels} channels, "
                f"got {len(mean)} and {len(std)} numbers"
            )
        whole = [255 * np.broadcast_to(np.asarray(each, np.float64), channels) if stem == "int8" else np.zeros(0)
                 for each in (mean, std)]  # fmt: skip
        return cls(stem == "int8", float_layers == "int8", *whole)

    def pictures(self, images: Tensor) -> Tensor:
        """The nearest pictures that bytes can give."""
        if not self.stem:
            return images
        if images.dim() != 4:
            raise ExportError(f"an int8 stem works on the bytes of pictures, the example is {tuple(images.shape)}")
        mean, std = (torch.from_numpy(each)[:, None, None] for each in (self.mean, self.std))
        return (((images.double() * std + mean).round().clamp(0, 255) - mean) / std).float()

    def round_weights(self, model: nn.Module, graph: fx.Graph) -> None:
        """Round the weights of ``model``, which is ours to change, as the packed network will have them."""
        image = next(node for node in graph.nodes if node.op == "placeholder")
        first = self._stem(model, image) if self.stem else None
        done: set[int] = set()
        for node in graph.nodes:
            weight = _weight(model, node)
            # Rounding shows most in layers that read the pictures: they are the stem's business alone.
            wanted = node is first if image in node.all_input_nodes else self.float_layers
            if weight is None or id(weight) in done or not wanted:
                continue
            done.add(id(weight))
            with torch.no_grad():
                values = weight.double().numpy()
                factor = self.std[:, None, None] if node is first else 1.0
                whole, step = _rounded(values / factor)
                weight.copy_(torch.from_numpy(whole * _along(step, whole) * factor))

    def _stem(self, model: nn.Module, image: fx.Node) -> fx.Node:
        readers: list[fx.Node] = list(image.users)
        weight = _weight(model, readers[0]) if len(readers) == 1 else None
        if weight is None or weight.dim() != 4 or weight.shape[1] != len(self.std):
            raise ExportError("an int8 stem needs a float convolution, not grouped, that alone reads the pictures")
        return readers[0]

    def apply(self, draft: Draft) -> None:
        """Float convolutions of the draft, whose weights are rounded already, become int8."""
        for conv in list(draft.operations):
            if conv.kind != "float_conv":
                continue
            if conv.inputs["x"] == draft.input:
                if self.stem:
                    self._on_bytes(draft, conv)
            elif self.float_layers:
                _store(conv, conv.tensors["weight"])
        if self.stem and not any(conv.kind == "int8_conv" for conv in draft.operations):
            raise ExportError("an int8 stem takes padding by numbers: 'same' with an even kernel pads apart from it")

    def _on_bytes(self, draft: Draft, conv: Operation) -> None:
        shape = draft.buffers[draft.input].shape
        made = draft.new_buffer(f"{draft.input}.bytes", Buffer("bytes", shape))
        tensors = {"scale": self.std, "shift": self.mean}
        draft.operations.insert(0, Operation("quantize", made, {"x": draft.input}, {"bytes": made}, tensors))
        _store(conv, conv.tensors["weight"] / self.std)
        conv.kind, conv.inputs["x"], conv.tensors["zero"] = "int8_conv", made, self.mean
        del conv.attributes["groups"]


def _rounded(values: Array) -> tuple[Array, Array]:
    """Whole numbers from −127 to 127 and their step, per filter."""
    largest = np.abs(values).reshape(len(values), -1).max(1)
    step = np.where(largest > 0, largest, LARGEST) / LARGEST
    exact = values / _along(step, values)
    return _with_their_sums(np.round(exact), exact) if values.ndim > 2 else np.round(exact), step


def _with_their_sums(whole: Array, exact: Array) -> Array:
    """Some numbers rounded the other way, those nearest to a half first, until the sum over each kernel is right to a
    half: where pictures are flat, that sum is all that they see."""
    kernels, wanted = (each.reshape(-1, whole[0, 0].size) for each in (whole, exact))
    missing = np.round((wanted - kernels).sum(1, keepdims=True))
    rest = (wanted - kernels) * np.sign(missing)
    rest[np.abs(kernels) == LARGEST] = -1  # the largest stays what it is: the step is found from it
    place = np.argsort(np.argsort(-rest, 1), 1)
    turned = (place < np.abs(missing)) & (rest > 0)
    return np.asarray(whole + (turned * np.sign(missing)).reshape(whole.shape))


def _along(step: Array, values: Array) -> Array:
    return step.reshape(-1, *[1] * (values.ndim - 1))


def _store(conv: Operation, values: Array) -> None:
    """Whole numbers instead of ``values``, where they are that; a weight that was computed in torch stays float32."""
    whole, size = _rounded(values)
    if np.allclose(whole * _along(size, whole), values, rtol=1e-5, atol=0):
        conv.tensors["weight"] = whole.astype(np.int8)
        conv.tensors["scale"] = conv.tensors.get("scale", np.ones(len(size))) * size


def _weight(model: nn.Module, node: fx.Node) -> Tensor | None:
    """The weight of a float convolution or linear layer, if it is a tensor of the model itself."""
    if node.op == "call_module":
        module = model.get_submodule(str(node.target))
        return module.weight if type(module) in (nn.Conv1d, nn.Conv2d, nn.Linear) else None  # type: ignore[return-value]
    if node.op != "call_function" or node.target not in _FUNCTIONS:
        return None
    weight = node.args[1] if len(node.args) > 1 else node.kwargs.get("weight")
    if not isinstance(weight, fx.Node) or weight.op != "get_attr":
        return None
    owner, _, name = str(weight.target).rpartition(".")
    return getattr(model.get_submodule(owner), name)  # type: ignore[no-any-return]
