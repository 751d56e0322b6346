"""Compare a packed network with other engines: times taken in turns, and whether OpenVINO's bits are right."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbnn.bench import busy
from rbnn.bench.race import race
from rbnn.bench.rivals.contenders import our_engine, rivals
from rbnn.bench.rivals.exactness import exact_layers
from rbnn.data.preprocess import normalise
from rbnn.packed.graph import Graph, only_array
from rbnn.packed.session import Session

ALONE = "`rbnn info NET` times it on our engine, layer by layer"
ELSEWHERE = "`rbnn export NET --onnx net.onnx` writes a file to time elsewhere"
"""What to do with a network that is not raced."""


def compare(
    graph: Graph,
    engines: list[str],
    threads: int = 1,
    batch: int = 1,
    seconds: float = 0.5,
    progress: Callable[[str], None] = lambda said: None,
) -> dict[str, Any]:
    """Time our engine and ``engines``, which must be installed, on images of noise, ``seconds`` for each contender."""
    load = busy.load_average()
    graph.only_input("other engines are timed on networks with one", ALONE)
    graph.only_output("other engines are timed on networks with one", f"{ALONE}, and {ELSEWHERE}")
    session = Session(graph, threads)
    pictures, images = noise(session, batch)
    ours = our_engine(session, pictures)
    contenders, refused = {ours.name: ours}, []
    for rival in rivals(graph, images, threads, engines):
        if rival.refused:
            refused.append(rival.refused)
            continue
        contenders[rival.name] = rival
        progress(f"built {rival.name} …")
    progress("racing …")
    times = race({name: contender.call for name, contender in contenders.items()}, seconds)
    binary = None
    if "openvino 1-bit" in contenders:
        progress("checking OpenVINO's bits …")
        layers, answers, others = exact_layers(graph), only_array(ours.call()), contenders["openvino 1-bit"].call()
        binary = {
            "layers": len(layers),
            "exact": sum(layers.values()),
            "largest_difference": float(np.abs(others.reshape(answers.shape) - answers).max()),
        }
    return {
        "kernels": session.kernels,
        "threads": threads,
        "batch": batch,
        "input": list(session.input_shape),
        "refused": refused,
        "contenders": [
            {
                "engine": contender.engine,
                "numbers": contender.numbers,
                "pictures": contender.pictures,
                "best_ms": round(1e3 * times[name].best, 4),
                "median_ms": round(1e3 * times[name].median, 4),
                "calls": times[name].calls,
                "ratio": round(times[name].best / times[ours.name].best, 3),
            }
            for name, contender in contenders.items()
        ],
        "openvino_binary": binary,
        "unreliable": busy.why_unreliable(load, threads, times.values()),
    }


def noise(session: Session, count: int) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Images for our engine, and the same images, normalised, for the others.

    If the first layer works on bytes, our engine gets bytes, because that is what a user has.  Normalised by the mean
    and std of the file, the images are quantized back to exactly these bytes (docs/format.md).
    """
    shape, contract = (count, *session.input_shape), session.graph.input
    random = np.random.default_rng(1)
    if session.takes_bytes and contract.mean and contract.std:
        pixels = random.integers(0, 256, shape, np.uint8)
        return pixels, normalise(pixels.transpose(0, 2, 3, 1), contract.mean, contract.std)
    images = random.normal(size=shape).astype(np.float32)
    return images, images
