"""What a binary layer computes at inference: everything that the export needs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BinaryForm:
    """A layer in bits.

        a = offset + Σ_j levels_j sign(x − thresholds_j)                  the binarized input
        y = map ⊙ Σ_i factors_io (signs_io ⊛ a)                           the output, still without bias

    where the map is 1 unless ``magnitudes`` or ``positions`` define it.  With an offset, the levels add up to it, so
    that a padded zero is the lowest level.  In bits it takes M·N passes, for M planes of the weight and N of the input.
    """

    signs: NDArray[np.int8]
    """±1, (M, O, C, kh, kw), of a linear layer (M, O, C)."""
    factors: NDArray[np.float64]
    """(M, O)."""
    thresholds: tuple[float, ...] = (0.0,)
    levels: tuple[float, ...] = (1.0,)
    offset: float = 0.0
    centred: bool = False
    """Whether the threshold is the mean of x over the whole image."""
    magnitudes: bool = False
    """Whether the map is mean|x| at each position of the kernel, over the channels that the filter sees."""
    positions: NDArray[np.float64] | None = None
    """The learned map: (H, W) or (O, H, W)."""

    @property
    def mapped(self) -> bool:
        """Whether there is a map.  A scale cannot be moved past it into the following affine."""
        return self.magnitudes or self.positions is not None
