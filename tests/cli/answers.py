"""What a command answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from rbnn.packed import oracle
from rbnn.packed.graph import Graph


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
from importlib.machinery import PathFinder

class Base(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in ("torch", "sklearn", "tensorboard", "onnx", "onnxruntime", "openvino"):
            return super().find_spec(name, path, target)

sys.meta_path = [Base if finder is PathFinder else finder for finder in sys.meta_path]
from rbnn.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""A program that runs the command line as if only the base dependencies were installed."""


def logits(graph: Graph, *paths: Path) -> np.ndarray:
    """The oracle's output; 11×8 pixels are cropped to the centre 8×8."""
    pixels = np.stack([np.asarray(Image.open(path))[2:10] for path in paths]).astype(np.float64)
    images = (pixels / 255 - graph.input.mean) / graph.input.std
    return oracle.run(graph, images.transpose(0, 3, 1, 2).astype(np.float32))
