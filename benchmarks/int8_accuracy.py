"""Measure the accuracy and the size of a float network before and after quantisation to int8, in ONNX Runtime.

    rbnn train cifar10-resnet20-bireal-float-cpu --out runs/float --data-dir data
    python benchmarks/int8_accuracy.py runs/float/last.pt --data cifar10 --data-dir data

The quantisation is that of `rbnn bench`, with ranges from training images instead of noise.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import tyro
from numpy.typing import NDArray

import rbnn
from rbnn import data
from rbnn.bench.rivals.contenders import quantized
from rbnn.data import ImageSet
from rbnn.data.preprocess import normalise
from rbnn.translating.onnx_model import to_onnx

BATCH = 100


def batches(images: ImageSet, mean: tuple[float, ...], std: tuple[float, ...]) -> Iterator[NDArray[np.float32]]:
    """All images, normalised."""
    for first in range(0, len(images), BATCH):
        yield normalise(images.images[first : first + BATCH], mean, std)


def accuracy(model: bytes, tests: ImageSet, mean: tuple[float, ...], std: tuple[float, ...]) -> float:
    """Top-1 accuracy in percent."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    answers = [session.run(None, {"image": some})[0].argmax(1) for some in batches(tests, mean, std)]
    return 100 * float((np.concatenate(answers) == tests.labels).mean())


def main(net: tyro.conf.Positional[Path], data: str, data_dir: Path = Path("data"), calibration: int = 1000) -> None:
    """Print both accuracies, in percent, and the bytes of both ONNX models as JSON.

    Args:
        net: A run directory, its best epoch, or a checkpoint such as RUN/last.pt.
        data: The data set that it was trained on.
        data_dir: The directory of the data sets.
        calibration: Number of training images that give the ranges.
    """
    graph = rbnn.load(net).graph
    mean, std = graph.input.mean, graph.input.std
    train, tests = _load(data, data_dir, "train"), _load(data, data_dir, "test")
    whole = to_onnx(graph, engine_order=False).model.SerializeToString()
    some = np.random.default_rng(0).permutation(len(train))[:calibration]
    ranges = (normalise(train.images[each], mean, std) for each in np.split(some, range(BATCH, calibration, BATCH)))
    models = {"float32": whole, "int8": quantized(whole, ranges)}
    found = {
        numbers: {"top1": round(accuracy(model, tests, mean, std), 2), "bytes": len(model)}
        for numbers, model in models.items()
    }
    print(json.dumps(found))


def _load(name: str, directory: Path, split: data.Split) -> ImageSet:
    images = data.load(name, directory, split)
    assert isinstance(images, ImageSet), "a set in memory"
    return images


if __name__ == "__main__":
    tyro.cli(main)
