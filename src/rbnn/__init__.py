"""Rotated Binary Neural Networks: train 1-bit networks, see why they work, run them as real bits.

The names below that need torch are imported when they are first used: ``import rbnn`` works without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rbnn.errors import RbnnError

if TYPE_CHECKING:
    from rbnn.convert import binarize_
    from rbnn.exporting import export
    from rbnn.models import create_model
    from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryLinear, penalty
    from rbnn.packed.pretrained import load
    from rbnn.schedule import BinarySchedule

__version__ = "0.1.0"
__all__ = [
    "BinaryConv1d",
    "BinaryConv2d",
    "BinaryLinear",
    "BinarySchedule",
    "RbnnError",
    "binarize_",
    "create_model",
    "export",
    "load",
    "penalty",
]

_LIVES_IN = {
    "BinaryConv1d": "nn",
    "BinaryConv2d": "nn",
    "BinaryLinear": "nn",
    "BinarySchedule": "schedule",
    "binarize_": "convert",
    "create_model": "models",
    "export": "exporting",
    "load": "packed.pretrained",
    "penalty": "nn",
}


def __getattr__(name: str) -> Any:
    if name not in _LIVES_IN:
        raise AttributeError(f"module 'rbnn' has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_LIVES_IN[name]}", __name__), name)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ImportError(f"rbnn.{name} needs torch: pip install 'rbnn[train]'") from None


def __dir__() -> list[str]:
    return sorted([*globals(), *_LIVES_IN])
