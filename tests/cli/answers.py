"""What a command answers."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Rbnn = Callable[..., Answer]

SMALL = ["--limit", "128", "--batch-size", "64", "--threads", "1"]
"""Flags of a run of about a second."""
