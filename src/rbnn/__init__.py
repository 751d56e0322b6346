"""Rotated Binary Neural Networks: train 1-bit networks, see why they work, run them as real bits.

Names and submodules are imported when they are first used: ``import rbnn`` works without torch and is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rbnn.errors import RbnnError

if TYPE_CHECKING:
    from rbnn import costs as costs
    from rbnn import data as data
    from rbnn import functional as functional
    from rbnn import methods as methods
    from rbnn import models as models
    from rbnn import nn as nn
    from rbnn import optim as optim
    from rbnn import packed as packed
    from rbnn import runtime as runtime
    from rbnn import training as training
    from rbnn.convert import binarize_
    from rbnn.exporting import export
    from rbnn.importing.network import create_model
    from rbnn.importing.opened import load
    from rbnn.nn import BinaryConv1d, BinaryConv2d, BinaryConvTranspose2d, BinaryLinear, penalty
    from rbnn.packed.session import Session
    from rbnn.schedule import BinarySchedule
    from rbnn.translating.onnx_file import export_onnx

__version__ = "0.1.0"
__all__ = [
    "BinaryConv1d",
    "BinaryConv2d",
    "BinaryConvTranspose2d",
    "BinaryLinear",
    "BinarySchedule",
    "RbnnError",
    "Session",
    "binarize_",
    "create_model",
    "export",
    "export_onnx",
    "load",
    "penalty",
]

_LIVES_IN = {
    "BinaryConv1d": "nn",
    "BinaryConv2d": "nn",
    "BinaryConvTranspose2d": "nn",
    "BinaryLinear": "nn",
    "BinarySchedule": "schedule",
    "Session": "packed.session",
    "binarize_": "convert",
    "create_model": "importing.network",
    "export": "exporting",
    "export_onnx": "translating.onnx_file",
    "load": "importing.opened",
    "penalty": "nn",
}
_SUBMODULES = {
    "costs", "data", "functional", "methods", "models", "nn", "optim", "packed", "runtime", "training",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _SUBMODULES | _LIVES_IN.keys():
        raise AttributeError(f"module 'rbnn' has no attribute {name!r}")
    try:
        module = import_module(f".{_LIVES_IN.get(name, name)}", __name__)
        return module if name in _SUBMODULES else getattr(module, name)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise ImportError(f"rbnn.{name} needs torch: pip install 'rbnn[train]'") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_LIVES_IN, *_SUBMODULES})
