"""`rbnn bench`: a time for every contender, instruction set and shape; missing packages are reported."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from answers import WITHOUT_TORCH, Rbnn
from packed_networks import picture_network, small_network

from rbnn.bench import kernels
from rbnn.cli.bench import Bench, run
from rbnn.errors import ConfigError
from rbnn.packed import file as packfile


@pytest.fixture(autouse=True)
def _small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbnn.cli.bench.SHAPES", ((64, 4), (16, 5)))


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbnn.bench.busy.load_average", lambda: 0.0)
    monkeypatch.setattr("rbnn.bench.busy.LARGEST_SPREAD", float("inf"))


def test_json_has_every_kernel_and_shape(capsys: pytest.CaptureFixture[str]) -> None:
    run(Bench(kernels=True, seconds=0.01, json=True))
    figures = json.loads(capsys.readouterr().out)
    wanted = {(name, *shape) for name in kernels.usable_kernels() for shape in ((64, 4), (16, 5))}
    assert {(f["kernels"], f["channels"], f["side"]) for f in figures} == wanted
    assert all(f["gmacs"] > 0 and f["limit"] > 0 for f in figures)


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run(Bench(kernels=True, seconds=0.01))
    assert "64 @ 4" in capsys.readouterr().out


def test_a_network_with_several_outputs_is_sent_elsewhere(tmp_path: Path) -> None:
    graph = small_network()
    several = replace(graph, output=["logits", "b"], input=replace(graph.input, classes=()))
    packfile.write(several, tmp_path / "net.rbnn")
    with pytest.raises(ConfigError, match=r"has 2 outputs, .*: `rbnn info NET` times it .* `rbnn export NET --onnx"):
        run(Bench(tmp_path / "net.rbnn", against="", seconds=0.01))


@pytest.mark.parametrize("options", [Bench(), Bench(net=Path("net.rbnn"), kernels=True)])
def test_nothing_or_two_things_to_measure_is_an_error(options: Bench) -> None:
    with pytest.raises(ConfigError, match="--kernels"):
        run(options)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    packfile.write(small_network(), tmp_path / "net.rbnn")
    return tmp_path / "net.rbnn"


def test_a_network_beside_other_engines(net: Path, rbnn: Rbnn) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    answer = rbnn("bench", net, "--seconds", "0.01", "--batch", "2", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert (found["threads"], found["batch"], found["input"], found["left_out"]) == (1, 2, [3, 8, 8], [])
    rows = {(row["engine"], row["numbers"]): row for row in found["contenders"]}
    assert list(rows) == [
        ("rbnn", "1-bit"), ("torch", "float32"), ("onnxruntime", "float32"), ("onnxruntime", "int8"),
        ("openvino", "float32"), ("openvino", "int8"), ("openvino", "1-bit"),
    ]  # fmt: skip
    ours = rows["rbnn", "1-bit"]["best_ms"]
    assert {row["pictures"] for row in rows.values()} == {"float32"}
    for row in rows.values():
        assert 0 < row["best_ms"] <= row["median_ms"]
        assert row["ratio"] == pytest.approx(row["best_ms"] / ours, rel=0.02)
    assert found["bytes"] == net.stat().st_size
    assert found["float_bytes"] == 4 * (432 + 2304 + 32 + 4608 + 32 + 768 + 24 + 120 + 5)
    assert found["openvino_binary"]["layers"] == found["openvino_binary"]["exact"] == 3
    assert found["openvino_binary"]["largest_difference"] < 1e-3


def test_a_network_of_bytes_gets_bytes_and_the_others_the_same_pictures(tmp_path: Path, rbnn: Rbnn) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnxruntime")
    packfile.write(picture_network(), tmp_path / "net.rbnn")
    words = ("bench", tmp_path / "net.rbnn", "--seconds", "0.01", "--batch", "3", "--against", "openvino")
    found = json.loads(rbnn(*words, "--json").out)
    assert [row["pictures"] for row in found["contenders"]] == ["uint8", "float32", "float32", "float32"]
    assert found["input"] == [3, 8, 8]
    assert found["openvino_binary"]["largest_difference"] < 1e-4
    assert "rbnn got images as bytes" in rbnn(*words).out


def test_a_run_directory_is_exported_first(run_directory: Path, tmp_path: Path, rbnn: Rbnn) -> None:
    answer = rbnn("bench", run_directory, "--seconds", "0.01", "--against", "", "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    assert (found["net"], found["input"]) == (str(run_directory), [1, 8, 8])
    rbnn("export", run_directory, "-o", tmp_path / "net.rbnn")
    assert found["bytes"] == (tmp_path / "net.rbnn").stat().st_size


def test_a_network_by_itself(net: Path, rbnn: Rbnn) -> None:
    answer = rbnn("bench", net, "--seconds", "0.01", "--against", "")
    assert (answer.code, answer.err) == (0, "")
    assert "rbnn" in answer.out
    assert "openvino" not in answer.out


def test_a_busy_machine_is_reported(net: Path, rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("bench", net, "--seconds", "0.01", "--against", "")
    assert json.loads(rbnn(*words, "--json").out)["unreliable"] is None
    monkeypatch.setattr("rbnn.bench.busy.load_average", lambda: 1e4)
    table, answer, kernel_rows = rbnn(*words), rbnn(*words, "--json"), rbnn("bench", "--kernels", "--seconds", "0.01")
    for each in (table, answer, kernel_rows):
        assert each.code == 0
        assert each.err.startswith("The times are unreliable, because the load average was 10000.0 when")
        assert each.err.count("\n") == 1
    assert json.loads(answer.out)["unreliable"] == answer.err.strip()


def test_what_is_not_installed_is_left_out(net: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, "bench", str(net), "--seconds", "0.01", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr.strip()) == (0, found["unreliable"] or "")
    assert [row["engine"] for row in found["contenders"]] == ["rbnn"]
    assert len(found["left_out"]) == 3
    assert "torch is left out: pip install 'rbnn[train]' (lacks torch)" in found["left_out"]


def test_the_table_says_what_to_install(net: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH, "bench", str(net), "--seconds", "0.01"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    assert "openvino is left out: pip install 'rbnn[bench]'" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bench"], "expected either a network or --kernels"),
        (["bench", "none.rbnn"], "none.rbnn: no such file"),
        (["bench", "none"], "no checkpoint, run directory, packed file or pretrained network is named none:"),
        (["bench", "NET", "--against", "tensorflow"], "unknown engine 'tensorflow'"),
        (["bench", "NET", "--against", "openvin"], "did you mean 'openvino'?"),
        (["bench", "NET", "--threads", "0"], "threads 1 to 1024"),
        (["bench", "NET", "--batch", "0"], "batch 1 to 4096"),
        (["bench", "NET", "--seconds", "nan"], "seconds must be above 0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_sentence(words: list[str], says: str, net: Path, rbnn: Rbnn) -> None:
    answer = rbnn(*(net if word == "NET" else word for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err
    assert answer.err.count("\n") == 1
