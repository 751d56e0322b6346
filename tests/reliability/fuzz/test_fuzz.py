"""The engine's validator under a fuzzer and sanitizers: a network is rejected or runs within its memory."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from compiled import SANITIZED, build
from encode import encode, join, split
from faults import Fault
from seeds import seeds

from rbnn.packed.session import Session

CORPUS = Path(__file__).with_name("corpus.bin")
EXECUTIONS = 200_000


def test_the_corpus_is_small() -> None:
    corpus = CORPUS.read_bytes()
    assert len(corpus) < 200_000
    assert len(split(corpus)) > 300
    assert join(split(corpus)) == corpus


def test_the_seeds_are_valid_networks() -> None:
    for graph in seeds():
        Session(graph)
        assert len(encode(graph)) < 1000


@pytest.mark.compiles
def test_the_corpus_under_sanitizers(tmp_path: Path) -> None:
    program = build(tmp_path, "replay_corpus", **SANITIZED)
    done = subprocess.run([program, CORPUS], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = re.fullmatch(r"(\d+) inputs, (\d+) run, (\d+) on bytes\n", done.stdout)
    assert found is not None
    inputs, run, on_bytes = map(int, found.groups())
    assert inputs == len(split(CORPUS.read_bytes()))
    assert run > inputs / 20
    assert on_bytes > 0


@pytest.mark.long
def test_the_validator_under_a_fuzzer(tmp_path: Path, fault: Fault) -> None:
    compiler = next(filter(None, map(shutil.which, ["clang++", *(f"clang++-{v}" for v in range(21, 11, -1))])), None)
    if compiler is None:
        pytest.skip("needs clang with libFuzzer: apt install clang libclang-rt-14-dev")
    smallest = tmp_path / "smallest.cpp"
    smallest.write_text('extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n')
    command = [compiler, "-fsanitize=fuzzer,address,undefined", str(smallest), "-o", str(tmp_path / "smallest")]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"{compiler} has no libFuzzer: apt install libclang-rt-14-dev")
    program = build(
        tmp_path / "build",
        "fuzz_program",
        CMAKE_CXX_COMPILER=compiler,
        RBNN_SANITIZE="fuzzer-no-link,address,undefined",
    )
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    inputs = split(CORPUS.read_bytes()) + [encode(graph, kernels) for graph in seeds() for kernels in (0, 1, 2)]
    for number, each in enumerate(inputs):
        (corpus / str(number)).write_bytes(each)
    limits = [f"-runs={EXECUTIONS}", "-max_len=1200", "-malloc_limit_mb=2048", "-timeout=20", "-seed=1"]
    with fault("hostile network, by the fuzzer", EXECUTIONS):
        done = subprocess.run(
            [program, *limits, str(corpus)], capture_output=True, text=True, cwd=tmp_path, timeout=1000
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = re.search(r"Done (\d+) runs", done.stderr)
        assert found is not None
        assert int(found[1]) >= EXECUTIONS
