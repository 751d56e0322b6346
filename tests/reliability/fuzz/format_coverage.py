"""Which kinds and fields of the packed format random networks have, and which of them mutants change."""

import json
from collections.abc import Iterator
from typing import Any

from encode import WORDS

from rbnn.errors import PackError
from rbnn.packed import file as packfile
from rbnn.packed.graph import Graph
from rbnn.packed.operations import KINDS, Operation, Site
from rbnn.packed.sizes import AXES, ROLES

FIELDS = [
    "input buffer", "input mean", "input std", "input classes", "input names", "output buffer", "output list",
    "output table", "output nested", "buffer type", "buffer shape", "shapes", "free steps", "free shapes",
    "follows buffer", *(f"follows axes {axes}" for axes in AXES), "follows times", "follows times, a fraction",
    "follows over", "follows plus", "follows a number", "operation kind", "operation name",
]  # fmt: skip
"""What belongs to no kind of operation."""

UNJUDGED = {f"float_conv activation {word}" for word in ("exp", "power")}
"""Values that the judge could not compare: these functions multiply what sums of products may differ by."""


def fields() -> list[str]:
    """Every field that a file can have.  A word that an attribute may be counts as a field."""
    found = [*FIELDS]
    for name, kind in KINDS.items():
        inputs = kind.inputs or ({"x0": "", "x1": "", "x2": ""} if name == "concat" else {})
        for role in (*inputs, *kind.outputs, *kind.tensors, *kind.attributes):
            found.append(f"{name} {role}")
        found += [f"{name} {role} {word}" for role in kind.attributes for word in _words(name, role)]
        found += [f"{name} follows {role}" for role in ROLES.get(name, ())]
    return [each for each in dict.fromkeys(found) if each not in UNJUDGED]


def _words(kind: str, role: str) -> Iterator[str]:
    """The words that an attribute takes, alone or before numbers."""
    attribute = KINDS[kind].attributes[role]
    for word in dict.fromkeys(WORDS):
        for value in (word, *([word, *[1.0] * numbers] for numbers in range(3))):
            tensors: dict[str, Any] = {"slope": None} if word == "prelu" else {}
            try:
                attribute.check(Site(Operation(kind, "", tensors=tensors), {}), role, value)
            except PackError:
                continue
            yield word
            break


def present(graph: Graph) -> set[str]:
    """The fields that a network has."""
    return set(_flat(json.loads(packfile._to_json(graph))))


def changed(before: Any, after: Any) -> set[str]:
    """The fields that differ between two graphs as JSON, or that only one of them has."""
    one, other = _flat(before), _flat(after)
    return {field for field in {*one, *other} if one.get(field) != other.get(field)}


def _flat(value: Any) -> dict[str, list[str]]:
    """Every field with what it contains, as often as it occurs.  Mutants may have anything anywhere."""
    found: dict[str, list[str]] = {}

    def note(field: str, content: Any) -> None:
        found.setdefault(field, []).append(json.dumps(content))

    top = _table(value)
    for role, content in _table(top.get("input")).items():
        if content:
            note(f"input {role}", content)
    _note_output(note, top.get("output"), 0)
    for buffer in _table(top.get("buffers")).values():
        if isinstance(buffer, list) and buffer:
            note("buffer type", buffer[0])
            note("buffer shape", buffer[1:])
    if top.get("shapes"):
        note("shapes", top["shapes"])
    free = _table(top.get("free"))
    for role in ("steps", "shapes"):
        if free.get(role):
            note(f"free {role}", free[role])
    for given in _table(free.get("shapes")).values():
        _note_follows(note, given)
    operations = top.get("operations")
    for operation in operations if isinstance(operations, list) else []:
        _note_operation(note, _table(operation))
    return found


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _note_output(note: Any, output: Any, depth: int) -> None:
    shape = "list" if isinstance(output, list) else "table" if isinstance(output, dict) else "buffer"
    note(f"output {shape}", output)
    if depth == 1 and shape != "buffer":
        note("output nested", output)
    for part in {"list": output, "table": list(_table(output).values())}.get(shape, []):
        _note_output(note, part, depth + 1)


def _note_operation(note: Any, operation: dict[str, Any]) -> None:
    kind = str(operation.get("kind"))
    note("operation kind", kind)
    note("operation name", operation.get("name"))
    for side in ("inputs", "outputs", "tensors", "attributes"):
        for role, content in _table(operation.get(side)).items():
            note(f"{kind} {role}", content)
            word = content[0] if isinstance(content, list) and content else content
            if side == "attributes" and isinstance(word, str):
                note(f"{kind} {role} {word}", content)
    for role, given in _table(operation.get("follows")).items():
        note(f"{kind} follows {role}", given)
        _note_follows(note, given)


def _note_follows(note: Any, given: Any) -> None:
    for each in given if isinstance(given, list) else []:
        if isinstance(each, list) and len(each) == 5:
            buffer, axes, times, over, plus = each
            note("follows buffer", buffer)
            note(f"follows axes {axes}", axes)
            note("follows times, a fraction" if isinstance(times, float) else "follows times", times)
            note("follows over", over)
            note("follows plus", plus)
        else:
            note("follows a number", each)
