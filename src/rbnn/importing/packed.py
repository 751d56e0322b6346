"""Turns a packed network back into one that can be trained: the reverse of the export, as far as possible.

A packed file has signs, one affine per channel, and thresholds.  The rest of the training state is chosen as follows:

    latent weight      sign · one magnitude for all weights of a layer; the method binarizes it to the same signs
    batch norm         its map y = scale x + shift is kept; its running statistics, which are not in the file, are
                       guesses until ``refresh_statistics`` has measured them
    slope              that of the PReLU
    threshold T        a batch norm that reaches the level of the following sign halfway from T to T + 1
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rbnn.errors import CheckpointError
from rbnn.exporting import pack
from rbnn.exporting.draft import Draft
from rbnn.exporting.int8 import Rounding
from rbnn.exporting.lower import lower
from rbnn.exporting.trace import trace
from rbnn.functional.batch_norm import BatchNorm
from rbnn.models import Join
from rbnn.nn import BinaryConv2d, BinaryLinear
from rbnn.packed import oracle
from rbnn.packed.graph import Graph
from rbnn.packed.operations import Operation

Array = NDArray[np.float64]


class Mismatch(CheckpointError):
    """The packed network does not belong to this model and method."""


@torch.no_grad()
def restore_(model: nn.Module, graph: Graph) -> None:
    """Give ``model`` the weights of a packed network that was exported from such a model.  In eval mode both give the
    same outputs.  Mismatch names the first layer that cannot come from this model."""
    restoring = _Restoring(model, graph)
    restoring.set_weights()
    restoring.set_slopes()
    restoring.set_scales()
    restoring.set_norms()
    restoring.check()


class _Restoring:
    def __init__(self, model: nn.Module, graph: Graph) -> None:
        self.model, self.graph = model, graph
        self.operations = {operation.name: operation for operation in graph.operations}
        self.modules = dict(model.named_modules())
        height, width, channels = graph.buffers[graph.input.buffer].shape
        generator = torch.Generator().manual_seed(0)
        self.images = torch.randn(2, channels, height, width, generator=generator)

    def set_weights(self) -> None:
        """Copy float weights, and make latent weights from signs."""
        for operation in self.graph.operations:
            if operation.kind == "int8_conv" or "int8" in self._dtypes(operation):
                raise Mismatch(f"layer {operation.name!r} is int8, and rounding cannot be undone: use its checkpoint")
            if operation.kind == "constant":
                raise Mismatch(f"{operation.name!r} has a factor for each position (xnor++): use its checkpoint")
        for name, module in self.modules.items():
            if isinstance(module, nn.ConvTranspose2d):
                raise Mismatch(
                    f"layer {name!r} is a transposed convolution, which cannot be restored: use its checkpoint"
                )
            if isinstance(module, nn.Conv2d | nn.Linear):
                binary = isinstance(module, BinaryConv2d | BinaryLinear)
                operation = self._operation(name, "binary_conv" if binary else "float_conv")
                weight = operation.tensors["weight"]
                values = oracle.unpack(weight, module.weight.shape[1]) if binary else weight
                stored = torch.from_numpy(np.array(values, np.float32)).permute(0, 3, 1, 2)
                if stored.reshape(len(stored), -1).shape != module.weight.flatten(1).shape:
                    raise Mismatch(f"layer {name!r} has different filters")
                stored = stored.reshape(module.weight.shape)
                if module.bias is not None:
                    module.bias.zero_()
                if isinstance(module, BinaryConv2d | BinaryLinear):
                    self._set_signs(name, module, stored)
                else:
                    module.weight.copy_(stored)

    def _set_signs(self, name: str, layer: BinaryConv2d | BinaryLinear, signs: Tensor) -> None:
        turned = self._turned(name)
        if turned is not None:
            signs = signs * torch.from_numpy(turned.astype(np.float32)).reshape(-1, *[1] * (signs.dim() - 1))
        # The mean magnitude of an initial weight.
        _set_latent(layer, signs * (4 / (np.pi * layer.weight[0].numel())) ** 0.5)
        if not torch.equal(layer.method.signs(layer.weight), signs):
            raise Mismatch(f"the method {type(layer.method).__name__} cannot produce the signs of layer {name!r}")

    def _turned(self, name: str) -> Array | None:
        """−1 for the filters whose signs the export inverted, because a minimum follows them."""
        bits = self._operation(name, "binary_conv").outputs.get("bits")
        for operation in self.graph.operations:
            if operation.kind == "max_pool_bits" and operation.inputs["x"] == bits and "invert" in operation.tensors:
                packed = operation.tensors["invert"]
                return -oracle.unpack(packed, self.graph.buffers[str(bits)].shape[2]).astype(np.float64)
        return None

    def set_slopes(self) -> None:
        """Copy the slopes of PReLUs.  The export leaves out those before a sign that do not change it."""
        draft = self._lowered()
        for step in draft.operations:
            module = self.modules.get(step.name)
            activation = module.activation if isinstance(module, Join) else module
            slopes = self._stored_slopes(draft, step) if "slope" in step.tensors else None
            if slopes is not None and isinstance(activation, nn.PReLU) and activation.weight.shape == slopes.shape:
                activation.weight.copy_(torch.from_numpy(np.array(slopes)))
            # Other differences show in ``check``.

    def _stored_slopes(self, draft: Draft, step: Operation) -> Array | None:
        """Those of ``step`` in the file, where it may be part of the convolution before it."""
        at: Operation | None = step
        while at is not None:
            stored = self.operations.get(at.name)
            if stored is not None and "slope" in stored.tensors:
                return stored.tensors["slope"]
            if at.kind in ("float_conv", "binary_conv") or not at.inputs:
                return None
            at = draft.producer(at.inputs["a" if at.kind == "add" else "x"])
        return None

    def set_scales(self) -> None:
        """If no batch norm absorbs it, the scale of a binary layer is that of the file, and the magnitudes follow
        it."""
        draft = self._lowered()
        folded = self._norms() - self.operations.keys()
        for step in draft.operations:
            layer = self.modules.get(step.name)
            if isinstance(layer, BinaryConv2d | BinaryLinear) and _norm_behind(draft, step, folded) is None:
                ratio = self._tensor(self.operations[step.name], "scale", 1.0) / step.tensors.get("scale", np.ones(1))
                factors = torch.from_numpy(np.broadcast_to(ratio, len(layer.weight)).astype(np.float32))
                _set_latent(layer, layer.weight * factors.reshape(-1, *[1] * (layer.weight.dim() - 1)))

    def set_norms(self) -> None:
        """Move every affine of the file into the batch norm that it came from, or into a bias."""
        draft, waiting = self._lowered(), self._norms()
        for name in waiting & self.operations.keys():
            operation = self._operation(name, "affine")
            self._set_norm(name, self._tensor(operation, "scale"), self._tensor(operation, "shift"), None)
        waiting -= self.operations.keys()
        for step in draft.operations:
            if step.name in self.modules and step.kind in ("float_conv", "binary_conv"):
                behind = _norm_behind(draft, step, waiting)
                if behind is None:
                    self._set_bias(step)
                else:
                    self._fold_back(draft, step, behind)
                    waiting.remove(behind.name)
        if waiting:
            raise Mismatch(f"it has no batch norm {min(waiting)!r}")

    def _lowered(self) -> Draft:
        """The steps of the model in its current state, without any folding."""
        return lower(trace(self.model, self.images))

    def _norms(self) -> set[str]:
        return {name for name, module in self.modules.items() if isinstance(module, BatchNorm)}

    def _fold_back(self, draft: Draft, step: Operation, norm: Operation) -> None:
        """``scale = s a``, ``shift = h a + c``: the convolution by itself has s and h, the batch norm a and c."""
        operation, module = self.operations[step.name], self.modules[step.name]
        assert isinstance(module, nn.Conv2d | nn.Linear)
        own_scale, own_shift = step.tensors.get("scale", np.ones(1)), step.tensors.get("shift", np.zeros(1))
        own_scale = np.broadcast_to(own_scale, len(module.weight))
        if isinstance(module, BinaryConv2d | BinaryLinear):
            spread = np.abs(own_scale) * module.weight[0].numel() ** 0.5  # of a sum of this many independent signs
        else:
            spread = np.abs(own_scale) * module.weight.flatten(1).norm(dim=1).double().numpy()
        spread = np.maximum(spread, 1e-12)
        level = _level_behind(draft, norm)
        if "threshold" in operation.tensors:
            turned = self._turned(step.name)
            factor = (1.0 if turned is None else turned) / spread
            at = own_scale * (self._tensor(operation, "threshold") + 0.5) * np.sign(factor) + own_shift
            self._set_norm(norm.name, factor, level - factor * at, spread)
        else:
            factor = self._tensor(operation, "scale", 1.0) / own_scale
            shift = self._tensor(operation, "shift", 0.0) - own_shift * factor
            if level and "bits" in operation.outputs and "level" not in operation.tensors:
                shift = shift + level
            self._set_norm(norm.name, factor, shift, spread)

    def _set_norm(self, name: str, factor: Array, shift: Array, spread: Array | None) -> None:
        """Set a batch norm that computes ``factor x + shift``.  ``spread`` is the guessed deviation of x.  Without it,
        x is assumed to be what this norm standardises."""
        norm = self.modules[name]
        assert isinstance(norm, BatchNorm)
        factor, shift = np.broadcast_to(factor, norm.num_features), np.broadcast_to(shift, norm.num_features)
        if norm.running_mean is None or norm.running_var is None or norm.weight is None:
            raise Mismatch(f"the batch norm {name!r} has no running statistics, or no weight")
        mean = np.zeros(norm.num_features)
        if spread is None:
            safe = np.where(np.abs(factor) > 1e-12, factor, 1.0)
            spread, mean = 1 / np.abs(safe), -shift / safe
        variance = np.maximum(spread**2 - norm.eps, 0.0)
        norm.running_mean.copy_(torch.from_numpy(mean))
        norm.running_var.copy_(torch.from_numpy(variance))
        norm.weight.copy_(torch.from_numpy(factor * np.sqrt(variance + norm.eps)))
        norm.bias.copy_(torch.from_numpy(shift + factor * mean))

    def _set_bias(self, step: Operation) -> None:
        operation, module = self.operations[step.name], self.modules[step.name]
        missing = self._tensor(operation, "shift", 0.0) - step.tensors.get("shift", np.zeros(1))
        if isinstance(bias := module.bias, Tensor):
            bias.copy_(torch.from_numpy(np.broadcast_to(missing, len(bias)).copy()))
        # Without a bias, any difference shows in ``check``.

    def check(self) -> None:
        """Check that the model now packs to the file, except for buffer names and the last digits of scales and
        shifts."""
        channels = self.images.shape[1]
        draft, _ = pack(self.model, self.images, Rounding.of("float32", "float32", (), (), channels))
        again = draft.graph(self.graph.input)
        for ours, theirs, operation in zip(_outline(again), _outline(self.graph), _ordered(self.graph), strict=False):
            numbers = zip(ours.tensors.values(), theirs.tensors.values(), strict=False)
            if ours.form != theirs.form or not all(np.allclose(a, b, 1e-4, 1e-5) for a, b in numbers):
                raise Mismatch(f"operation {operation.name!r} is different")
        if len(again.operations) != len(self.graph.operations):
            raise Mismatch("it has different operations")

    def _operation(self, name: str, kind: str) -> Operation:
        found = self.operations.get(name)
        if found is None or found.kind != kind:
            raise Mismatch(f"it has no {kind} {name!r}")
        return found

    def _tensor(self, operation: Operation, role: str, default: float = 0.0) -> Array:
        if role not in operation.tensors:
            return np.asarray(default)
        return operation.tensors[role].astype(np.float64)

    def _dtypes(self, operation: Operation) -> set[str]:
        return {str(tensor.dtype) for tensor in operation.tensors.values()}


def _set_latent(layer: BinaryConv2d | BinaryLinear, weight: Tensor) -> None:
    layer.weight.copy_(weight)
    layer.restart_method()
    layer.method.keep_signs()


def _norm_behind(draft: Draft, step: Operation, norms: set[str]) -> Operation | None:
    """The batch norm that the export folds into a convolution: the one after it, or after the pool that follows it."""
    buffer = next(iter(step.outputs.values()))
    while (reader := draft.sole_consumer(buffer)) is not None:
        if reader.kind == "affine" and reader.name in norms:
            return reader
        if reader.kind != "max_pool":
            break
        buffer = reader.outputs["float"]
    return None


def _level_behind(draft: Draft, step: Operation) -> float:
    """The level at which the sign that follows a batch norm, possibly after activations, changes."""
    buffer = step.outputs["float"]
    while (reader := draft.sole_consumer(buffer)) is not None and reader.kind == "activation":
        buffer = reader.outputs["float"]
    level = reader.attributes.get("level", 0.0) if reader is not None and reader.kind == "pack" else 0.0
    return float(level) if level != "mean" else 0.0


@dataclass(frozen=True)
class _Outlined:
    form: tuple[object, ...]
    """An operation without its name and its numbers.  A buffer is identified by the operation that writes it."""
    tensors: dict[str, NDArray[Any]]
    """By role, in alphabetical order."""


NOTHING: dict[str, object] = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1, "pad": 0}
"""Attributes that may be left out."""


def _ordered(graph: Graph) -> list[Operation]:
    """The operations from the input to the output, in an order that depends only on what they read, because a file may
    compute a shortcut before or after its branch."""
    writers = {name: operation for operation in graph.operations for name in operation.outputs.values()}
    order: dict[int, Operation] = {}  # by identity, because names are for people
    waiting = graph.outputs[::-1]
    while waiting:
        operation = writers.get(waiting[-1])
        read = [] if operation is None else [name for _, name in sorted(operation.inputs.items())]
        missing = [name for name in read if name in writers and id(writers[name]) not in order]
        if missing:
            waiting.append(missing[0])
            continue
        waiting.pop()
        if operation is not None:
            order.setdefault(id(operation), operation)
    return list(order.values())


def _outline(graph: Graph) -> Iterator[_Outlined]:
    writers: dict[str, object] = {graph.input.buffer: "input"}
    for index, operation in enumerate(_ordered(graph)):
        tensors = dict(sorted(operation.tensors.items()))
        attributes = {r: list(v) if isinstance(v, list | tuple) else v for r, v in operation.attributes.items()}
        attributes = {role: value for role, value in attributes.items() if NOTHING.get(role) != value}
        inputs = {role: writers[name] for role, name in operation.inputs.items()}
        shapes = {role: tensor.shape for role, tensor in tensors.items()}
        yield _Outlined((operation.kind, inputs, sorted(operation.outputs), attributes, shapes), tensors)
        writers |= {name: (index, role) for role, name in operation.outputs.items()}
