"""`rbnn bench`: compare the speed of a packed network with other engines, or time the kernels alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rbnn import _core
from rbnn.bench import busy
from rbnn.bench.kernels import SHAPES, Speed, measure, usable_kernels
from rbnn.cli._streams import say
from rbnn.errors import ConfigError, UnknownName
from rbnn.packed.find import called, find_net, is_packed
from rbnn.text import as_shape, as_size, plural


@dataclass(frozen=True)
class Bench:
    """Time a packed network and its alternatives, taking turns in one process: the float twin in float32 and in int8 on
    torch, ONNX Runtime and OpenVINO, and OpenVINO's binary convolution, whose sums are checked. With --kernels, time
    the binary kernels instead: one 3×3 layer at a time, compared with the peak rate of this core.

    Example: rbnn bench net.rbnn --against onnxruntime,openvino
    """

    net: tyro.conf.Positional[Path | None] = None
    """Packed file (.rbnn) or name of a pretrained network; a run directory or checkpoint is exported first."""
    against: Annotated[str, tyro.conf.arg(metavar="NAME,...")] = "torch,onnxruntime,openvino"
    """Engines to compare with, separated by commas. "" compares with none."""
    kernels: bool = False
    """Time binary convolutions alone, on every instruction set that this machine supports."""
    threads: int = 1
    """Number of threads."""
    batch: int = 1
    """Images per call."""
    seconds: float = 0.5
    """Seconds to spend on each engine or layer."""
    json: bool = False
    """Print JSON.  For a network: net, bytes, float_bytes (of the float twin), kernels, threads, batch, input,
    contenders (engine, numbers, pictures: the type of its input, float32 or uint8; best_ms, median_ms, calls, ratio:
    its best time divided by ours), openvino_binary (layers, exact, largest_difference) or null, left_out, unreliable
    (a sentence if other programs disturbed the timing, otherwise null)."""


def run(options: Bench) -> None:
    """Measure and print."""
    if options.kernels == (options.net is not None):
        raise ConfigError("expected either a network or --kernels: run `rbnn bench NET` or `rbnn bench --kernels`")
    if not (0 < options.seconds <= 60 and 1 <= options.threads <= 1024 and 1 <= options.batch <= 4096):
        raise ConfigError("seconds must be above 0 and at most 60, threads 1 to 1024, batch 1 to 4096")
    if options.net is None:
        _kernels(options)
    else:
        _network(options, find_net(options.net))


def _kernels(options: Bench) -> None:
    measured, unreliable = [], busy.why_unreliable(busy.load_average(), options.threads)
    for name in usable_kernels():
        limit = _core.popcount_limit(name, options.seconds)
        measured += [measure(name, *shape, limit, options.threads, options.seconds) for shape in SHAPES]
    if options.json:
        print(json.dumps([asdict(one) | {"share": one.share} for one in measured], indent=1))
    else:
        Console().print(_kernel_table(measured, options.threads))
    if unreliable:
        say(unreliable)


def _kernel_table(measured: list[Speed], threads: int) -> Table:
    table = Table(title=f"3×3 binary layers, everything fused, {plural(threads, 'thread')}")
    table.add_column("kernels")
    for heading in ("channels @ side", "ms", "GMAC/s", "limit of one core", "share"):
        table.add_column(heading, justify="right")
    for one in measured:
        table.add_row(
            one.kernels,
            f"{one.channels} @ {one.side}",
            f"{one.milliseconds:.3f}",
            f"{one.gmacs:.0f}",
            f"{one.limit:.0f}",
            f"{one.share:.0%}",
        )
    return table


def _network(options: Bench, path: Path) -> None:
    from rbnn.bench.float_twin import float_twin
    from rbnn.bench.rivals.amx import avoid_deadly_amx
    from rbnn.bench.rivals.compare import compare
    from rbnn.bench.rivals.contenders import ENGINES, missing
    from rbnn.packed import file as packfile

    engines = [name.strip() for name in options.against.split(",") if name.strip()]
    for name in engines:
        if name not in ENGINES:
            raise UnknownName("engine", name, ENGINES)
    with _as_packed(path) as file:
        graph, size = packfile.read(file), file.stat().st_size
    left_out = {name: said for name in engines if (said := missing(name))}
    here = [name for name in engines if name not in left_out]
    if "openvino" in here and (said := avoid_deadly_amx()):
        left_out["amx"] = said
    with Console(stderr=True).status("building …") as status:
        found = compare(graph, here, options.threads, options.batch, options.seconds, status.update)
    twin = sum(tensor.nbytes for tensor in float_twin(graph).tensors.values())
    sentences = [*left_out.values(), *found.pop("refused")]
    answer = {"net": str(path), "bytes": size, "float_bytes": twin, **found, "left_out": sentences}
    if options.json:
        print(json.dumps(answer, indent=1))
    else:
        _print(answer)
    if found["unreliable"]:
        say(found["unreliable"])


@contextmanager
def _as_packed(path: Path) -> Iterator[Path]:
    """The packed file of a network.  For a checkpoint it is a temporary file."""
    if is_packed(path):
        yield path
        return
    import torch

    import rbnn
    from rbnn.training.checkpoint import load_network

    network = load_network(path)
    side = network.contract.image_size
    with TemporaryDirectory() as directory:
        file = Path(directory) / "net.rbnn"
        given = network.contract
        example = torch.randn(2, given.channels, side, side)
        rbnn.export(network.model, file, example, given.mean, given.std, given.classes)
        yield file


def _print(answer: dict[str, Any]) -> None:
    console = Console(highlight=False)
    batch, threads = plural(answer["batch"], "image"), plural(answer["threads"], "thread")
    size = as_shape(answer["input"])
    table = Table(title=f"{escape(called(answer['net']))}: {batch} of {size}, {threads}, {answer['kernels']} kernels")
    for heading in ("engine", "numbers"):
        table.add_column(heading)
    for heading in ("best ms", "median ms", "time / ours"):
        table.add_column(heading, justify="right")
    for row in answer["contenders"]:
        ratio = "" if row["engine"] == "rbnn" else f"{row['ratio']:.2f}×"
        table.add_row(row["engine"], row["numbers"], f"{row['best_ms']:.3f}", f"{row['median_ms']:.3f}", ratio)
    console.print(table)
    if answer["contenders"][0]["pictures"] == "uint8":
        console.print(
            "rbnn got images as bytes, because its first layer takes bytes. The other engines got them as float32."
        )
    console.print(
        f"The file has {as_size(answer['bytes'])} and the float twin {as_size(answer['float_bytes'])}: "
        f"it is {answer['float_bytes'] / answer['bytes']:.1f}× smaller."
    )
    if binary := answer["openvino_binary"]:
        console.print(
            f"OpenVINO's binary convolution gives exact sums in {binary['exact']} of {binary['layers']} layers. "
            f"Its outputs differ from ours by at most {binary['largest_difference']:.2g}."
        )
    for sentence in answer["left_out"]:
        console.print(sentence, markup=False)
