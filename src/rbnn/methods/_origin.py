"""What a layer was created with.  This is part of the layer's state, because the same weights would mean something else
in a layer that was created differently."""

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rbnn.errors import ConfigError

LONGEST_NUMBER = 24
"""Characters of a float64 in decimal."""


@dataclass(frozen=True)
class Origin:
    """A method by name, all of its options, and whether ``binarize_`` replaced a ReLU in front of the layer."""

    method: str
    options: dict[str, Any]
    relu: str = "keep"
    """``hardtanh`` if it replaced a ReLU."""

    def difference(self, saved: dict[str, Any]) -> str:
        """How the saved layer was created differently; empty if it was not.  Keys that only one of the two has, such as
        an option of a later version, are not compared."""
        own = {"method": self.method, **self.options, "relu": self.relu}
        for key, value in own.items():  # the method first, because options of another method mean nothing
            if saved.get(key, value) != value:
                return f"saved with {key} = {saved[key]!r}, but this network was created with {key} = {value!r}"
        return ""


def encoded(origin: Origin | None, progress: float | None) -> Tensor:
    """JSON as a tensor of bytes, which any file format can hold.  It is padded, because a checkpoint that is read in
    place must have the same length at any progress."""
    made = {} if origin is None else {"method": origin.method, "options": origin.options, "relu": origin.relu}
    text = json.dumps(made | {"progress": progress})
    longest = len(json.dumps(made | {"progress": None})) + LONGEST_NUMBER
    return torch.frombuffer(bytearray(text.ljust(longest).encode()), dtype=torch.uint8)


def decoded(state: Any) -> tuple[dict[str, Any], float | None]:
    """What ``Origin.difference`` compares, and the progress.  Older states hold only the progress, as a float64."""
    try:
        if state.dtype != torch.uint8:
            (progress,) = state.tolist()
            return {}, None if progress != progress else float(progress)
        table = json.loads(state.cpu().numpy().tobytes())
        progress = table["progress"]
        options = table.get("options", {})
        return {**options, **{k: table[k] for k in ("method", "relu") if k in table}}, (
            None if progress is None else float(progress)
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise ConfigError("the saved state of a binarization method is damaged: load another checkpoint") from None
