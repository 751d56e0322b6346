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

WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "sklearn", "tensorboard", "onnx", "onnxruntime", "openvino"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from rbnn.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""A program: the command line where only the base dependencies are installed."""
