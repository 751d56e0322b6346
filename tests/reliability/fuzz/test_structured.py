"""Random networks and mutants: every instruction set and thread count agrees with the oracle, also on rejecting."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZED, build
from encode import encode, join
from faults import Fault
from judge import judge
from mutants import mutant_file
from packed_networks import picture_network, small_network
from random_graphs import as_free, random_graph

from rbnn import _core
from rbnn.errors import PackError, RbnnError
from rbnn.packed import file as packfile
from rbnn.packed.budget import check_work
from rbnn.packed.graph import Graph
from rbnn.packed.operations import KINDS


def case(seed: int) -> tuple[Graph, np.ndarray]:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    return graph, random_images(graph, rng)


def random_images(graph: Graph, rng: np.random.Generator) -> np.ndarray:
    height, width, channels = graph.buffers[graph.input.buffer].shape
    images = rng.normal(size=(2, channels, height, width)) * rng.choice([1, 1, 1, 1e-4, 1e6])
    if rng.random() < 0.4:  # rows of zeros, or of far larger values
        images[:, :, rng.integers(height) :] *= rng.choice([0, 0, 1e-8, 1e5])
    return np.where(rng.random(images.shape) < 0.05, 0, images).astype(np.float32)


@pytest.mark.parametrize("count", [500, pytest.param(20_000, marks=pytest.mark.long)])
def test_random_networks_answer_as_the_oracle(count: int, fault: Fault) -> None:
    with fault("random network, every kernel and thread count", count):
        for seed in range(count):
            graph, images = case(seed)
            try:
                judge(graph, images)
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error


def other_size(graph: Graph, seed: int) -> tuple[int, int]:
    rng = np.random.default_rng(seed)
    height, width, _ = graph.buffers[graph.input.buffer].shape
    return max(1, height + int(rng.integers(-3, 9))), max(1, width + int(rng.integers(-3, 9)))


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_random_networks_of_other_sizes_answer_as_the_oracle(count: int, fault: Fault) -> None:
    taken = 0
    with fault("random network at another size, every kernel and thread count", count):
        for seed in range(count):
            rng = np.random.default_rng(seed)
            graph = as_free(random_graph(rng))
            try:
                other = graph.at(*other_size(graph, seed))
            except PackError:
                continue
            taken += 1
            try:
                judge(other, random_images(other, rng))
            except Exception as error:
                raise AssertionError(f"seed {seed}: {error}") from error
    assert taken > count / 4


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.long)])
def test_mutants_are_refused_or_answer_as_the_oracle(count: int, fault: Fault) -> None:
    """Half are mutants of two exported networks, half of random ones."""
    ordinary, refused, answered = [small_network(), picture_network()], 0, 0
    with fault("mutant of a packed file, every kernel", count):
        for seed in range(count):
            rng = np.random.default_rng(seed)
            graph = ordinary[seed // 2 % 2] if seed % 2 else case(seed)[0]
            try:
                mutant = packfile.parse(mutant_file(as_free(graph) if seed % 3 == 0 else graph, rng))
                mutant = mutant.at(*other_size(mutant, seed)) if mutant.free else mutant
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


def test_every_kind_is_among_them() -> None:
    kinds = {operation.kind for seed in range(300) for operation in case(seed)[0].operations}
    assert kinds == set(KINDS)


def test_a_wrong_engine_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge detects an error: here the oracle's sums are slightly wrong."""
    from rbnn.packed import oracle

    right = oracle.float_conv
    monkeypatch.setitem(oracle._CONVOLUTIONS, "float_conv", lambda *arguments: right(*arguments) * np.float32(1 + 1e-4))
    condemned = 0
    for seed in range(60):
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
    judge(*case(2305))
