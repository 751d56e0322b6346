"""Random networks and mutants: every instruction set and thread count agrees with the oracle, also on rejecting."""

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import SANITIZED, build
from encode import encode, join
from faults import Fault
from judge import assert_same, judge
from mutants import mutant_file
from packed_networks import one_operation, picture_network, small_network
from random_graphs import at_another_size, random_free_graph, random_graph

from rbnn import _core
from rbnn.errors import InputError, RbnnError
from rbnn.packed import file as packfile
from rbnn.packed.budget import check_work
from rbnn.packed.graph import Graph
from rbnn.packed.session import Session


def case(seed: int) -> tuple[Graph, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, inputs=int(rng.choice([1, 1, 1, 2, 3])))
    return graph, random_images(graph, rng)


def random_images(graph: Graph, rng: np.random.Generator) -> list[np.ndarray]:
    """Those of each input."""
    found = []
    for channels, height, width in graph.input_shapes.values():
        images = rng.normal(size=(2, channels, height, width)) * rng.choice([1, 1, 1, 1e-4, 1e6])
        if rng.random() < 0.4:  # rows of zeros, or of far larger values
            images[:, :, rng.integers(height) :] *= rng.choice([0, 0, 1e-8, 1e5])
        found.append(np.where(rng.random(images.shape) < 0.05, 0, images).astype(np.float32))
    return found


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.long)])
def test_random_networks_answer_as_the_oracle(count: int, fault: Fault) -> None:
    with fault("random network, every kernel and thread count", count):
        for seed in range(count):
            graph, images = case(seed)
            try:
                judge(graph, images)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_random_networks_of_other_sizes_answer_as_the_oracle(count: int, fault: Fault) -> None:
    taken = 0
    with fault("random network at another size, every kernel and thread count", count):
        for seed in range(count):
            rng = np.random.default_rng(seed)
            graph = random_free_graph(rng)
            other = at_another_size(graph, rng)
            if other is None:
                continue
            taken += 1
            images = random_images(other, rng)
            try:
                judge(other, images)
                assert_same(answer(graph, images), answer(other, images), "a planned and a stored size")
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    assert taken > count / 4


def answer(graph: Graph, images: list[np.ndarray]) -> Any:
    """What a session answers; nothing where its values overflow."""
    try:
        return Session(graph)(*images)
    except InputError:
        return ()


def original(seed: int) -> Graph:
    """A quarter of two networks as an exporter makes them, the others random, a third of these with free sizes."""
    if seed % 4 == 0:
        return (small_network, picture_network)[seed // 4 % 2]()
    return random_free_graph(np.random.default_rng(seed)) if seed % 4 == 1 else case(seed)[0]


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.long)])
def test_mutants_are_refused_or_answer_as_the_oracle(count: int, fault: Fault) -> None:
    refused = answered = 0
    with fault("mutant of a packed file, every kernel", count):
        for seed in range(count):
            rng = np.random.default_rng(seed)
            graph = original(seed)
            try:
                mutant = packfile.parse(mutant_file(graph, rng))
                mutant = (at_another_size(mutant, rng) if mutant.free else None) or mutant
                check_work(mutant, None)
                images = random_images(mutant, rng)
            except RbnnError:
                refused += 1
                continue
            try:
                judge(mutant, images)
                answered += 1
            except Exception as error:
                raise AssertionError(f"mutant {seed}: {error}") from error
        assert refused > count / 3
        assert answered > count / 10


def test_a_wrong_engine_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge detects an error: here the oracle's sums are slightly wrong."""
    from rbnn.packed import oracle

    right = oracle.float_conv
    monkeypatch.setitem(oracle._CONVOLUTIONS, "float_conv", lambda *arguments: right(*arguments) * np.float32(1 + 1e-4))
    condemned = 0
    for seed in range(80):
        graph, images = case(seed)
        try:
            judge(graph, images)
        except AssertionError:
            condemned += 1
    assert condemned > 10


@pytest.mark.compiles
def test_random_networks_under_sanitizers(tmp_path: Path) -> None:
    """Gaps around each buffer of the arena, and dead buffers, must be neither read nor written."""
    program, inputs = build(tmp_path, "replay_corpus", **SANITIZED), tmp_path / "inputs"
    networks = [encode(case(seed)[0], seed % len(_core.kernels())) for seed in range(1000)]
    inputs.write_bytes(join(networks))
    done = subprocess.run([program, inputs], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.fullmatch(r"(\d+) inputs, (\d+) run, (\d+) on bytes\n", done.stdout)
    assert found is not None
    assert int(found[1]) == len(networks)
    assert int(found[2]) > len(networks) / 2


def test_lanes_beyond_the_last_channel_do_not_overflow() -> None:
    """A power of -1 in an image whose channels do not fill whole vectors: the padding of the vector is 0."""
    shape = (3, 2, 5)
    graph = one_operation("activation", {"x": shape}, {"float": shape}, {}, {"activation": ["power", -1]})
    judge(graph, [np.random.default_rng(0).uniform(1, 2, (2, 30, 1, 1)).astype(np.float32)])
