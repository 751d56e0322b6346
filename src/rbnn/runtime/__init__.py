"""Packed networks at work: NumPy and the compiled engine, no torch."""

from rbnn.runtime.session import Session

__all__ = ["Session"]
