"""``rbnn.runtime.Session``, where the engine was first published; it lives in ``rbnn.packed.session``."""

from rbnn.packed.session import Session

__all__ = ["Session"]
