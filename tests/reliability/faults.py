"""How faults are counted."""

from collections.abc import Callable
from contextlib import AbstractContextManager

Fault = Callable[..., AbstractContextManager[None]]
"""``with fault("a full disk", times=3):`` around what must hold after so many faults of this kind."""
