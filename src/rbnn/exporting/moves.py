"""Operations that only move values: a chain of them becomes one, and often none."""

import numpy as np

from rbnn.exporting.draft import Array, Draft
from rbnn.packed import oracle
from rbnn.packed.operations import MOST_SIDES, Operation

LARGEST = 1 << 24
"""Above this number of values in an image, chains stay as they are, because the place of every value is computed."""


def as_permutation(places: Array) -> tuple[list[int], list[int]] | None:
    """The source of each value, as dimensions of the input and their order in the output; None if it has no such
    form."""
    runs = []  # count and distance, the innermost first
    rest = places
    while len(rest) > 1:
        apart = int(rest[1] - rest[0])
        breaks = np.flatnonzero(np.diff(rest) != apart)
        count = len(rest) if len(breaks) == 0 else int(breaks[0]) + 1
        if len(rest) % count or (rest.reshape(-1, count) != rest[::count, None] + np.arange(count) * apart).any():
            return None
        runs.append((count, apart))
        rest = rest[::count]
    runs.reverse()
    inside = sorted(range(len(runs)), key=lambda run: -runs[run][1])
    values = 1
    for run in reversed(inside):
        if runs[run][1] != values:
            return None
        values *= runs[run][0]
    if len(runs) > MOST_SIDES or int(places[0]) != 0:
        return None
    return [runs[run][0] for run in inside] or [1], [inside.index(run) for run in range(len(runs))] or [0]


def moves_into_one(draft: Draft, operation: Operation) -> bool:
    """Merge a reshape or permute with the reshape or permute before it."""
    before = draft.producer(operation.inputs["x"])
    if before is None or before.kind not in ("reshape", "permute"):
        return False
    shape = draft.buffers[before.inputs["x"]].shape
    if int(np.prod(shape)) > LARGEST or draft.sole_consumer(operation.inputs["x"]) is not operation:
        return False
    numbers = np.arange(np.prod(shape)).reshape(1, *shape)
    for each in (before, operation):
        declared = {"float": draft.buffers[each.outputs["float"]].shape}
        numbers = oracle.run_operation(each, {"x": numbers}, declared, 1)["float"]
    found = as_permutation(numbers.reshape(-1))
    if found is None:
        return False
    sides, order = found
    draft.operations.remove(before)
    operation.inputs["x"] = before.inputs["x"]
    if order == sorted(order):
        operation.kind, operation.attributes = "reshape", {"order": "hwc"}
    else:
        operation.kind, operation.attributes = "permute", {"sides": sides, "order": order}
    return True


def no_move(draft: Draft, operation: Operation) -> bool:
    """Remove a reshape that changes nothing, unless its buffer is needed."""
    x, made = operation.inputs["x"], operation.outputs["float"]
    same = draft.buffers[x].shape == draft.buffers[made].shape and operation.attributes["order"] == "hwc"
    if not same or made in draft.outputs:
        return False
    for reader in draft.operations:
        reader.inputs = {role: x if name == made else name for role, name in reader.inputs.items()}
    draft.operations.remove(operation)
    return True
