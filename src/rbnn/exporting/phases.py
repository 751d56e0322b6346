"""A transposed convolution as plain ones: outputs whose places have the same remainder by the stride are a phase.

Along one side, with stride s, dilation d and padding p:

    y[j] = Σ_t x[i] w[t]      over the taps with  i s + t d − p = j

So phase r, the outputs q s + r of a picture with its padding, reads x[q − (t d − r)/s] for the taps with t d ≡ r mod s.
These taps are evenly spaced, so this is a plain convolution with the taps in reverse order.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """How the kernel of a plain convolution moves along one side, and which of its results are wanted."""

    taps: int
    dilation: int
    padding: int
    results: int
    start: int
    """The first wanted result."""


@dataclass(frozen=True)
class Phase:
    taps: tuple[int, ...]
    """Of the transposed kernel, in the order of the plain one; none if no input reaches these outputs."""
    window: Window


@dataclass(frozen=True)
class Side:
    """One side of a transposed convolution."""

    phases: list[Phase]
    """One for each remainder; put side by side, they give ``rows`` times as many outputs."""
    rows: int
    cut: int
    """Outputs at the beginning that torch cuts off."""

    @property
    def alike(self) -> bool:
        """Whether all phases are one convolution with more filters."""
        return len({phase.window for phase in self.phases}) == 1 and all(phase.taps for phase in self.phases)


def side_of(inputs: int, outputs: int, kernel: int, stride: int, padding: int, dilation: int) -> Side:
    """The phases of a transposed convolution from ``inputs`` to ``outputs`` values along one side."""
    first = padding // stride
    rows = (outputs - 1 + padding) // stride - first + 1
    phases = []
    for remainder in range(stride):
        taps = [tap for tap in range(kernel) if tap * dilation % stride == remainder]
        back = [(tap * dilation - remainder) // stride for tap in taps] or [0]
        begin, end = first - back[-1], first + rows - 1 - back[0]  # what the first output reads first, the last last
        apart = back[1] - back[0] if len(back) > 1 else 1
        around = max(0, -begin, end - (inputs - 1))
        results = inputs + 2 * around - apart * (len(back) - 1)
        phases.append(Phase(tuple(taps[::-1]), Window(len(back), apart, around, results, begin + around)))
    return Side(phases, rows, padding - first * stride)
