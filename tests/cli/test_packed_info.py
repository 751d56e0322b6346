"""`rbnn info net.rbnn`: bytes and multiply-adds against counts by hand, measured times, and the reasons it gives."""

import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from answers import WITHOUT_TORCH, Rbnn
from packed_networks import small_network

from rbnn.cli._packed_info import why_not_faster, why_not_smaller
from rbnn.costs.packed import OperationCosts, PackedCosts
from rbnn.packed import file as packfile
from rbnn.packed import pretrained
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import Buffer, Operation


@pytest.fixture
def net(tmp_path: Path) -> Path:
    packfile.write(small_network(), tmp_path / "net.rbnn")
    return tmp_path / "net.rbnn"


def test_layers_are_counted(net: Path, rbnn: Rbnn) -> None:
    answer = rbnn("info", net, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert found["input"] == [3, 8, 8]
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert list(layers) == ["stem", "pack", "one", "two", "pool", "three", "mean", "fc"]
    # name → bits, weight, bytes, of these packed, bytes of the twin, 1-bit MACs, float MACs
    wanted = {
        "stem": (32, [16, 3, 3, 3], 4 * 432, 0, 4 * 432, 0, 64 * 432),
        "pack": (0, [], 0, 0, 0, 0, 0),
        "one": (1, [16, 16, 3, 3], 288 + 128, 288, 4 * 2304 + 128, 64 * 2304, 0),
        "two": (1, [32, 16, 3, 3], 576 + 128, 576, 4 * 4608 + 128, 16 * 4608, 0),
        "pool": (0, [], 4, 0, 4, 0, 0),
        "three": (1, [24, 32, 1, 1], 96 + 96, 96, 4 * 768 + 96, 4 * 768, 0),
        "fc": (32, [5, 24, 1, 1], 480 + 20, 0, 480 + 20, 0, 120),
    }
    for name, numbers in wanted.items():
        keys = "bits", "weight", "bytes", "bit_bytes", "float_bytes", "binary_macs", "float_macs"
        assert tuple(layers[name][key] for key in keys) == numbers, name
    assert layers["two"]["output"] == [32, 4, 4]
    assert all(layer["milliseconds"] > 0 for layer in layers.values())
    assert sum(layer["time_share"] for layer in layers.values()) == pytest.approx(1, abs=1e-3)
    assert found["total"]["bytes"] == sum(row[2] for row in wanted.values())
    assert found["total"]["file_bytes"] == net.stat().st_size


def test_a_shared_tensor_is_stored_once(tmp_path: Path, rbnn: Rbnn) -> None:
    graph = small_network()
    one = graph.operations[2].tensors
    one["shift"] = one["scale"]
    packfile.write(graph, tmp_path / "net.rbnn")
    layers = {layer["name"]: layer for layer in json.loads(rbnn("info", tmp_path / "net.rbnn", "--json").out)["layers"]}
    assert layers["one"]["bytes"] == 288 + 64


def operation(name: str, bits: int, milliseconds: float, channels: int = 64, **more: int) -> OperationCosts:
    numbers = {"binary_macs": 0, "float_macs": 0, "bytes": 0, "bit_bytes": 0, "float_bytes": 0} | more
    weight = (64, channels, 3, 3) if bits else ()
    return OperationCosts(name, "kind", bits, weight, (64, 8, 8), seconds=milliseconds / 1e3, **numbers)


COSTS = PackedCosts(
    [
        operation("stem", 32, 4, float_macs=1_000_000, bytes=3000, float_bytes=3000),
        operation("centre", 0, 1),
        operation("wide", 1, 3, binary_macs=6_000_000, bytes=5000, bit_bytes=4000, float_bytes=129_000),
        operation("narrow", 1, 2, 16, binary_macs=1_000_000, bytes=1000, bit_bytes=1000, float_bytes=32_000),
    ],
    file_bytes=10_000,
    centred=["centre"],
)


def test_why_not_smaller() -> None:
    assert why_not_smaller(COSTS) == [
        "The file has 10.0 kB and its float twin 164.0 kB: it is 16.4× smaller. Bits alone would make it 32× smaller, "
        "but they are only 50.0% of the file.",
        "The rest: stem (32-bit weights) 30.0%, scales, shifts and thresholds 10.0%, the list of operations 10.0%.",
    ]


def test_why_not_faster() -> None:
    assert why_not_faster(COSTS) == [
        "1 layer in float or int8: 12.5% of the multiply-adds, 40.0% of the time (stem 40.0%). Without them it would "
        "be 1.67× faster.",
        "Steps without weights (packing, pooling, sums) take 10.0% of the time: centre 10.0%.",
        "The fastest binary layer is wide with 2 GMAC/s.",
        "1 binary layer with fewer than 64 input or output channels cannot fill the vector units: 0 GMAC/s, 20.0% of "
        "the time.",
        "Centring needs the mean of the whole image before signs can be packed, so packing is a separate step in "
        "1 layer: 10.0% of the time.",
    ]


def test_the_table_needs_no_torch(net: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, "info", str(net)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Why not smaller" in done.stdout
    assert "Why not faster" in done.stdout
    assert next(line.split()[1:5] for line in done.stdout.splitlines() if line.startswith("two")) == [
        "binary_conv", "32×16×3×3", "32×4×4", "1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["info", "none.rbnn"], "none.rbnn: no such file"),
        (["info", "NET", "--method", "rbnn"], "apply only to the name of a network"),
    ],
    ids=["missing", "method"],
)
def test_one_sentence(words: list[str], says: str, net: Path, rbnn: Rbnn) -> None:
    answer = rbnn(*(net if word == "NET" else word for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert answer.err.count("\n") == 1


def table_of(text: str) -> list[str]:
    return text.partition("Why not smaller")[0].splitlines()


def test_at_80_columns_names_and_times_are_whole(monkeypatch: pytest.MonkeyPatch, rbnn: Rbnn) -> None:
    """A narrow terminal omits some columns but cuts nothing in the others."""
    monkeypatch.setenv("COLUMNS", "80")
    table = table_of(rbnn("info", "resnet20-bireal-cifar10").out)
    assert max(map(len, table)) <= 80
    assert "/" not in table[0]  # its name, not the place of the package
    assert not any("…" in line for line in table)
    names = [each.name for each in packfile.read(pretrained.path("resnet20-bireal-cifar10")).operations]
    rule = next(place for place, line in enumerate(table) if line.startswith("───"))
    assert [line.split()[0] for line in table[rule + 1 : rule + 1 + len(names)]] == names
    rows = [line.split() for line in table if line.startswith("layers.2.2.conv")]
    assert len(rows) == 4
    for row in rows:
        milliseconds, share = row[-2:]
        assert re.fullmatch(r"\d+\.\d{3}", milliseconds)
        assert re.fullmatch(r"\d+\.\d%", share)


def test_a_name_without_room_goes_on_in_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rbnn: Rbnn
) -> None:
    graph, name = small_network(), ".".join(["encoder", *map(str, range(40)), "projection"])
    graph.operations[2] = replace(graph.operations[2], name=name)
    packfile.write(graph, tmp_path / "net.rbnn")
    monkeypatch.setenv("COLUMNS", "80")
    table = table_of(rbnn("info", tmp_path / "net.rbnn").out)
    assert max(map(len, table)) <= 80
    begin = next(place for place, line in enumerate(table) if line.startswith("encoder"))
    assert name.startswith(table[begin].split()[0] + table[begin + 1].strip())
    assert "".join(line.split()[0] for line in table[begin:] if line.strip()).startswith(name)
    monkeypatch.delenv("COLUMNS")
    assert any(line.startswith(f"{name} ") for line in table_of(rbnn("info", tmp_path / "net.rbnn").out))


def test_the_time_is_linear_in_the_operations(tmp_path: Path, rbnn: Rbnn) -> None:
    """Eight times as many operations would take up to 64 times as long if every operation searched all others."""

    def seconds(count: int) -> float:
        buffers = {f"x{i}": Buffer("float", (1, 1, 1)) for i in range(count + 1)}
        steps = [Operation("add", f"{i}", {"a": f"x{i}", "b": f"x{i}"}, {"float": f"x{i + 1}"}) for i in range(count)]
        packfile.write(Graph(Input("x0"), f"x{count}", buffers, steps), tmp_path / "net.rbnn")
        start = time.process_time()
        assert rbnn("info", tmp_path / "net.rbnn", "--json").code == 0
        return time.process_time() - start

    seconds(10)  # imports
    assert seconds(5600) < 20 * seconds(700)
