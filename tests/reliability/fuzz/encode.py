"""Encode a graph as the bytes that fuzz_program.cpp decodes, and a corpus as one file."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rbnn.packed.graph import Graph

SOURCE = Path(__file__).with_name("fuzz_program.cpp").read_text(encoding="utf-8")


def _table(name: str) -> list[str]:
    """The words of a table, read from the C++ source so that there is only one list."""
    found = re.search(rf"{name}\[\] = {{(.*?)}};", SOURCE, re.DOTALL)
    assert found is not None
    return re.findall(r'"([^"]*)"', found[1])


KINDS, ROLES, WORDS = _table("kKinds"), _table("kRoles"), _table("kWords")
SECOND_OUTPUT, SECOND_INPUT = 128, 64
TWO_BYTES, ODD = 239, {-1: 251, 0.5: 252}
"""The byte that precedes a two-byte number, and the bytes of non-integers: indices into the table kOdd."""


def _number(value: float) -> list[int]:
    if value in ODD:
        return [ODD[value]]
    return [int(value)] if value < TWO_BYTES else [TWO_BYTES, *int(value).to_bytes(2, "little")]


def _numbers(values: Iterable[float]) -> list[int]:
    return [byte for value in values for byte in _number(value)]


def encode(graph: Graph, kernels: int = 0) -> bytes:
    """Tensors keep type and shape; their values become a pattern."""
    names = list(graph.buffers)
    code = [len(names)]
    for buffer in graph.buffers.values():
        code += [["float", "bits", "bytes"].index(buffer.type), *_numbers(buffer.shape)]
    first, *more = (names.index(name) for name in graph.outputs[:2])
    image, *others = (names.index(name) for name in graph.inputs[:2])
    chosen = kernels + SECOND_OUTPUT * bool(more) + SECOND_INPUT * bool(others)
    code += [image, first, chosen, *more, *others, len(graph.operations)]
    for operation in graph.operations:
        code.append(KINDS.index(operation.kind))
        for side in (operation.inputs, operation.outputs):
            code.append(len(side))
            for role, name in side.items():
                code += [ROLES.index(role), names.index(name)]
        code.append(len(operation.tensors))
        for role, tensor in operation.tensors.items():
            types = ["float32", "int32", "uint8", "int8"]
            channels = graph.buffers[operation.inputs["x"]].shape[2] if "x" in operation.inputs else 8
            pattern = -channels % 8 if tensor.dtype == np.uint8 else 8
            code += [ROLES.index(role), types.index(tensor.dtype.name), tensor.ndim, *_numbers(tensor.shape), pattern]
        numbers, words = {}, {}
        for role, value in operation.attributes.items():
            items = list(value) if isinstance(value, list | tuple) else [value]
            if isinstance(items[0], str):
                words[role] = items[0]
            if rest := [item for item in items if not isinstance(item, str)]:
                numbers[role] = rest
        code.append(len(numbers))
        for role, values in numbers.items():
            code += [ROLES.index(role), len(values), *_numbers(values)]
        code.append(len(words))
        for role, word in words.items():
            code += [ROLES.index(role), WORDS.index(word)]
    return bytes(code)


def join(inputs: list[bytes]) -> bytes:
    """Many inputs as one file, each preceded by its length in two bytes."""
    return b"".join(len(each).to_bytes(2, "little") + each for each in inputs)


def split(corpus: bytes) -> list[bytes]:
    """The inputs of such a file."""
    inputs = []
    while corpus:
        size = int.from_bytes(corpus[:2], "little")
        inputs.append(corpus[2 : 2 + size])
        corpus = corpus[2 + size :]
    return inputs
