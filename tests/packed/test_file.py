"""The packed file: what is written can be read, and invalid files are rejected."""

import json
import re
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_files import ENCODE, rewrite
from packed_networks import small_network
from safetensors.numpy import save_file

from rbnn.data.preprocess import normalise
from rbnn.errors import PackError
from rbnn.packed import file as packfile
from rbnn.packed import oracle
from rbnn.packed.graph import Graph, Input
from rbnn.packed.operations import KINDS, Buffer, Operation
from rbnn.packed.session import Session


@pytest.fixture(params=ENCODE, ids="version {}".format)
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    graph = small_network()
    (tmp_path / "net.rbnn").write_bytes(ENCODE[request.param](packfile._to_json(graph), graph.tensors))
    return tmp_path / "net.rbnn"


def same(read: Graph, written: Graph) -> None:
    assert (read.input, read.output, read.buffers) == (written.input, written.output, written.buffers)
    for found, wanted in zip(read.operations, written.operations, strict=True):
        np.testing.assert_equal(vars(found), vars(wanted))


def test_a_network_survives_the_file(packed: Path) -> None:
    same(packfile.read(packed), small_network())


def test_writing_leaves_one_file_the_same_for_the_same_network(tmp_path: Path) -> None:
    packfile.write(small_network(), tmp_path / "net.rbnn")
    assert [path.name for path in tmp_path.iterdir()] == ["net.rbnn"]
    data = (tmp_path / "net.rbnn").read_bytes()
    packfile.write(packfile.read(tmp_path / "net.rbnn"), tmp_path / "net.rbnn")
    assert (tmp_path / "net.rbnn").read_bytes() == data
    assert len(data) < 1500 + sum(tensor.nbytes for tensor in small_network().tensors.values())


def test_a_file_of_the_first_version_still_loads() -> None:
    """A file of version 1."""
    same(packfile.read(Path(__file__).parent / "version_1.rbnn"), small_network())


def test_a_broken_graph_is_not_written_and_leaves_the_old_file(packed: Path) -> None:
    before = packed.read_bytes()
    graph = small_network()
    graph.operations.pop()
    with pytest.raises(PackError, match="output"):
        packfile.write(graph, packed)
    assert packed.read_bytes() == before


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="no such file"):
        packfile.read(tmp_path / "none.rbnn")
    (tmp_path / "text.rbnn").write_text("hello " * 100)
    with pytest.raises(PackError, match="not a packed network"):
        packfile.read(tmp_path / "text.rbnn")
    (tmp_path / "empty.rbnn").write_bytes(b"")
    with pytest.raises(PackError, match="not a packed network"):
        packfile.read(tmp_path / "empty.rbnn")
    with zipfile.ZipFile(tmp_path / "state.rbnn", "w") as archive:  # as torch.save writes it
        archive.writestr("state/data.pkl", b"")
    with pytest.raises(PackError, match=r"a PyTorch file, not a packed network: pack its network with rbnn\.export"):
        packfile.read(tmp_path / "state.rbnn")
    save_file({"w": np.zeros(3, np.float32)}, tmp_path / "other.rbnn")
    with pytest.raises(PackError, match="rbnn export"):
        packfile.read(tmp_path / "other.rbnn")


def test_every_truncation_is_noticed(packed: Path) -> None:
    data = packed.read_bytes()
    for end in range(0, len(data), 97):
        packed.write_bytes(data[:end])
        with pytest.raises(PackError):
            packfile.read(packed)


def test_every_damaged_byte_is_noticed(packed: Path) -> None:
    data = packed.read_bytes()
    for at in range(0, len(data), 53):
        packed.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(PackError):
            packfile.read(packed)


def test_a_damaged_byte_after_the_header_is_a_wrong_checksum(packed: Path) -> None:
    data = packed.read_bytes()
    for at in range(8 + int.from_bytes(data[:8], "little"), len(data), 53):
        damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        with pytest.raises(PackError, match=r"^damaged, because its checksum does not match: copy or export it again$"):
            packfile.parse(damaged)


def test_a_newer_version_is_refused(packed: Path) -> None:
    data = packed.read_bytes()
    packed.write_bytes(re.sub(rb'"rbnn.version":"."', b'"rbnn.version":"5"', data))
    with pytest.raises(PackError, match=r"version 5.*reads up to 4.*upgrade"):
        packfile.read(packed)


def container(metadata: dict[str, str], entries: str, data: bytes = b"") -> bytes:
    """A safetensors file, its header written by hand."""
    header = f'{{"__metadata__":{json.dumps(metadata)}{entries}}}'.encode()
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "BF16", "F16", "F64", "BOOL", "U64", "F4"])
def test_numbers_of_another_type_are_named(tmp_path: Path, dtype: str) -> None:
    size = {"BF16": 2, "F16": 2, "F64": 8, "U64": 8}.get(dtype, 1) * 2
    entry = f',"w":{{"dtype":"{dtype}","shape":[2],"data_offsets":[0,{1 if dtype == "F4" else size}]}}'
    path = tmp_path / "net.rbnn"
    path.write_bytes(container({"rbnn.version": "1"}, entry, bytes(1 if dtype == "F4" else size)))
    with pytest.raises(PackError, match=rf"tensor 'w' is {dtype}, expected one of F32, I32, I8, U8"):
        packfile.read(path)


def test_a_field_that_is_there_twice_is_refused(packed: Path) -> None:
    def change(parts: dict[str, str], tensors: Any) -> None:
        parts["graph"] = parts["graph"].replace('"stride":[2,2]', '"stride":[2,2],"stride":[1,1]')

    with pytest.raises(PackError, match=r"net\.rbnn: its JSON has the field 'stride' twice"):
        packfile.read(rewrite(packed, change))


def test_a_header_with_a_field_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.rbnn"
    path.write_bytes(container({"rbnn.version": "1"}, ',"__metadata__":{"rbnn.version":"2"}'))
    with pytest.raises(PackError, match=r"the field '__metadata__' twice|not a packed network"):
        packfile.read(path)


def version_2(compressed: bytes, data: bytes = b"") -> bytes:
    """A container of version 2 with any graph and data."""
    ends = len(data), len(data) + len(compressed)
    entries = f',"data":{{"dtype":"U8","shape":[{ends[0]}],"data_offsets":[0,{ends[0]}]}}'
    entries += f',"graph":{{"dtype":"U8","shape":[{len(compressed)}],"data_offsets":[{ends[0]},{ends[1]}]}}'
    return container({"rbnn.version": "2", "rbnn.checksum": ""}, entries, data + compressed)


def test_a_graph_that_would_grow_without_end_is_refused_early() -> None:
    bomb = version_2(zlib.compress(b" " * (1 << 29), 9))
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    with pytest.raises(PackError, match="its graph is larger than 16,777,216 characters"):
        packfile.parse(bomb)
    assert tracemalloc.get_traced_memory()[1] < 4 * packfile.LARGEST_GRAPH
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("compressed", "why"),
    [
        (b"", "checksum does not match"), (b"hello", "checksum does not match"),
        (zlib.compress(b"{}")[:-1], "checksum does not"), (zlib.compress(b"{}") + b"more", "checksum does not match"),
        (zlib.compress(b"\xff\n{}"), "checksum does not match"), (zlib.compress(b"{}"), "list of tensors"),
        (zlib.compress(b"{}\n[]"), "list of tensors"), (zlib.compress(b'{}\n{"w":[]}'), "list of tensors"),
        (zlib.compress(b'{}\n{"w":["F32",1],"w":["F32",1]}'), "the field 'w' twice"),
        (zlib.compress(b"{}\n" + b"[" * 100_000), "list of tensors"), (zlib.compress(b"{}\n{}"), "belongs to no"),
        (zlib.compress(b'{}\n{"w":["F64",1]}'), "tensor 'w' is F64, expected one of"),
        (zlib.compress(b'{}\n{"w":[["F32"],1]}'), "expected one of F32"),
        (zlib.compress(b'{}\n{"w":["F32",true,2]}'), "impossible shape"),
        (zlib.compress(b'{}\n{"w":["F32",-2]}'), "impossible shape"),
        (zlib.compress(b'{}\n{"w":["F32",1,1,1,1,2]}'), "impossible shape"),
        (zlib.compress(b'{}\n{"w":["F32",1e9]}'), "impossible shape"),
        (zlib.compress(b'{}\n{"w":["F32",99999999999999999999]}'), "impossible shape"),
        (zlib.compress(b'{}\n{"w":["F32",3]}'), "does not fit into the file"),
        (zlib.compress(b'{}\n{"v":["I8",1],"w":["F32",1],"u":["U8",3]}'), "does not fit into the file"),
        (zlib.compress(b'{}\n{"\\ud800":["F32",2]}'), "cannot be written as UTF-8"),
        (zlib.compress(b'{}\n{"w":["F32",2]}'), "checksum does not match"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_apart_is_refused(compressed: bytes, why: str) -> None:
    with pytest.raises(PackError, match=why):
        packfile.parse(version_2(compressed, bytes(8)))


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph["operations"][0].update(name=LONG, kind="no such kind"),
        lambda graph: graph["operations"][0].update(kind=LONG),
        lambda graph: graph["operations"][0]["inputs"].update({LONG: "image"}),
        lambda graph: graph["operations"][0]["inputs"].update(x=LONG),
        lambda graph: graph["operations"][0]["tensors"].update(weight=LONG),
        lambda graph: graph["operations"][0]["attributes"].update(kernel=LONG),
        lambda graph: graph["operations"][0]["attributes"].update({LONG: 1}),
        lambda graph: graph["operations"][0]["attributes"].update(kernel=[1] * 100_000),
        lambda graph: graph["buffers"].update({LONG: ["float", 0, 0, 0]}),
        lambda graph: graph.update(output=LONG),
        lambda graph: graph["input"].update(buffer=LONG),
        lambda graph: graph["input"].update(classes=["\ud800" + LONG, *"bcde"]),
        lambda graph: graph["operations"][0].update(name=LONG, inputs={"x": 3}),
    ],
)
def test_a_complaint_is_not_as_long_as_the_file_wants(packed: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(PackError) as caught:
        packfile.read(rewrite(packed, with_graph(change)))
    assert len(str(caught.value)) < 1000


def test_an_unknown_kind_names_the_operation(packed: Path) -> None:
    def change(parts: dict[str, str], tensors: Any) -> None:
        parts["graph"] = parts["graph"].replace('"max_pool_bits"', '"median_pool"')

    with pytest.raises(PackError, match=r"'pool' \(median_pool\)"):
        packfile.read(rewrite(packed, change))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(packed: Path, value: float) -> None:
    def change(parts: Any, tensors: dict[str, Any]) -> None:
        tensors["one.scale"] = np.full(16, value, np.float32)

    with pytest.raises(PackError, match="finite"):
        packfile.read(rewrite(packed, change))


def with_graph(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, str], Any], None]:
    """A ``change`` for `rewrite` that affects only the graph."""

    def rewritten(parts: dict[str, str], tensors: Any) -> None:
        graph = json.loads(parts["graph"])
        change(graph)
        parts["graph"] = json.dumps(graph)

    return rewritten


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("mean", 10**400), ("mean", -(10**400)), ("mean", 1e308), ("mean", -1e7), ("mean", float("nan")),
        ("std", 10**400), ("std", 1e308), ("std", 1e-320), ("std", 9e-31), ("std", 0), ("std", -1),
    ],
    ids=lambda value: str(value)[:9],
)  # fmt: skip
def test_numbers_that_cannot_normalise_are_refused(packed: Path, word: str, value: float) -> None:
    with pytest.raises(PackError, match=f"net.rbnn: {word} of the input must be "):
        packfile.read(rewrite(packed, with_graph(lambda graph: graph["input"].update({word: [value]}))))


@pytest.mark.parametrize(("mean", "std"), [(1e6, 1e-30), (-1e6, 1e-30), (0, 2.9e38), (-1e6, 2.9e38)])
def test_what_is_allowed_normalises_every_picture_to_finite_numbers(packed: Path, mean: float, std: float) -> None:
    graph = packfile.read(rewrite(packed, with_graph(lambda graph: graph["input"].update(mean=[mean], std=[std]))))
    pictures = np.array([0, 255], np.uint8).reshape(2, 1, 1, 1).repeat(3, axis=3)
    assert np.isfinite(normalise(pictures, graph.input.mean, graph.input.std)).all()


SURROGATE = "\ud800"


def rename_a_buffer(graph: dict[str, Any]) -> None:
    graph["buffers"][SURROGATE] = graph["buffers"].pop(graph["input"]["buffer"])
    graph["input"]["buffer"] = SURROGATE


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph["operations"][0].update(name=SURROGATE),
        lambda graph: graph["input"].update(classes=[SURROGATE, *"bcde"]),
        rename_a_buffer,
    ],
    ids=["operation", "class", "buffer"],
)
def test_names_that_are_no_text_are_refused(packed: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(PackError, match=r"the name '\\ud800' cannot be written as UTF-8"):
        packfile.read(rewrite(packed, with_graph(change)))


def test_names_that_are_no_text_are_not_written(tmp_path: Path) -> None:
    graph = small_network()
    with pytest.raises(PackError, match="cannot be written as UTF-8"):
        packfile.write(replace(graph, input=replace(graph.input, classes=(SURROGATE, *"bcde"))), tmp_path / "net.rbnn")
    assert not list(tmp_path.iterdir())


def test_the_document_lists_every_kind() -> None:
    text = (Path(__file__).parents[2] / "docs" / "format.md").read_text()
    for kind, rules in KINDS.items():
        assert f"`{kind}`" in text
        for attribute in rules.attributes:
            assert attribute in text


def several(output: Any, shapes: Any = None) -> Graph:
    graph = small_network()
    return replace(graph, output=output, input=replace(graph.input, classes=()), shapes=shapes or {})


def test_several_answers_are_kept(tmp_path: Path) -> None:
    graph = several({"classes": "logits", "maps": ["e", ["b", "e"]]}, {"e": (3, 8, 4)})
    packfile.write(graph, tmp_path / "net.rbnn")
    read = packfile.read(tmp_path / "net.rbnn")
    assert (read.output, read.shapes) == (graph.output, graph.shapes)
    images = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    answer, values = Session(read)(images), oracle.run_all(read, images)
    assert list(answer) == ["classes", "maps"]
    assert answer["classes"].shape == (2, 5)
    small, (wide, again) = answer["maps"]
    np.testing.assert_allclose(wide, values["b"].transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(small, values["e"].transpose(0, 3, 1, 2).reshape(2, 3, 8, 4), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(again, small)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (several([]), "1 to 256 buffers"),
        (several(["logits", 3]), "must be a buffer, or several"),
        (several(["logits", "image"]), "'image' is not a float buffer that some operation writes"),
        (several({"x": "b.bits"}), "'b.bits' is not a float buffer"),
        (several([[[[[[[[["logits"]]]]]]]]]), "at most 8 levels deep"),
        (several([["logits"] * 200] * 200), "has 40000 outputs, but at most 256 are possible"),
        (several("logits", {"logits": (6,)}), r"'logits' cannot have the shape"),
        (several("logits", {"e": (96,)}), r"'e' cannot have the shape"),
        (replace(several(["logits", "logits"]), input=small_network().input), "5 class names for"),
    ],
)  # fmt: skip
def test_answers_that_are_none(graph: Graph, words: str) -> None:
    with pytest.raises(PackError, match=words):
        graph.check()


def test_names_of_tensors_are_found_in_linear_time() -> None:
    """All operations have the same name; making it unique by trying every number used to take minutes."""
    count = 20_000
    buffers = {"image": Buffer("float", (1, 1, 1))} | {f"x{i}": Buffer("float", (1, 1, 1)) for i in range(count)}
    values = np.zeros((count, 1, 1, 1), np.float32)
    values[-1] = np.nan
    operations = [Operation("constant", "a", {}, {"float": f"x{i}"}, {"value": values[i]}) for i in range(count)]
    graph = Graph(Input("image"), "x0", buffers, operations)
    start = time.process_time()
    with pytest.raises(PackError, match=r"tensor 'a\.value\.20000' has values that are not finite"):
        graph.check()
    assert time.process_time() - start < 5


@pytest.mark.parametrize("shapes", [[], {"logits": 5}, {"logits": [5.0]}, {"logits": [0]}, {"logits": [-5, -1]}])
def test_shapes_that_are_none(packed: Path, shapes: Any) -> None:
    change = with_graph(lambda graph: graph.update(shapes=shapes))
    with pytest.raises(PackError, match="shapes of its outputs must be lists of whole numbers"):
        packfile.read(rewrite(packed, change))
