"""`rbnn info`: show the bits, MACs and bytes of each layer, and its time in a packed file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from rbnn.packed.find import is_packed, named_file
from rbnn.text import as_count, as_shape, as_size

if TYPE_CHECKING:
    from torch import nn

    from rbnn.costs.model import Costs

COLUMNS = "layer", "kind", "weight", "output", "bits", "params", "1-bit\nMACs", "float\nMACs", "bytes"
EXPENDABLE = "kind", "params", "output", "weight"
"""Columns that a narrow terminal leaves out, the first one first."""


@dataclass(frozen=True)
class Info:
    """Show each layer of a network: shape, bits, parameters, 1-bit and float multiply-accumulates (MACs) for one image,
    and bytes when deployed. The totals are compared with those of the float twin, with what keeps the network from
    being smaller.

    In a deployed network, bits are packed, batch norms are folded into one affine per channel (8 bytes), and every
    other parameter takes 4 bytes. A method with several planes of signs (abc-net, dorefa with more bits) has the bytes
    and the MACs of all planes; xnor++ has its factors per position.

    For a packed file, the command also measures the time of each layer on this machine and says why the network is not
    smaller or faster.

    Example: rbnn info resnet18 --method xnor-net
    """

    net: tyro.conf.Positional[str]
    """Name of a network (`rbnn models`, `rbnn models --pretrained`), run directory (its best epoch), checkpoint or
    packed file (.rbnn)."""
    method: str = ""
    """Binarization method, for the name of a network. The default is rbnn; float is the float twin."""
    activation: str = "hardtanh"
    """Activation after a batch norm or sum, for the name of a network: hardtanh, none, prelu or rprelu."""
    shortcut: str = "own"
    """Shortcut where the size changes, for the name of a network: own, option-a, pool-pad, pool-conv or conv."""
    width: float = 1.0
    """Multiplies the channels of every layer, for the name of a network."""
    classes: int = 0
    """Number of classes, for the name of a network. 0 stands for 10, or for 1000 with images of 224×224."""
    json: bool = False
    """Print JSON with the keys model, method, input (channels, height, width), layers, total and float_parts.
    Each of layers: name, kind, bits, weight, output (shapes), calls, parameters, binary_macs, float_macs, bytes,
    float_bytes (in the float twin). total: the sums of these, bytes_ratio (float twin over this network),
    binary_mac_share (0 to 1), training_only (numbers of the method that are gone at export).
    float_parts: name, bytes and share (0 to 1) of what is not bits, largest first.
    Of a packed file: file, kernels, input, layers (name, kind, bits, weight, output, binary_macs, float_macs, bytes,
    float_bytes, milliseconds, time_share), total (sums of these, and file_bytes), why_not_smaller, why_not_faster,
    inputs (name: shape, of a network with several), answers (name: shape), free_size (the steps of height and width
    that other sizes may have, or null)."""


def run(options: Info) -> None:
    """Count and print."""
    path = named_file(Path(options.net))
    if is_packed(path):
        from rbnn.cli._packed_info import show

        _refuse_description(options, path)
        show(path, options.json)
        return
    import torch

    from rbnn.costs.model import costs

    model, name, method, shape = _network(options)
    found = costs(model, torch.zeros(1, *shape))
    if options.json:
        print(json.dumps(_as_json(name, method, shape, found), indent=2))
    else:
        _print(name, method, shape, found)


def _network(options: Info) -> "tuple[nn.Module, str, str, tuple[int, int, int]]":
    """The network, its name and method, and the shape of one image."""
    from rbnn.errors import CheckpointError, UnknownName
    from rbnn.models import MODELS, create_model, model_names
    from rbnn.packed import pretrained
    from rbnn.training.checkpoint import load_network

    path = Path(options.net)
    if options.net in model_names() and not path.exists():
        method, size = options.method or "rbnn", MODELS[options.net].image_size
        classes = options.classes or (1000 if size == 224 else 10)
        parts: dict[str, Any] = {"activation": options.activation, "shortcut": options.shortcut, "width": options.width}
        model = create_model(options.net, method, num_classes=classes, **parts)
        return model, options.net, method, (3, size, size)
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise CheckpointError(f"no run directory, checkpoint or packed file is named {path}")
        known = [*MODELS, *pretrained.names()]
        raise UnknownName("network, run directory, checkpoint or packed file", options.net, known)
    _refuse_description(options, path)
    network = load_network(path)
    contract = network.contract
    shape = contract.channels, contract.image_size, contract.image_size
    return network.model, network.config.model, network.config.method, shape


def _refuse_description(options: Info, path: Path) -> None:
    from rbnn.errors import ConfigError

    parts = options.activation, options.shortcut, options.width
    if options.method or options.classes or parts != ("hardtanh", "own", 1.0):
        raise ConfigError(
            f"{path} records its method and classes: --method, --classes, --activation, --shortcut and --width "
            "apply only to the name of a network"
        )


def _as_json(name: str, method: str, shape: tuple[int, ...], found: "Costs") -> dict[str, Any]:
    counts = "parameters", "binary_macs", "float_macs", "bytes", "float_bytes"
    of_a_layer = "name", "kind", "bits", "weight", "output", "calls", *counts
    return {
        "model": name,
        "method": method,
        "input": shape,
        "layers": [{key: getattr(layer, key) for key in of_a_layer} for layer in found.layers],
        "total": {key: getattr(found, key) for key in (*counts, "bytes_ratio", "binary_mac_share", "training_only")},
        "float_parts": [{"name": part, "bytes": size, "share": share} for part, size, share in found.float_parts()],
    }


def _print(name: str, method: str, shape: tuple[int, ...], found: "Costs") -> None:
    from rbnn.cli._layer_table import print_layers, wide_console

    console = wide_console()
    norms = [layer for layer in found.layers if layer.kind == "batch norm"]
    rows: list[tuple[str, ...]] = []
    for layer in found.layers:
        if layer not in norms:
            counts = map(as_count, (layer.parameters, layer.binary_macs, layer.float_macs))
            shapes = as_shape(layer.weight), as_shape(layer.output)
            rows.append((layer.name, layer.kind, *shapes, str(layer.bits), *counts, f"{layer.bytes:,}"))
    if norms:
        values, size = sum(norm.parameters for norm in norms), sum(norm.bytes for norm in norms)
        rows.append((f"{len(norms)} batch norms", "affine", "", "", "32", as_count(values), "–", "–", f"{size:,}"))
    totals = map(as_count, (found.parameters, found.binary_macs, found.float_macs))
    total = "total", "", "", "", "", *totals, f"{found.bytes:,}"
    title = f"{name}, {method}, for one image of {as_shape(shape)}"
    print_layers(console, title, COLUMNS, rows, total, EXPENDABLE)
    console.print()
    for line in _summary(found):
        console.print(line)


def _summary(found: "Costs") -> list[str]:
    macs = as_count(found.binary_macs + found.float_macs)
    if not any(layer.bits == 1 for layer in found.layers):
        lines = [f"Deployed {as_size(found.bytes)}, {macs} MACs, all in float."]
    else:
        lines = [
            f"Deployed {as_size(found.bytes)}, the float twin {as_size(found.float_bytes)}: {found.bytes_ratio:.1f}× "
            f"smaller. {100 * found.binary_mac_share:.1f} % of {macs} MACs are 1-bit."
        ]
        parts = found.float_parts()
        shares = [f"{part} {100 * share:.1f} %" for part, _, share in parts[:5]]
        if parts[5:]:
            shares.append(f"{len(parts) - 5} more with {100 * sum(share for _, _, share in parts[5:]):.1f} %")
        lines.append(f"What keeps it from being smaller, by share of its bytes: {', '.join(shares)}.")
    if found.training_only:
        lines.append(
            f"The export drops the latent float weights and {found.training_only:,} numbers of the method (rotations "
            "and β; scales are folded into the affines)."
        )
    uncalled = [layer.name for layer in found.layers if not layer.calls]
    if uncalled:
        lines.append(f"Not called in the forward pass, so without MACs: {', '.join(uncalled)}.")
    return lines
