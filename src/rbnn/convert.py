"""binarize_: turn any torch model into a binary network, in place."""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from rbnn import notebook
from rbnn.errors import ConfigError, NotBinary
from rbnn.methods import Method, check_method, create_method
from rbnn.neighbours import Neighbours, Untraceable, keeping, missing_norms, named
from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryConvTranspose2d, BinaryLayer, BinaryLinear
from rbnn.own_weights import only_weighs
from rbnn.padding import only_pads
from rbnn.text import plural, quoted

FEWEST_CHANNELS = 8
"""A convolution with fewer input channels per group stays float: its bits would not fill a byte."""

OWN_FORWARD = "has its own forward"
"""Why a subclass stays float, unless its forward only pads or standardises its weight."""

UNCALLED = "the forward reads its weight without calling it"

Layer: TypeAlias = nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d | nn.Linear

_BINARY: dict[type[Layer], type[BinaryLayer]] = {
    nn.Conv1d: BinaryConv1d,
    nn.Conv2d: BinaryConv2d,
    nn.ConvTranspose2d: BinaryConvTranspose2d,
    nn.Linear: BinaryLinear,
}

_READ_THEIR_CHILDREN = nn.MultiheadAttention, nn.TransformerEncoderLayer
"""Modules that read the weights of their linear layers without always calling the layers."""


@dataclass(repr=False)
class Conversion:
    """What ``binarize_`` did: the names of the layers that are now binary, the layers that stayed float with the
    reasons, what it warned of, and notes about what it could not check."""

    changed: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        verb = "is" if len(self.changed) == 1 else "are"
        lines = [f"{plural(len(self.changed), 'layer')} {verb} binary now", *[f"  {name}" for name in self.changed]]
        if self.kept:
            width = max(map(len, self.kept))
            stay = "stays" if len(self.kept) == 1 else "stay"
            lines += [f"{len(self.kept)} {stay} float", *[f"  {n:{width}}  {why}" for n, why in self.kept.items()]]
        return "\n".join([*lines, *[f"note: {text}" for text in self.notes]])

    def _repr_html_(self) -> str:
        binary = [(name, "binary", "") for name in self.changed]
        floats = [(name, "float", why) for name, why in self.kept.items()]
        noted = [("note", "", text) for text in self.notes]
        caption = f"{len(self.changed)} binary, {plural(len(self.kept), 'float layer')}"
        return notebook.table(caption, [*binary, *floats, *noted], ("layer", "is now", "why"))


def binarize_(
    model: nn.Module,
    method: str = "rbnn",
    keep: Iterable[str] | None = None,
    *,
    relu: str = "warn",
    **options: Any,
) -> Conversion:
    """Turn every ``nn.Conv2d`` into a ``BinaryConv2d``, in place, and likewise ``nn.Conv1d``, ``nn.ConvTranspose2d``
    and ``nn.Linear``.

    The layers remain the same objects, with their weights, hooks and names, also where they are shared.  ``method``
    adds parameters, so create the optimizer afterwards.  After an error the model is unchanged.

    keep      names or patterns (``layer1.*``) of layers that stay float; ``[]`` for none.  By default the first
              convolution and the last linear layer stay float.  Without linear layers it is the last convolution,
              without convolutions the first linear layer.  In a network with several outputs every layer that feeds
              one stays float, if the forward can be traced.  Depthwise and narrow convolutions always stay float, and
              so do layers whose class has its own forward, unless it only pads with zeros or computes a standardised or
              scaled weight, and layers that are never called, because the forward reads their weight itself.
    relu      what happens to a ReLU that feeds a binary layer: ``keep`` it, replace it with ``hardtanh`` wherever it is
              used, or keep it and ``warn`` if the method does not centre its inputs
    options   options of the method
    """
    if relu not in ("warn", "hardtanh", "keep"):
        raise ConfigError(f"relu must be warn, hardtanh or keep, got {relu!r}")
    if not isinstance(model, nn.Module):
        raise ConfigError(f"binarize_ takes a torch.nn.Module, got {type(model).__name__}")
    check_method(method, options)
    layers = _float_layers(model)
    near, untraced = _neighbours(model)
    if near is not None:
        layers |= {name: (layers[name][0], layers[name][1] or UNCALLED) for name in near.only_read(layers)}
    first, last = _ends(layers)
    if near is not None:
        last = {name: "feeds an output" for name in near.before_outputs() if name in layers} | last
    report = Conversion()
    if keep is not None:
        keep = list(keep) if isinstance(keep, Iterable) and not isinstance(keep, str) else [keep]
        if wrong := [each for each in keep if not isinstance(each, str)]:
            raise ConfigError(f"keep takes names or patterns of layers, got {quoted(wrong[0])}")
    report.kept = last | first if keep is None else _matching(keep, layers)
    asked = [name for name in layers if name in report.kept] if keep is None else keep
    report.kept |= {n: why for n, (layer, why) in layers.items() if why and n not in report.kept}
    report.kept = {name: report.kept[name] for name in layers if name in report.kept}
    report.changed = [name for name in layers if name not in report.kept]
    if not report.changed:
        raise NotBinary(_nothing_left(model, report.kept))

    # Everything that can fail happens before the first change.
    chosen = {name: create_method(method, _filters(layers[name][0]), **options) for name in report.changed}
    replaced = set[tuple[str, str]]()
    if near is None:
        unchecked = (
            f"the forward cannot be traced ({untraced}), so ReLUs before and norms after binary layers were not "
            "checked, nor whether a binary layer feeds an output"
        )
        (report.warnings if relu == "hardtanh" else report.notes).append(unchecked)
    else:
        if relu == "hardtanh":
            replaced = _relus_to_replace(near, report)
        elif relu == "warn" and not all(_centres(made) for made in chosen.values()):
            report.warnings += _of_relus(near, method, report.changed)
        bare = near.without_norm(report.changed)
        wanted = [*asked, *bare] if keep else [name for name in layers if name in (*asked, *bare)]
        possible = len(bare) < len(report.changed)  # otherwise nothing would be binary
        report.warnings += missing_norms(bare, wanted, possible)
    ending = [name for name in report.changed if name in last]
    if keep and len(ending) < len(report.changed):  # otherwise they are the very layers to be binary
        report.warnings += _left_out(ending, keep)
    for said in report.warnings:
        warnings.warn(said, stacklevel=2)
    for name, _ in replaced:
        chosen[name].origin = replace(chosen[name].origin, relu="hardtanh")  # type: ignore[type-var]
    weighed: dict[str, list[str]] = {}
    for name, made in chosen.items():
        layer = layers[name][0]
        made.train(layer.training)
        if not layer.weight.requires_grad:
            made.requires_grad_(False)  # a frozen layer stays frozen
        if _own_forward(layer):
            if only_weighs(layer, type(layer)):  # type: ignore[arg-type]
                if not only_pads(layer, type(layer)):  # type: ignore[arg-type]
                    weighed.setdefault(type(layer).__name__, []).append(name)
            else:
                layer.pads_like = type(layer)  # type: ignore[assignment]
        layer.__class__ = _BINARY[_torch_class(layer)]  # type: ignore[assignment]
        layer.adopt(made)  # type: ignore[operator]
    for name in {name for _, name in replaced}:
        _replace(model, model.get_submodule(name))
    report.notes += [_of_weights(kind, names) for kind, names in weighed.items()]
    return report


def _of_weights(kind: str, layers: list[str]) -> str:
    more = f" and {len(layers) - 1} more" * (len(layers) > 1)
    return f"{kind} computed another weight from its own, and the method takes the place of that: {layers[0]!r}{more}"


def _neighbours(model: nn.Module) -> tuple[Neighbours | None, str]:
    """The graph of the forward, or the reason why there is none."""
    try:
        return Neighbours(model), ""
    except Untraceable as reason:
        return None, str(reason)


def _float_layers(model: nn.Module) -> dict[str, tuple[Layer, str | None]]:
    """Every float convolution and linear layer in order of registration, with the reason if it cannot be binary."""
    layers: dict[str, tuple[Layer, str | None]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Layer) and not isinstance(module, BinaryLayer):
            parent = model.get_submodule(name.rpartition(".")[0])
            layers[name] = module, _obstacle(module, parent)
    return layers


def _torch_class(layer: Layer) -> type[Layer]:
    return next(kind for kind in _BINARY if isinstance(layer, kind))


def _filters(layer: Layer) -> Tensor:
    return _BINARY[_torch_class(layer)].as_filters(layer.weight)


def _own_forward(layer: Layer) -> bool:
    ours, torchs = type(layer), _torch_class(layer)
    return any(getattr(ours, part, None) is not getattr(torchs, part, None) for part in ("forward", "_conv_forward"))


def _obstacle(layer: Layer, parent: nn.Module) -> str | None:
    """Why ``layer`` must stay float, or None."""
    if isinstance(parent, _READ_THEIR_CHILDREN):
        return f"{type(parent).__name__} reads its weight without calling it"
    weight = dict(layer.named_parameters(recurse=False)).get("weight")
    if weight is None:
        return "its weight is computed (a parametrization, weight or spectral norm, pruning)"
    if isinstance(weight, UninitializedParameter):
        return "it has no weight yet: run one batch through the model first"
    if _own_forward(layer) and isinstance(layer, nn.Linear | nn.ConvTranspose2d):
        return f"{type(layer).__name__} {OWN_FORWARD}"
    if not weight.is_floating_point():
        return f"its weight is {weight.dtype}"
    if not isinstance(layer, nn.Linear):
        if layer.groups == layer.in_channels > 1:
            return "depthwise: one input channel per filter"
        if (channels := layer.in_channels // layer.groups) < FEWEST_CHANNELS:
            return f"narrow: {channels} input channels per group, fewer than {FEWEST_CHANNELS}"
        if isinstance(layer, nn.ConvTranspose2d) and layer.groups > 1:
            return f"transposed with {layer.groups} groups: only one group can be binary"
        kind = type(layer)
        if _own_forward(layer) and not (only_pads(layer, kind) or only_weighs(layer, kind)):  # type: ignore[arg-type]
            return f"{kind.__name__} {OWN_FORWARD}, which does more than pad with zeros"
    return None


def _ends(layers: dict[str, tuple[Layer, str | None]]) -> tuple[dict[str, str], dict[str, str]]:
    """The first and the last layer, which stay float by default."""
    convolutions = [name for name, (layer, _) in layers.items() if not isinstance(layer, nn.Linear)]
    linears = [name for name, (layer, _) in layers.items() if isinstance(layer, nn.Linear)]
    if not convolutions:
        return dict.fromkeys(linears[:-1][:1], "first linear layer"), dict.fromkeys(linears[-1:], "last linear layer")
    last = {linears[-1]: "last linear layer"} if linears else {convolutions[-1]: "last convolution"}
    return {convolutions[0]: "first convolution"}, last


def _left_out(ending: list[str], keep: list[str]) -> Iterator[str]:
    """A warning that names the binary layers at the end of the network, if there are any."""
    if ending:
        verb, it = ("is", "it") if len(ending) == 1 else ("are", "them")
        yield (
            f"{named(ending)} at the end of the network {verb} binary, because keep leaves {it} out, and this usually "
            f"costs accuracy: to keep {it} float, pass {keeping([*keep, *ending])}"
        )


def _matching(keep: list[str], layers: dict[str, tuple[Layer, str | None]]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for pattern in keep:
        found = [name for name in layers if fnmatchcase(name, pattern)]
        if not found:
            nearest = get_close_matches(pattern, layers, n=1, cutoff=0.0)
            hint = f"; the nearest name is {nearest[0]!r}" if nearest else ""
            raise ConfigError(f"keep: no convolution or linear layer matches {pattern!r}{hint}")
        kept |= dict.fromkeys(found, f"kept by {pattern!r}")
    return kept


def _nothing_left(model: nn.Module, kept: dict[str, str]) -> str:
    binary = sum(isinstance(module, BinaryLayer) for module in model.modules())
    if binary:
        return (
            f"{plural(binary, 'layer')} of {type(model).__name__} {'is' if binary == 1 else 'are'} already binary, and "
            "there is nothing else to binarize: "
            "create the network again, or change the method of a layer with set_method"
        )
    if not kept:
        return (
            f"{type(model).__name__} has no float nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d or nn.Linear, so there is "
            "nothing to binarize"
        )
    found: dict[str, list[str]] = {}
    for name, why in kept.items():
        found.setdefault(why, []).append(name or "the model itself")
    reasons = [f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {why}" for why, names in found.items()]
    own = any(OWN_FORWARD in why for why in found)
    return (
        f"all convolutions and linear layers of {type(model).__name__} stay float ({'; '.join(reasons)}): change the "
        f"argument keep{', or write nn.Conv2d and nn.Linear in place of layers with their own forward' * own}"
    )


def _replace(model: nn.Module, old: nn.Module) -> None:
    """Replace ``old`` with a Hardtanh under each of its names."""
    new = nn.Hardtanh(inplace=bool(getattr(old, "inplace", False))).train(old.training)
    names = [name for name, module in model.named_modules(remove_duplicate=False) if module is old]
    for name in names:
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, new)


def _centres(method: Method) -> bool:
    """Whether signs are taken relative to the mean of the image, so that some are negative even after a ReLU."""
    plain = method.binarization()
    return plain is not None and plain.standardised


def _relus_to_replace(near: Neighbours, report: Conversion) -> set[tuple[str, str]]:
    """(layer of ``report.changed``, ReLU module that feeds it), by name.  Warns of ReLUs that cannot be replaced."""
    found: set[tuple[str, str]] = set()
    for layer, relu in near.relus_before(report.changed):
        if relu is None:
            report.warnings.append(
                f"binarize_ cannot replace the ReLU that feeds binary layer {layer!r}, because it is called in a "
                "forward: call torch.nn.functional.hardtanh there instead"
            )
        else:
            found.add((layer, relu))
    return found


def _of_relus(near: Neighbours, method: str, layers: list[str]) -> Iterator[str]:
    if fed := list(dict.fromkeys(layer for layer, _ in near.relus_before(layers))):
        yield (
            f"ReLUs feed binary {named(fed)}, and {method} does not centre its inputs: a ReLU passes no gradient "
            "where its output is 0; whether hardtanh is better depends on the network, so try both relu='keep' and "
            "relu='hardtanh'"
        )
