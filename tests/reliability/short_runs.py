"""The run that the reliability tests interrupt."""

from pathlib import Path
from typing import Any

from runs import words

EPOCHS = 3


def command(out: Path, **more: Any) -> list[str]:
    """Three epochs of two steps."""
    return words(out, epochs=EPOCHS, limit=128, **more)
