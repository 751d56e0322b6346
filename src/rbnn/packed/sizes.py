"""A network for images of other sizes than the one that it was traced with: its operations at such a size.

Shapes are derived by the rules that check them.  Attributes that contain a number of pixels (the size of ``resize``,
the end of ``slice``, the shape of ``reshape``) cannot be derived.  The file says how to compute them: each such number
follows from the sides of a buffer.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm

from rbnn.errors import PackError
from rbnn.packed.limits import LARGEST_BUFFER, LARGEST_SIDE
from rbnn.packed.operations import KINDS, Buffer, Operation, Shape, Site, is_number, is_whole
from rbnn.packed.site import Follows, Number
from rbnn.text import quoted

SHAPE = "shape"
"""The key for height, width and channels of the output, if nothing else determines them."""

ROLES: dict[str, tuple[str, ...]] = {
    "resize": ("size",),
    "adaptive_max_pool": ("size",),
    "adaptive_avg_pool": ("size",),
    "max_pool": ("kernel", "stride"),
    "avg_pool": ("kernel", "stride"),
    "slice": ("start", "stop"),
    "permute": ("sides", SHAPE),
    "reshape": (SHAPE,),
}
"""Which numbers of which kinds may follow from the size."""

AXES = ("h", "w", "c", "hw", "hc", "wc", "hwc")
"""The sides of a buffer that numbers may follow from."""


@dataclass(frozen=True)
class Free:
    """Height and width are free."""

    steps: tuple[int, int]
    """Height and width may differ from the network's own by multiples of these; 0 means fixed."""
    shapes: dict[str, list[Number]] = field(default_factory=dict)
    """The entries of ``Graph.shapes`` that follow from the size."""


def evaluated(given: list[Number], buffers: Mapping[str, Buffer]) -> list[int]:
    """The values of these numbers if the buffers have these shapes."""
    return [each if isinstance(each, int) else each.value(buffers[each.buffer].shape) for each in given]


def derived(
    operation: Operation, buffers: Mapping[str, Buffer], before: Mapping[str, Buffer]
) -> tuple[Operation, Shape]:
    """The operation for inputs with the shapes in ``buffers``, and its output shape.  ``before`` has the buffers of the
    network's own size."""
    values = {role: evaluated(given, buffers) for role, given in operation.follows.items()}
    written = next(iter(operation.outputs.values()))
    height, width, channels = values.pop(SHAPE, before[written].shape)
    declared = {name: Buffer(before[name].type, (height, width, channels)) for name in operation.outputs.values()}
    moved = replace(operation, attributes=operation.attributes | values)
    site, kind = Site(moved, {**buffers, **declared}), KINDS[operation.kind]
    for role, value in values.items():
        kind.attributes[role].check(site, role, value)
    return moved, kind.shape(site)


def strides(operations: list[Operation], buffers: Mapping[str, Buffer], image: str) -> tuple[int, int]:
    """How many pixels of the image one step of the coarsest map is.  Sizes that differ by multiples of it differ by
    whole pixels everywhere.  0: no other size is possible, because a step would be larger than any image."""
    found = {image: (1, 1)}
    most = 1, 1
    for operation in operations:
        read = [found[name] for name in operation.inputs.values()] or [(1, 1)]
        own = _stride(operation, buffers)
        height, width = (_possible(lcm(*(each[axis] for each in read)) * own[axis]) for axis in (0, 1))
        found |= dict.fromkeys(operation.outputs.values(), (height, width))
        most = _possible(lcm(most[0], height)), _possible(lcm(most[1], width))
    return most


def _possible(step: int) -> int:
    """A product of many strides would have thousands of digits.  0 is a multiple of everything, so it stays 0."""
    return step if step <= LARGEST_SIDE else 0


def _stride(operation: Operation, buffers: Mapping[str, Buffer]) -> tuple[int, int]:
    given = operation.attributes
    if "kernel" in given:
        height, width = given.get("stride", given["kernel"] if "pool" in operation.kind else (1, 1))
        return height, width
    if operation.kind == "slice":
        return given["step"][0], given["step"][1]
    if operation.kind in ("permute", "resize"):
        before, after = buffers[operation.inputs["x"]].shape, buffers[next(iter(operation.outputs.values()))].shape
        return max(before[0] // after[0], 1), max(before[1] // after[1], 1)
    return 1, 1


def check_free(free: Free) -> None:
    """Raises PackError unless a network can have such sizes."""
    if not all(is_whole(step, 0, LARGEST_SIDE) for step in free.steps) or not any(free.steps):
        raise PackError(
            f"the steps of free sizes must be two whole numbers from 0 to {LARGEST_SIDE}, at least one above 0, got "
            f"{quoted(free.steps)}"
        )


def check_follows(site: Site, written: Container[str]) -> None:
    """Raise PackError unless the numbers that follow from the size are those of the operation."""
    operation = site.operation
    for role, given in operation.follows.items():
        if role not in ROLES.get(operation.kind, ()):
            raise site.fail(f"{quoted(role)} cannot follow from the image size")
        if role != SHAPE and role not in operation.attributes:
            raise site.fail(f"{role} follows from the image size, but the operation has no attribute {role}")
        have = site.shape("float", "outputs") if role == SHAPE else operation.attributes[role]
        if why := wrong(given, have, written, site.buffers):
            raise site.fail(f"{role} {why}")


def wrong(given: list[Number], have: Sequence[int], known: Container[str], buffers: Mapping[str, Buffer]) -> str:
    """Why ``have`` does not follow from ``known`` buffers as ``given`` says; empty if it does."""
    for each in given:
        if isinstance(each, Follows) and not (
            each.buffer in known
            and each.axes in AXES
            and is_number(each.times)
            and 0 < each.times <= LARGEST_BUFFER
            and is_whole(each.over, 1, LARGEST_BUFFER)
            and is_whole(each.plus, -LARGEST_BUFFER, LARGEST_BUFFER)
        ):
            return f"cannot follow from {quoted(each)}"
    found = evaluated(given, buffers)
    return "" if found == list(have) else f"follows as {quoted(found)}, but is {quoted(list(have))}"


def in_steps(steps: tuple[int, int], size: tuple[int, int], own: Shape) -> bool:
    """Whether a size differs from the network's own by multiples of the steps."""
    apart = zip(size, own, steps, strict=False)
    return all((side - mine) % step == 0 if step else side == mine for side, mine, step in apart)


def in_words(steps: tuple[int, int], height: int, width: int) -> str:
    """Describe the sizes that a network of this size takes."""
    if steps == (1, 1):
        return "any height and width"
    high, wide = (_sides(step, side) for step, side in zip(steps, (height, width), strict=True))
    return f"heights and widths that are {high}" if high == wide else f"a height that is {high}, a width that is {wide}"


def _sides(step: int, side: int) -> str:
    if step == 0:
        return f"{side}"
    if step == 1:
        return "any"
    return f"{side % step} + multiples of {step}" if side % step else f"multiples of {step}"
