"""`rbnn info net.rbnn`: what each operation costs, where the time goes, and why it is not smaller or faster."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rbnn import _core
from rbnn.cli._layer_table import print_layers, wide_console
from rbnn.costs.packed import OperationCosts, PackedCosts, packed_costs
from rbnn.packed import file as packfile
from rbnn.packed.find import called
from rbnn.packed.prediction import one_input
from rbnn.packed.sizes import in_words
from rbnn.text import as_count, as_shape, as_size, listed, plural, visible

NARROW = 64
"""Channels that fill a word; a layer with fewer keeps the vector units partly idle."""
COLUMNS = "layer", "kind", "weight", "output", "bits", "MACs", "bytes", "ms", "time", "GMAC/s"
EXPENDABLE = "GMAC/s", "weight", "kind", "output", "bits"
"""Columns that a narrow terminal leaves out, the first one first."""
SHORT = 0.05
"""Below this many milliseconds, a network is so small that its times need more digits."""


def show(path: Path, as_json: bool) -> None:
    """Count, measure and print."""
    graph = packfile.read(path)
    costs = packed_costs(graph, path.stat().st_size)
    height, width, channels = graph.buffers[graph.input.buffer].shape
    answers = graph.output_shapes
    inputs = graph.input_shapes if graph.input.names else {}
    if as_json:
        steps = list(graph.free.steps) if graph.free else None
        more = {"inputs": inputs, "answers": answers, "free_size": steps}
        print(json.dumps(_as_json(path, (channels, height, width), costs) | more, indent=2))
        return
    _print(path, (channels, height, width), costs)
    if graph.free:
        taken = in_words(graph.free.steps, height, width)
        print(f"\nSizes: it takes {taken}. Counts and times are for {height}×{width}.")
    if inputs:
        print(f"\nInputs: {', '.join(f'{visible(name)} {as_shape(shape)}' for name, shape in inputs.items())}")
    if len(answers) > 1:
        print(f"\nOutputs: {', '.join(f'{visible(name)} {as_shape(shape)}' for name, shape in answers.items())}")


def _as_json(path: Path, shape: tuple[int, ...], costs: PackedCosts) -> dict[str, object]:
    layers = []
    for each in costs.operations:
        layer = asdict(each)
        layer["milliseconds"] = round(1e3 * layer.pop("seconds"), 5)
        layers.append(layer | {"time_share": round(costs.share_of_time([each]), 5)})
    sums = {key: costs.total(key) for key in ("binary_macs", "float_macs", "bytes", "float_bytes")}
    return {
        "file": str(path),
        "kernels": _core.chosen_kernels(),
        "input": shape,
        "layers": layers,
        "total": {**sums, "file_bytes": costs.file_bytes, "milliseconds": round(1e3 * costs.total("seconds"), 5)},
        "why_not_smaller": why_not_smaller(costs),
        "why_not_faster": why_not_faster(costs),
    }


def _print(path: Path, shape: tuple[int, int, int], costs: PackedCosts) -> None:
    console = wide_console()
    title = f"{called(path)}, for {one_input(shape)}, one thread, {_core.chosen_kernels()} kernels"
    macs, milliseconds = costs.total("macs"), 1e3 * costs.total("seconds")
    digits = 3 if milliseconds >= SHORT else 5
    rows = [
        (
            each.name,
            each.kind,
            as_shape(each.weight),
            as_shape(each.output),
            str(each.bits or "–"),
            as_count(each.macs),
            f"{each.bytes:,}" if each.bytes else "–",
            f"{1e3 * each.seconds:.{digits}f}",
            f"{costs.share_of_time([each]):.1%}",
            f"{each.gmacs:.0f}" if each.macs else "",
        )
        for each in costs.operations
    ]
    size = f"{costs.total('bytes'):,}"
    total = "total", "", "", "", "", as_count(macs), size, f"{milliseconds:.{digits}f}", "", ""
    print_layers(console, title, COLUMNS, rows, total, EXPENDABLE)
    for heading, lines in (("Why not smaller", why_not_smaller(costs)), ("Why not faster", why_not_faster(costs))):
        console.print(f"\n[bold]{heading}[/bold]")
        for line in lines:
            console.print(f"- {visible(line)}", markup=False)


def why_not_smaller(costs: PackedCosts) -> list[str]:
    """What the file contains besides bits."""
    bits, file = costs.total("bit_bytes"), costs.file_bytes
    twin = costs.total("float_bytes")
    lines = [
        f"The file has {as_size(file)} and its float twin {as_size(twin)}: it is {twin / file:.1f}× smaller. "
        f"Bits alone would make it 32× smaller, but they are only {bits / file:.1%} of the file."
    ]
    parts = [(f"{each.name} ({each.bits}-bit weights)", each.bytes) for each in costs.operations if each.bits > 1]
    affines = sum(each.bytes - each.bit_bytes for each in costs.operations if each.bits <= 1)
    parts += [("scales, shifts and thresholds", affines), ("the list of operations", file - costs.total("bytes"))]
    parts.sort(key=lambda part: -part[1])
    return [*lines, f"The rest: {listed([f'{name} {size / file:.1%}' for name, size in parts if size])}."]


def why_not_faster(costs: PackedCosts) -> list[str]:
    """What takes time besides multiplying bits, and where bits are slower than they could be."""
    lines = []
    if floats := [each for each in costs.operations if each.bits > 1]:
        share, macs = costs.share_of_time(floats), sum(each.macs for each in floats) / costs.total("macs")
        lines.append(
            f"{plural(len(floats), 'layer')} in float or int8: {macs:.1%} of the multiply-adds, {share:.1%} of the "
            f"time ({_slowest(costs, floats)}). Without them it would be {1 / max(1 - share, 1e-3):.2f}× faster."
        )
    if others := [each for each in costs.operations if each.bits == 0]:
        lines.append(
            f"Steps without weights (packing, pooling, sums) take {costs.share_of_time(others):.1%} of the time: "
            f"{_slowest(costs, others)}."
        )
    binary = [each for each in costs.operations if each.bits == 1]
    if binary:
        fastest = max(binary, key=lambda each: each.gmacs)
        lines.append(f"The fastest binary layer is {fastest.name} with {fastest.gmacs:.0f} GMAC/s.")
    if narrow := [each for each in binary if min(each.weight[:2]) < NARROW]:
        speed = sum(each.macs for each in narrow) / sum(each.seconds for each in narrow) / 1e9
        lines.append(
            f"{plural(len(narrow), 'binary layer')} with fewer than {NARROW} input or output channels cannot fill the "
            f"vector units: {speed:.0f} GMAC/s, {costs.share_of_time(narrow):.1%} of the time."
        )
    if centring := [each for each in costs.operations if each.name in costs.centred]:
        lines.append(
            "Centring needs the mean of the whole image before signs can be packed, so packing is a separate step in "
            f"{plural(len(centring), 'layer')}: {costs.share_of_time(centring):.1%} of the time."
        )
    return lines


def _slowest(costs: PackedCosts, operations: Sequence[OperationCosts]) -> str:
    ordered = sorted(operations, key=lambda each: -each.seconds)
    return listed([f"{each.name} {costs.share_of_time([each]):.1%}" for each in ordered])
