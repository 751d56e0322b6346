"""The ``.rbnn`` file: a safetensors container with the graph as JSON (docs/format.md).

Nothing in a file is executed, and nothing is trusted: any deviation from the format raises a PackError.
"""

import hashlib
import json
import os
import struct
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize

from rbnn.errors import PackError
from rbnn.files import write_whole
from rbnn.packed.graph import Graph, Input, check_name
from rbnn.packed.operations import LARGEST_BUFFER, Buffer, Operation, is_whole
from rbnn.packed.site import Follows, Number
from rbnn.packed.sizes import Free
from rbnn.text import quoted, shorten

VERSION = 4
DTYPES = {"F32": np.float32, "I32": np.int32, "I8": np.int8, "U8": np.uint8}
"""The allowed dtypes of tensors, by their names in the file."""
LARGEST_FILE = 4 << 30
"""In bytes; a network's weights fill at most half of it."""
LARGEST_GRAPH = 1 << 24
"""In characters, for the decompressed graph and list of tensors: tens of thousands of operations."""
MOST_SIDES = 4
"""Dimensions of a tensor."""
NOT_ONE = "not a packed network, or only a part of one: copy or export it again"
DAMAGED = "damaged, because its checksum does not match: copy or export it again"
PYTORCH = "a PyTorch file, not a packed network: pack its network with rbnn.export, or a run with `rbnn export`"


def write(graph: Graph, path: str | Path) -> None:
    """Check the graph and write it, completely or not at all, even if the power fails."""
    graph.check()
    data = encode(_to_json(graph), graph.tensors)
    write_whole(Path(path), lambda file: file.write(data))


def encode(text: str, tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """A file of the current version; the same network gives the same bytes."""
    # The widest types come first, so that every tensor is aligned to its element size.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)
    letters = {np.dtype(kind): letter for letter, kind in DTYPES.items()}
    listed = {name: [letters[array.dtype], *array.shape] for name, array in ordered}
    lines = f"{text}\n{_dumped(listed)}"
    if len(lines) > LARGEST_GRAPH:
        raise PackError(f"its graph takes {len(lines):,} characters, but at most {LARGEST_GRAPH:,} can be read")
    parts = {"data": b"".join(array.tobytes() for _, array in ordered), "graph": zlib.compress(lines.encode(), 9)}
    header: dict[str, Any] = {"__metadata__": {"rbnn.version": str(VERSION), "rbnn.checksum": checksum(text, tensors)}}
    start = 0
    for name, part in parts.items():
        header[name] = {"dtype": "U8", "shape": [len(part)], "data_offsets": [start, start + len(part)]}
        start += len(part)
    head = _dumped(header).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + b"".join(parts.values())


def read(path: str | Path) -> Graph:
    """The checked graph of a packed file."""
    path = Path(path)
    try:
        graph = parse(_bytes(path))
    except PackError as reason:
        raise PackError(f"{path}: {reason}") from None
    return graph


def _bytes(path: Path) -> bytes:
    """The whole file in memory.  A memory map would crash the process if the file is truncated meanwhile."""
    if not path.is_file():
        raise PackError("no such file")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size) if size <= LARGEST_FILE else b""
    except OSError as reason:
        raise PackError(f"cannot be read: {reason.strerror or reason}") from None
    except MemoryError:
        raise PackError("it does not fit into memory") from None
    if not data:
        raise PackError(f"{NOT_ONE}: expected 1 to {LARGEST_FILE:,} bytes")
    return data


def parse(data: bytes) -> Graph:
    """The checked graph of a packed file in memory."""
    try:
        stored = deserialize(data)  # type: ignore[no-untyped-call]
        metadata = _metadata(data)
    except (SafetensorError, ValueError, TypeError, MemoryError, RecursionError):
        raise PackError(PYTORCH if data.startswith(b"PK") and b"data.pkl" in data else NOT_ONE) from None
    if _version(metadata) == 1:
        text = metadata.get("rbnn.graph", "")
        tensors = {name: _tensor(name, **fields) for name, fields in stored}
    else:
        text, tensors = _unpacked(dict(stored))
    if metadata.get("rbnn.checksum") != checksum(text, tensors):
        raise PackError(DAMAGED)
    graph = _from_json(text, tensors)
    graph.check()
    return graph


def _metadata(data: bytes) -> dict[str, str]:
    """The metadata of a valid container."""
    (length,) = struct.unpack("<Q", data[:8])
    metadata: dict[str, str] = _json(data[8 : 8 + length]).get("__metadata__", {})
    return metadata


def _json(text: str | bytes) -> Any:
    """JSON without duplicate fields, because readers differ in which one counts."""

    def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            names = Counter(name for name, _ in pairs)
            raise PackError(f"its JSON has the field {quoted(names.most_common(1)[0][0])} twice")
        return fields

    return json.loads(text, object_pairs_hook=without_repeats)


def _unpacked(stored: dict[str, Any]) -> tuple[str, dict[str, NDArray[Any]]]:
    """The graph as JSON and the tensors of a file since version 2."""
    if set(stored) != {"data", "graph"} or {fields["dtype"] for fields in stored.values()} != {"U8"}:
        raise PackError(NOT_ONE)
    text, _, listed = _inflated(stored["graph"]["data"]).partition("\n")
    try:
        items = [(name, dtype, shape) for name, (dtype, *shape) in _json(listed).items()]
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise PackError("its list of tensors is invalid") from None
    data = memoryview(stored["data"]["data"])
    tensors, start = {}, 0
    for name, dtype, shape in items:
        check_name(name)
        if len(shape) > MOST_SIDES or not all(is_whole(side, 1, LARGEST_FILE) for side in shape):
            raise PackError(f"tensor {quoted(name)} has the impossible shape {quoted(shape)}")
        width = _dtype(name, dtype).itemsize
        end = start + prod(shape) * width
        if start % width or end > len(data):
            raise PackError(f"tensor {quoted(name)} does not fit into the file")
        tensors[name] = _tensor(name, dtype, shape, data[start:end])
        start = end
    if start != len(data):
        raise PackError("it contains data that belongs to no tensor")
    return text, tensors


def _inflated(data: bytes) -> str:
    """Decompress to at most ``LARGEST_GRAPH``, whatever the bytes claim.  zlib adds a checksum of its own."""
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, LARGEST_GRAPH)
        if unpacker.unconsumed_tail:
            raise PackError(f"its graph is larger than {LARGEST_GRAPH:,} characters")
        if not unpacker.eof or unpacker.unused_data:
            raise PackError(DAMAGED)
        return text.decode()
    except (zlib.error, UnicodeDecodeError):
        raise PackError(DAMAGED) from None


def checksum(text: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over the graph string and every tensor: name, dtype, shape, bytes, in the order of names."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _version(metadata: dict[str, str]) -> int:
    version = metadata.get("rbnn.version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 10 and int(version) > 0):
        raise PackError("a safetensors file, but not a packed network: export it with `rbnn export`")
    if int(version) > VERSION:
        raise PackError(f"format version {version}, but this rbnn reads up to {VERSION}: pip install --upgrade rbnn")
    return int(version)


def _dtype(name: str, dtype: Any) -> np.dtype[Any]:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        said = dtype if isinstance(dtype, str) else repr(dtype)
        raise PackError(f"tensor {quoted(name)} is {shorten(said, 200)}, expected one of {', '.join(DTYPES)}")
    return np.dtype(DTYPES[dtype])


def _tensor(name: str, dtype: str, shape: list[int], data: bytearray | memoryview) -> NDArray[Any]:
    """``dtype`` is the name in safetensors."""
    try:
        return np.frombuffer(data, _dtype(name, dtype)).reshape(shape)
    except ValueError:
        raise PackError(f"tensor {quoted(name)} has the impossible shape {quoted(shape)}") from None


def _to_json(graph: Graph) -> str:
    names = {id(tensor): name for name, tensor in graph.tensors.items()}
    value: dict[str, Any] = {
        "input": {
            "buffer": graph.input.buffer,
            "mean": list(graph.input.mean),
            "std": list(graph.input.std),
            "classes": list(graph.input.classes),
            **({"names": graph.input.names} if graph.input.names else {}),
        },
        "output": graph.output,
        "buffers": {name: [buffer.type, *buffer.shape] for name, buffer in graph.buffers.items()},
        "operations": [
            {
                "kind": operation.kind,
                "name": operation.name,
                "inputs": operation.inputs,
                "outputs": operation.outputs,
                "tensors": {role: names[id(array)] for role, array in operation.tensors.items()},
                "attributes": operation.attributes,
                **({"follows": _followed(operation.follows)} if operation.follows else {}),
            }
            for operation in graph.operations
        ],
    }
    if graph.shapes:
        value["shapes"] = {name: list(shape) for name, shape in graph.shapes.items()}
    if graph.free:
        value["free"] = {"steps": list(graph.free.steps), "shapes": _followed(graph.free.shapes)}
    return _dumped(value)


def _followed(given: Mapping[str, list[Number]]) -> dict[str, list[Any]]:
    return {role: [each if isinstance(each, int) else list(astuple(each)) for each in given[role]] for role in given}


def _dumped(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _from_json(text: str, tensors: dict[str, NDArray[Any]]) -> Graph:
    try:
        value = _json(text)
    except (ValueError, RecursionError):
        raise PackError("its graph is not JSON") from None
    shapes, free = (value.pop("shapes", {}), value.pop("free", None)) if isinstance(value, dict) else ({}, None)
    top = _fields(value, "the graph", {"input": dict, "output": str | list | dict, "buffers": dict, "operations": list})
    names = top["input"].pop("names", {})
    if not isinstance(names, dict) or not all(isinstance(buffer, str) for buffer in names.values()):
        raise PackError("the names of its inputs must each have a buffer")
    given = _fields(top["input"], "the input", {"buffer": str, "mean": list, "std": list, "classes": list})
    for word, kind in (("mean", (int, float)), ("std", (int, float)), ("classes", str)):
        if not all(isinstance(item, kind) and not isinstance(item, bool) for item in given[word]):
            raise PackError(f"{word} of the input has values of the wrong type")
    return Graph(
        Input(given["buffer"], tuple(given["mean"]), tuple(given["std"]), tuple(given["classes"]), names),
        top["output"],
        {name: _buffer(name, item) for name, item in top["buffers"].items()},
        [_operation(item, tensors) for item in top["operations"]],
        _shapes(shapes),
        _free(free),
    )


def _shapes(value: Any) -> dict[str, tuple[int, ...]]:
    listed = isinstance(value, dict) and all(isinstance(sides, list) for sides in value.values())
    if not listed or not all(is_whole(side, 1, LARGEST_BUFFER) for sides in value.values() for side in sides):
        raise PackError("the shapes of its outputs must be lists of whole numbers")
    return {name: tuple(sides) for name, sides in value.items()}


def _free(value: Any) -> Free | None:
    if value is None:
        return None
    fields = _fields(value, "what says that sizes are free", {"steps": list, "shapes": dict})
    if len(fields["steps"]) != 2:
        raise PackError("the steps of free sizes must be two")
    return Free((fields["steps"][0], fields["steps"][1]), _follows(fields["shapes"]))


def _follows(value: Any) -> dict[str, list[Number]]:
    if not isinstance(value, dict) or not all(isinstance(given, list) for given in value.values()):
        raise PackError("numbers that follow from the image size must be lists by role")
    return {role: [_number(each) for each in given] for role, given in value.items()}


def _number(value: Any) -> Number:
    if is_whole(value, -LARGEST_BUFFER, LARGEST_BUFFER):
        whole: int = value
        return whole
    listed = isinstance(value, list) and len(value) == 5
    if not listed or not all(isinstance(each, str) for each in value[:2]):
        raise PackError(
            f"a number that follows from the size is [buffer, sides, times, over, plus], got {quoted(value)}"
        )
    return Follows(*value)


def _fields(value: Any, what: str, types: Mapping[str, Any]) -> dict[str, Any]:
    """``value`` as a mapping with exactly these fields."""
    if not isinstance(value, dict) or set(value) != set(types):
        raise PackError(f"{what} must have exactly the fields {', '.join(types)}")
    for name, kind in types.items():
        if not isinstance(value[name], kind):
            raise PackError(f"field {quoted(name)} of {what} must be a {getattr(kind, '__name__', kind)}")
    return value


def _buffer(name: str, value: Any) -> Buffer:
    if (
        not isinstance(value, list)
        or len(value) != 4
        or value[0] not in ("float", "bits", "bytes")
        or not all(isinstance(side, int) and not isinstance(side, bool) for side in value[1:])
    ):
        raise PackError(f"buffer {quoted(name)} must be ['float', 'bits' or 'bytes', height, width, channels]")
    return Buffer(value[0], (value[1], value[2], value[3]))


def _operation(value: Any, tensors: Mapping[str, NDArray[Any]]) -> Operation:
    types = {"kind": str, "name": str, "inputs": dict, "outputs": dict, "tensors": dict, "attributes": dict}
    follows = _follows(value.pop("follows", {}) if isinstance(value, dict) else {})
    fields = _fields(value, "an operation", types)
    for side in ("inputs", "outputs", "tensors"):
        if not all(isinstance(name, str) for name in fields[side].values()):
            raise PackError(f"{side} of operation {quoted(fields['name'])} must be a table of names")
    for role, name in fields["tensors"].items():
        if name not in tensors:
            raise PackError(
                f"tensor {quoted(role)} of operation {quoted(fields['name'])} is {quoted(name)}, which is not in the "
                "file"
            )
    held = {role: tensors[name] for role, name in fields["tensors"].items()}
    return Operation(**fields | {"tensors": held, "follows": follows})
