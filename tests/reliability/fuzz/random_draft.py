"""A random network under construction: its buffers and operations so far, and the random choices for the next one.

Small enough for `encode.py`: under 24 buffers and 16 operations, lists of the lengths that the fuzzer decodes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.packed.operations import Buffer, Operation
from rbnn.packed.site import Follows, Number

Shape = tuple[int, int, int]

MOST_OPERATIONS, MOST_BUFFERS, MOST_VALUES = 15, 23, 1 << 13
CHANNELS = (1, 2, 3, 5, 8, 16, 24, 31, 32, 33, 63, 64, 65, 70, 128)


class Draft:
    """Inputs are called ``image``, ``image.2`` and so on."""

    def __init__(self, rng: np.random.Generator, inputs: int = 1) -> None:
        self.rng = rng
        self.buffers: dict[str, Buffer] = {"image": Buffer("float", self._first_shape())}
        self.operations: list[Operation] = []
        self.hidden: set[str] = set()
        """Buffers that no further operation reads."""
        for number in range(2, inputs + 1):
            self.buffers[f"image.{number}"] = Buffer("float", self._further_shape(self.shape("image")))
        self.inputs = list(self.buffers)

    def _first_shape(self) -> Shape:
        if self.maybe(0.3):  # an image whose first convolution may process four rows at a time
            return 9 + self.below(16), 3 + self.below(11), self.one_of([3, 4, 6, 8])
        return 1 + self.below(11), 1 + self.below(11), self.one_of(CHANNELS)

    def _further_shape(self, first: Shape) -> Shape:
        """Of the size of the first input, of one that broadcasts with it, or of any."""
        return self.one_of([first, (*first[:2], self.one_of(CHANNELS)), (1, 1, first[2]), self._first_shape()])

    def names(self, kind: str) -> list[str]:
        """The buffers of this type that may be read."""
        return [name for name, buffer in self.buffers.items() if buffer.type == kind and name not in self.hidden]

    @property
    def floats(self) -> list[str]:
        return self.names("float")

    @property
    def answers(self) -> list[str]:
        """The buffers that may be outputs of the network."""
        return [name for name in self.floats if name not in self.inputs]

    def shape(self, name: str) -> Shape:
        return self.buffers[name].shape

    def below(self, end: int) -> int:
        return int(self.rng.integers(end))

    def maybe(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def one_of(self, values: Any) -> Any:
        return values[self.below(len(values))]

    def divisor(self, number: int, largest: int = 20) -> int:
        return int(self.one_of([n for n in range(1, min(number, largest) + 1) if number % n == 0]))

    def numbers(self, *shape: int) -> NDArray[np.float32]:
        """Mostly of magnitude 1; some large or small, some exactly 0."""
        values = self.rng.normal(size=shape) * self.one_of([1, 1, 1, 1, 1, 1e-3, 30])
        return np.where(self.rng.random(shape) < 0.05, 0, values).astype(np.float32)

    def add(
        self,
        kind: str,
        inputs: dict[str, str],
        outputs: dict[str, Shape],
        tensors: dict[str, NDArray[Any]] | None = None,
        attributes: dict[str, Any] | None = None,
        follows: dict[str, list[Number]] | None = None,
    ) -> bool:
        """Unless it would be empty or too large.  ``follows`` counts if the network has free sizes."""
        if any(min(shape) < 1 or np.prod(shape) > MOST_VALUES for shape in outputs.values()):
            return False
        if len(self.buffers) + len(outputs) > MOST_BUFFERS or len(self.operations) >= MOST_OPERATIONS:
            return False
        number = len(self.operations)
        names = {role: f"{number}.{role}" for role in outputs}
        self.buffers |= {names[role]: Buffer(role, shape) for role, shape in outputs.items()}  # type: ignore[arg-type]
        changing = {
            role: given for role, given in (follows or {}).items() if any(isinstance(each, Follows) for each in given)
        }
        self.operations.append(
            Operation(kind, f"{kind} {number}", inputs, names, tensors or {}, attributes or {}, changing)
        )
        return True

    def following(self, x: str, axis: str, value: int) -> Number:
        """A number that is ``value`` now, and for other sizes follows from a buffer in some way, or stays."""
        side, several = self.shape(x)["hwc".index(axis)], self.one_of(["hw", "hc", "wc", "hwc"])
        ways: list[Follows] = [
            Follows(x, axis, plus=value - side),
            Follows(x, several, over=Follows(x, several).value(self.shape(x)), plus=value - 1),
            *(Follows(x, axis, over=over) for over in range(2, 6)),
            *([Follows(x, axis, value, side), Follows(x, axis, value / side)] if value else []),
            *(Follows(other, each) for other in self.floats for each in "hwc"),
        ]
        fitting = [way for way in ways if way.value(self.shape(way.buffer)) == value]
        chosen: Number = self.one_of([value, *fitting])
        return chosen
