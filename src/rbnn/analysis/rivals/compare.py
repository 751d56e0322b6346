"""A packed network beside other engines: times in turns, and whether OpenVINO's bits are right."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rbnn.analysis.race import race
from rbnn.analysis.rivals.contenders import our_engine, rivals
from rbnn.analysis.rivals.exactness import exact_layers
from rbnn.graph import Graph
from rbnn.runtime.session import choose_kernels


def compare(
    graph: Graph,
    engines: list[str],
    threads: int = 1,
    batch: int = 1,
    seconds: float = 0.5,
    progress: Callable[[str], None] = lambda said: None,
) -> dict[str, Any]:
    """Our engine and ``engines``, which are installed, on pictures of noise; ``seconds`` for each contender."""
    height, width, channels = graph.buffers[graph.input.buffer].shape
    images = np.random.default_rng(1).normal(size=(batch, channels, height, width)).astype(np.float32)
    ours = our_engine(graph, images, threads)
    contenders = {ours.name: ours}
    for rival in rivals(graph, images, threads, engines):
        contenders[rival.name] = rival
        progress(f"built {rival.name} …")
    progress("racing …")
    times = race({name: contender.call for name, contender in contenders.items()}, seconds)
    binary = None
    if "openvino" in engines:
        progress("checking OpenVINO's bits …")
        layers, answers, others = exact_layers(graph), ours.call(), contenders["openvino 1-bit"].call()
        binary = {
            "layers": len(layers),
            "exact": sum(layers.values()),
            "largest_difference": float(np.abs(others.reshape(answers.shape) - answers).max()),
        }
    return {
        "kernels": choose_kernels(),
        "threads": threads,
        "batch": batch,
        "input": [channels, height, width],
        "contenders": [
            {
                "engine": contender.engine,
                "numbers": contender.numbers,
                "best_ms": round(1e3 * times[name].best, 4),
                "median_ms": round(1e3 * times[name].median, 4),
                "calls": times[name].calls,
                "ratio": round(times[name].best / times[ours.name].best, 3),
            }
            for name, contender in contenders.items()
        ],
        "openvino_binary": binary,
    }
