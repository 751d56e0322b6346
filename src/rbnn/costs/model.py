"""The costs of each layer of a deployed network: bits, multiply-accumulates (MACs), bytes.

    binary layer       1 bit per weight and plane of signs, rounded up to whole bytes for each plane; 4 bytes per factor
                       of a position, and per scale that no affine can take
    batch norm         folded to one affine per channel, y = a·x + b: 8 bytes per channel
    RPReLU             a slope, and a level for the signs after it: 8 bytes per channel; its first shift goes into the
                       affine before it.  If signs are taken around the mean of their image, its second shift stays an
                       affine: 12 bytes.  The same holds in a float network
    any other layer    4 bytes per parameter

A method defines its binary layer in bits with ``binary_form``, for the export and for these counts.  M planes of the
weight times N planes of the input are M·N passes, each with a scale per filter.  One of these scales and the bias are
folded into the affine of the following batch norm; without one, the layer has its own affine.  Factors per position
prevent this folding, so all scales other than 1 remain.  What a method keeps for training (β, rotations, latent
weights) is dropped at export.  A layer whose method has no binary form is deployed and counted as float.

MACs are those of convolutions and linear layers for one example.  A tap on padding counts like any other, and a 1-bit
MAC counts once for each pass.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from rbnn.errors import ConfigError, NotBinary
from rbnn.functional.batch_norm import BatchNorm
from rbnn.methods import BinaryForm
from rbnn.models import RPReLU
from rbnn.nn import BinaryLayer, BinaryLinear, evaluation_mode

AFFINE_BYTES = 8
"""Two float32 per channel."""

FLOAT_BYTES = 4
Transposed = nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d | Transposed

_KEEP_AN_AFFINE_MOVABLE = (
    nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Flatten, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
)  # fmt: skip
"""Modules that may stand between a binary layer and its batch norm: the sign of a scale goes into the bits, and
positive factors pass through maxima and means."""


@dataclass(frozen=True)
class LayerCost:
    """One layer with parameters, as it occurred in the forward pass."""

    name: str
    kind: str
    """conv, linear, batch norm, or the name of the class."""
    bits: int
    """Bits per weight in one plane: 1 or 32."""
    weight: tuple[int, ...]
    """Shape of the weight; () if there is none."""
    output: tuple[int, ...]
    """Shape of the output without the batch; () for a layer that was never called."""
    calls: int
    """How often the forward pass calls it.  With 0 its MACs are unknown: another module reads its weight, or nothing
    does."""
    parameters: int
    """Without the parameters of a method."""
    binary_macs: int
    """The MACs of all passes."""
    float_macs: int
    bytes: int
    """Bytes after deployment."""
    bit_bytes: int
    """The part of these bytes that is packed signs."""
    position_bytes: int
    """The part that is factors per position, and the box filter of XNOR-Net's K."""
    float_bytes: int
    """Bytes of the same layer in the deployed float twin, whose batch norms are folded too."""


def _total(of: str) -> Any:
    return property(lambda costs: sum(getattr(layer, of) for layer in costs.layers), doc="The sum over the layers.")


@dataclass(frozen=True)
class Costs:
    """The layers in the order of registration, and their totals."""

    layers: list[LayerCost] = field(default_factory=list)
    training_only: int = 0
    """Numbers of methods, besides the latent weights, that the deployed network does not have: β, rotations, and scales
    that were folded into affines."""

    parameters = _total("parameters")
    binary_macs = _total("binary_macs")
    float_macs = _total("float_macs")
    bytes = _total("bytes")
    float_bytes = _total("float_bytes")

    @property
    def bytes_ratio(self) -> float:
        """How many times smaller than the float twin."""
        return float(self.float_bytes / self.bytes) if self.bytes else 1.0

    @property
    def binary_mac_share(self) -> float:
        """Share of the MACs that are 1-bit, 0 … 1."""
        macs = self.binary_macs + self.float_macs
        return float(self.binary_macs / macs) if macs else 0.0

    def float_parts(self) -> list[tuple[str, int, float]]:
        """What prevents the network from being smaller: (name, bytes, share of all bytes) of everything that is not
        bits, largest first.  All affines and scales, of batch norms and of binary layers, are one part called
        ``affines``; all factors per position are another."""
        parts = Counter[str]()
        for layer in self.layers:
            if layer.bits == 1:
                parts["position factors"] += layer.position_bytes
                parts["affines"] += layer.bytes - layer.bit_bytes - layer.position_bytes
            else:
                parts["affines" if layer.kind == "batch norm" else layer.name] += layer.bytes
        return [(name, size, size / self.bytes) for name, size in parts.most_common() if size]


def costs(model: nn.Module, example_input: Tensor | tuple[Tensor, ...]) -> Costs:
    """Count the costs of any torch model by running the first example of ``example_input`` (a batch, or a tuple of
    batches) through it in eval mode.  The model is not changed."""
    calls = _run(model, example_input)
    forms: dict[nn.Module, BinaryForm | None] = {
        module: _binary_form(module) for module in model.modules() if isinstance(module, BinaryLayer)
    }
    foldable = bool(forms) and not any(form is None or form.centred for form in forms.values())
    layers, training_only, seen = [], 0, set[int]()
    for name, module in _rows(model):
        call = calls.get(module, _Call())
        fresh = [p for p in _own_parameters(module) if id(p) not in seen]  # tied weights are stored once
        seen |= {id(p) for p in fresh}
        layer = _layer(name, module, forms.get(module), call, sum(p.numel() for p in fresh))
        if isinstance(module, RPReLU) and foldable:
            layer = replace(layer, bytes=layer.bytes - FLOAT_BYTES * len(module.shift_out))
        layers.append(layer)
        if isinstance(module, BinaryLayer):
            training_only += _training_only(module, forms[module])
    return Costs(layers, training_only)


def _layer(name: str, module: nn.Module, form: BinaryForm | None, call: "_Call", parameters: int) -> LayerCost:
    weight = getattr(module, "weight", None)
    shape = tuple(weight.shape) if isinstance(weight, Tensor) else ()
    float_bytes = FLOAT_BYTES * parameters
    kind = type(module).__name__
    if _is_batch_norm(module):
        kind = "batch norm"
        float_bytes = AFFINE_BYTES * module.num_features
    elif isinstance(module, Convolution):
        kind = "conv"
    elif isinstance(module, nn.Linear):
        kind = "linear"
    bits, size, bit_bytes, position_bytes = 32, float_bytes, 0, 0
    binary_macs, float_macs = 0, call.positions * prod(shape)
    if isinstance(module, BinaryLayer) and form is not None:
        bits = 1
        bit_bytes = len(form.signs) * _packed_bytes(tuple(module.filters.shape)) if parameters else 0
        factors, box = _position_factors(module, form)
        position_bytes = FLOAT_BYTES * (factors + box)
        size = bit_bytes + position_bytes + _scale_bytes(module, form, bool(call.count and call.normed))
        binary_macs, float_macs = len(form.signs) * len(form.levels) * float_macs, call.positions * box
    return LayerCost(
        name=name or type(module).__name__,
        kind=kind,
        bits=bits,
        weight=shape,
        output=call.output,
        calls=call.count,
        parameters=parameters,
        binary_macs=binary_macs,
        float_macs=float_macs,
        bytes=size,
        bit_bytes=bit_bytes,
        position_bytes=position_bytes,
        float_bytes=float_bytes,
    )


def _binary_form(layer: BinaryLayer) -> BinaryForm | None:
    """What the export would write; None if it would refuse."""
    try:
        return layer.method.binary_form(layer.filters)
    except NotBinary:
        return None


def _position_factors(layer: BinaryLayer, form: BinaryForm) -> tuple[int, int]:
    """The size of the learned map, and of the box filter of K: one for all filters, or one per group."""
    learned = 0 if form.positions is None else form.positions.size
    if not form.magnitudes:
        return learned, 0
    grouped = not isinstance(layer, BinaryLinear) and layer.groups > 1
    return learned, layer.weight.numel() if grouped else prod(layer.filters.shape[2:])


def _scale_bytes(layer: BinaryLayer, form: BinaryForm, normed: bool) -> int:
    """Bytes of the scales of the passes, and of the affine after them if the layer has its own."""
    filters = len(layer.filters)
    if not form.mapped:
        passes = len(form.signs) * len(form.levels)
        return FLOAT_BYTES * filters * (passes - 1) + (0 if normed else AFFINE_BYTES * filters)
    scales = [factors * level for factors in form.factors for level in form.levels]
    stay = sum(bool((scale != 1).any()) for scale in scales)
    return FLOAT_BYTES * filters * stay + (0 if normed or layer.bias is None else AFFINE_BYTES * filters)


def _training_only(layer: BinaryLayer, form: BinaryForm | None) -> int:
    """Parameters of the method that inference does not need: rotations are dropped, and scales go into the affines.
    Learned numbers stay if they are a map, which prevents the folding of scales, or if each of several planes has its
    own."""
    learned, buffers = layer.method.parameters(), layer.method.buffers()
    stays = form is not None and (form.positions is not None or len(form.levels) > 1)
    gone = [*([] if stays else learned), *(each for each in buffers if each.is_floating_point())]
    return sum(tensor.numel() for tensor in gone)


def _packed_bytes(filters: tuple[int, ...]) -> int:
    """Each tap of each filter begins a new byte, as in the file."""
    outputs, inputs, *taps = filters
    return outputs * prod(taps) * -(-inputs // 8)


def _is_batch_norm(module: nn.Module) -> TypeGuard[BatchNorm]:
    """Whether it can be folded: without running statistics it is not a fixed affine."""
    return isinstance(module, BatchNorm) and module.running_mean is not None


def _is_atom(module: nn.Module) -> bool:
    """Whether everything inside (a method, a parametrization of the weight) is a part of this layer."""
    return isinstance(module, Convolution | nn.Linear)


def _rows(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module with its own parameters, or a batch norm, in order of registration."""
    rows: list[tuple[str, nn.Module]] = []
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if inside and name.startswith(inside):
            continue
        if _is_atom(module) or _is_batch_norm(module) or _own_parameters(module):
            rows.append((name, module))
        if _is_atom(module):
            inside = (*inside, f"{name}." if name else "")
    return rows


def _own_parameters(module: nn.Module) -> list[Tensor]:
    if _is_atom(module):  # by attribute, because a parametrized weight is no longer a parameter
        return [t for t in (module.weight, module.bias) if isinstance(t, Tensor)]
    return list(module.parameters(recurse=False))


@dataclass
class _Call:
    """What the forward pass did with one layer."""

    count: int = 0
    output: tuple[int, ...] = ()
    positions: int = 0
    """How often the whole weight is used: outputs per filter, over all calls."""
    normed: bool = True
    """Whether all its outputs go to a batch norm."""


def _run(model: nn.Module, example_input: Tensor | tuple[Tensor, ...]) -> dict[nn.Module, _Call]:
    inputs = example_input if isinstance(example_input, tuple) else (example_input,)
    if not all(isinstance(x, Tensor) and x.dim() > 0 and len(x) > 0 for x in inputs):
        raise ConfigError("example_input must be a batch of at least one example, or a tuple of such batches")
    calls: dict[nn.Module, _Call] = {}
    waiting: dict[int, tuple[Tensor, nn.Module]] = {}  # outputs that no batch norm has read; kept alive for their ids

    def called(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        given = args[0] if args else kwargs.get("input")
        if isinstance(module, _KEEP_AN_AFFINE_MOVABLE):
            if isinstance(given, Tensor) and isinstance(out, Tensor) and id(given) in waiting:
                waiting[id(out)] = out, waiting.pop(id(given))[1]
            return
        if _is_batch_norm(module):
            waiting.pop(id(given), None)
        call = calls.setdefault(module, _Call())
        call.count += 1
        if not isinstance(out, Tensor):
            return
        call.output = tuple(out.shape[1:])
        if isinstance(module, Transposed):
            call.positions += given.numel() // module.in_channels if isinstance(given, Tensor) else 0
        elif isinstance(module, Convolution | nn.Linear):
            call.positions += out.numel() // module.weight.shape[0]
        if isinstance(module, BinaryLayer):
            waiting[id(out)] = out, module

    watched = [m for _, m in _rows(model)] + [m for m in model.modules() if isinstance(m, _KEEP_AN_AFFINE_MOVABLE)]
    with ExitStack() as hooks, evaluation_mode(model), torch.no_grad():
        for module in watched:
            hooks.enter_context(module.register_forward_hook(called, with_kwargs=True))
        model(*(x[:1] for x in inputs))
    for _, module in waiting.values():
        calls[module].normed = False
    return calls
