"""Hostile files: nothing in them is executed or written elsewhere, and no size in them is trusted."""

import io
import os
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults import Fault
from killed_run import server
from packed_networks import small_network
from PIL import Image
from restricted import answers

from rbnn.data import _files
from rbnn.errors import DataError, PackError
from rbnn.packed import file as packfile
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.plans import build
from rbnn.packed.session import Session

LARGE = 20 << 30
"""More memory than the process may use."""


class Program:
    """Code that runs if the pickle is loaded without care."""

    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.touched}'",)


def pickled_program(good: Path, path: Path) -> None:
    torch.save(torch.load(good, weights_only=True) | {"more": Program(path.parent / "touched")}, path)


def rezipped(change: Callable[[str, bytes], tuple[bytes, int]]) -> Callable[[Path, Path], None]:
    """The same container with changed members: ``change(name, bytes)`` returns bytes and a compression method."""

    def rezip(good: Path, path: Path) -> None:
        with zipfile.ZipFile(good) as container, zipfile.ZipFile(path, "w") as other:
            for name in container.namelist():
                data, compression = change(name, container.read(name))
                other.writestr(name, data, compression)

    return rezip


def compressed_zeros(name: str, data: bytes) -> tuple[bytes, int]:
    if name.endswith("data/0"):
        return bytes(512 << 20), zipfile.ZIP_DEFLATED
    return data, zipfile.ZIP_STORED


def lying_about_a_storage(name: str, data: bytes) -> tuple[bytes, int]:
    """The pickle's first storage claims 2³⁰ elements; its bytes in the file are unchanged."""
    if name.endswith("data.pkl"):
        at = data.index(b"cpuq")
        at = data.index(b"K", at)
        data = data[:at] + b"J" + struct.pack("<i", 1 << 30) + data[at + 2 :]
    return data, zipfile.ZIP_STORED


def one_member_many_times(good: Path, path: Path) -> None:
    """A thousand names for the same bytes: each is as large as the file."""
    with zipfile.ZipFile(path, "w") as container:
        container.writestr("archive/data.pkl", bytes(1 << 20))
        for number in range(1000):
            copy = zipfile.ZipInfo(f"archive/data/{number}")
            copy.file_size = copy.compress_size = 1 << 20
            copy.header_offset, copy.CRC = 0, zlib.crc32(bytes(1 << 20))
            container.filelist.append(copy)


def with_state(**change: Any) -> Callable[[Path, Path], None]:
    def write(good: Path, path: Path) -> None:
        state = torch.load(good, weights_only=True)
        for key, value in change.items():
            state[key] = {**state[key], **value}
        torch.save(state, path)

    return write


CHECKPOINTS: dict[str, Callable[[Path, Path], None]] = {
    "a program": pickled_program,
    "a bomb of zeros": rezipped(compressed_zeros),
    "a storage that is not there": rezipped(lying_about_a_storage),
    "a member many times": one_member_many_times,
    "pictures without end": with_state(contract={"image_size": 10**9}, config={"model": "vgg-small"}),
    "channels without end": with_state(contract={"channels": 10**9, "mean": [0.5], "std": [0.5]}),
    "a tensor without end": with_state(model={"conv1.weight": torch.zeros(1).expand(1 << 20, 1 << 20)}),
    "options without end": with_state(config={"method": "abc-net", "options": {"weight_bases": 10**9}}),
}


QUICK = {"a program", "pictures without end"}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in CHECKPOINTS])
def test_hostile_checkpoints(name: str, undisturbed: Path, tmp_path: Path, fault: Fault) -> None:
    path = tmp_path / "hostile.pt"
    CHECKPOINTS[name](undisturbed / "best.pt", path)
    with fault("hostile checkpoint"):
        ((code, out, err),) = answers([["eval", str(path)]], tmp_path)
        assert (code, out) == (2, ""), err
        assert err.startswith("rbnn: ")
        assert err.count("\n") == 1
        assert not (tmp_path / "touched").exists()


def header(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


PACKED = {
    "a header without end": header(b"{}", 1 << 62),
    "a header as long as memory": header(b"{" + b" " * 1000, LARGE),
    "a tensor without end": header(
        b'{"x":{"dtype":"F32","shape":[4294967296,1024],"data_offsets":[0,17592186044416]}}'
    ),
    "a shape that overflows": header(b'{"x":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'),
    "offsets that run backwards": header(b'{"x":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}}') + bytes(8),
    "a nest": header(b'{"x":' * 5000 + b"1" + b"}" * 5000),
}


@pytest.mark.parametrize("name", PACKED)
def test_hostile_packed_files(name: str, tmp_path: Path, fault: Fault) -> None:
    path = tmp_path / "hostile.rbnn"
    path.write_bytes(PACKED[name])
    with fault("hostile packed file"):
        ((code, out, err),) = answers([["info", str(path)]], tmp_path)
        assert (code, out, err.count("\n")) == (2, "", 1), err


def _read_again_and_again(path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(PackError):
            packfile.read(path)


@pytest.mark.parametrize("seconds", [1, pytest.param(20, marks=pytest.mark.long)])
def test_a_file_that_is_cut_while_it_is_read(seconds: float, tmp_path: Path, fault: Fault) -> None:
    """If the file were memory-mapped, SIGBUS would end the process."""
    graph, path = small_network(), tmp_path / "net.rbnn"
    large = np.zeros((2, 1, 1 << 20), np.float32)
    for name in (f"large{i}" for i in range(4)):
        graph.buffers[name] = Buffer("float", large.shape)
        graph.operations.append(Operation("constant", name, {}, {"float": name}, {"value": large + 0}))
    packfile.write(graph, path)
    data = path.read_bytes()
    reader = server().Process(target=_read_again_and_again, args=(path, seconds))
    reader.start()
    with fault("packed file cut while it is read"):
        while reader.is_alive():
            with path.open("r+b") as file:  # in place: the same file, truncated and extended
                file.truncate(9)
                file.seek(0)
                file.write(data)
            reader.join(0.003)
        assert reader.exitcode == 0


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.long)])
def test_pools_of_many_taps_are_checked_by_arithmetic(count: int, fault: Fault) -> None:
    """Each of their windows has 255 × 255 taps, and there are 16,384 per side."""
    buffers = {"image": Buffer("float", (1, 16384, 1)), "y": Buffer("float", (1, 1, 1))}
    attributes = {"kernel": [1, 255], "stride": [1, 1], "padding": [0, 127]}
    operations = []
    for i in range(count):
        buffers[f"x{i}"] = Buffer("float", (1, 16384, 1))
        operations.append(Operation("max_pool", f"pool{i}", {"x": "image"}, {"float": f"x{i}"}, {}, attributes))
    operations.append(Operation("mean", "mean", {"x": f"x{count - 1}"}, {"float": "y"}, {}, {"over": "hw"}))
    start = time.process_time()
    with fault("hostile packed file"):
        Graph(Input("image"), "y", buffers, operations).check()
        assert time.process_time() - start < count / 100


def test_a_small_file_cannot_ask_for_all_memory(tmp_path: Path, fault: Fault) -> None:
    """Buffers are declared, not stored: each one is allowed, but together they are not."""
    side = 1 << 13
    buffers = {"image": Buffer("float", (1, 1, 1))} | {f"x{i}": Buffer("float", (side, side, 1)) for i in range(5)}
    operations = [
        Operation(
            "pad", "pad", {"x": "image"}, {"float": "x0"}, {}, {"before": [0, 0, 0], "after": [side - 1, side - 1, 0]}
        )
    ]
    operations += [Operation("add", f"add{i}", {"a": f"x{i}", "b": f"x{i}"}, {"float": f"x{i + 1}"}) for i in range(4)]
    graph = Graph(Input("image"), "x4", buffers, operations)
    with fault("hostile packed file"), pytest.raises(PackError, match="values, and at most 268,435,456 are allowed"):
        graph.check()
    with fault("hostile packed file"), pytest.raises(PackError, match="buffers together are too large"):
        build(graph, "portable")


def wide_kernels(kind: str, count: int) -> Graph:
    """Convolutions with one weight and a kernel larger than the image: no two pixels see the same taps."""
    side, kernel = 40, 81
    first = Operation("pack", "signs", {"x": "image"}, {"bits": "x"})
    weight: Any = np.ones((1, kernel, kernel, 1), np.uint8)
    if kind == "int8_conv":
        one = np.ones(1, np.float32)
        first = Operation("quantize", "bytes", {"x": "image"}, {"bytes": "x"}, {"scale": one, "shift": one})
        weight = weight.astype(np.int8)
    operations = [first]
    buffers = {"image": Buffer("float", (side, side, 1))}
    buffers["x"] = Buffer("bits" if kind == "binary_conv" else "bytes", (side, side, 1))
    for i in range(count):
        buffers[f"y{i}"] = Buffer("float", (side + kernel - 1, side + kernel - 1, 1))
        operations.append(
            Operation(kind, f"conv{i}", {"x": "x"}, {"float": f"y{i}"}, {"weight": weight},
                      {"kernel": [kernel, kernel], "padding": [kernel - 1, kernel - 1]})
        )  # fmt: skip
    return Graph(Input("image"), f"y{count - 1}", buffers, operations)


@pytest.mark.parametrize("kind", ["binary_conv", "int8_conv"])
def test_a_small_file_cannot_ask_for_all_time(kind: str, fault: Fault) -> None:
    with fault("hostile packed file"):
        start = time.process_time()
        Session(wide_kernels(kind, 16))
        assert time.process_time() - start < 1
    with fault("hostile packed file"), pytest.raises(PackError, match=r"'conv72' .* borders .* differ too much"):
        Session(wide_kernels(kind, 100))


def test_weights_that_grow_in_memory(fault: Fault) -> None:
    """One channel is stored as 64."""
    shape = (255, 255, 130)
    buffers = {"image": Buffer("float", shape), "y": Buffer("float", (1, 1, 1))}
    weight = np.zeros((1, *shape), np.float32)
    large = Operation("float_conv", "large", {"x": "image"}, {"float": "y"}, {"weight": weight}, {"kernel": [255, 255]})
    graph = Graph(Input("image"), "y", buffers, [large])
    with fault("hostile packed file"), pytest.raises(PackError, match=r"'large' .* take more than 2 GB"):
        Session(graph)


def archive(members: dict[str, bytes], path: Path, **fields: Any) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in fields.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "folder/../../outside", "wanted"])
def test_archives_write_nothing(name: str, tmp_path: Path, fault: Fault) -> None:
    path = archive({name: b"harm", "wanted": b"data"}, tmp_path / "a.tar.gz")
    before = sorted(tmp_path.parent.rglob("*"))
    with fault("hostile archive"):
        assert dict(_files.members(path, ["wanted"], 100))["wanted"] in (b"data", b"harm")
        assert sorted(tmp_path.parent.rglob("*")) == before


def test_archives_with_links_and_lies(tmp_path: Path, fault: Fault) -> None:
    linked = archive({"wanted": b""}, tmp_path / "a.tar.gz", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    with fault("hostile archive"), pytest.raises(DataError, match="does not contain wanted"):
        dict(_files.members(linked, ["wanted"], 100))
    large = archive({"wanted": bytes(101)}, tmp_path / "b.tar.gz")
    with fault("hostile archive"), pytest.raises(DataError, match="at most 100 bytes"):
        dict(_files.members(large, ["wanted"], 100))


def bomb_of_pixels(width: int, height: int) -> bytes:
    """A PNG that claims this many pixels and contains none."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(999))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(60_000, 60_000), (2**31 - 1, 1), (100_000, 10_000)])
def test_pictures_that_claim_any_size(size: tuple[int, int], tmp_path: Path, fault: Fault) -> None:
    packfile.write(small_network(), tmp_path / "net.rbnn")
    (tmp_path / "bomb.png").write_bytes(bomb_of_pixels(*size))
    with fault("hostile image"):
        ((code, out, err),) = answers([["predict", "net.rbnn", "bomb.png"]], tmp_path)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert "bomb.png" in err


def test_thin_pictures_that_would_grow(tmp_path: Path, fault: Fault) -> None:
    """A few kilobytes with all the pixels that they claim; scaled by the shorter side they would fill the memory."""
    packfile.write(small_network(), tmp_path / "net.rbnn")
    Image.new("1", (60_000_000, 1)).save(tmp_path / "wide.png")
    Image.new("1", (1, 30_000_000)).save(tmp_path / "high.png")
    names = "wide.png", "high.png"
    for name, (code, out, err) in zip(
        names, answers([["predict", "net.rbnn", n] for n in names], tmp_path), strict=True
    ):
        with fault("hostile image"):
            assert (code, out, err.count("\n")) == (2, "", 1), err
            assert err.startswith(f"rbnn: {name} of ")
