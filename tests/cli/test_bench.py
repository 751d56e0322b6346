"""`rbnn bench --kernels`: a figure for every instruction set and shape."""

import json

import pytest

from rbnn.cli.bench import Bench, run
from rbnn.errors import ConfigError
from rbnn.runtime import kernel_bench


@pytest.fixture(autouse=True)
def _small_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rbnn.cli.bench.SHAPES", ((64, 4), (16, 5)))


def test_json_has_every_kernel_and_shape(capsys: pytest.CaptureFixture[str]) -> None:
    run(Bench(kernels=True, seconds=0.01, json=True))
    figures = json.loads(capsys.readouterr().out)
    wanted = {(name, *shape) for name in kernel_bench.usable_kernels() for shape in ((64, 4), (16, 5))}
    assert {(f["kernels"], f["channels"], f["side"]) for f in figures} == wanted
    assert all(f["gmacs"] > 0 and f["limit"] > 0 for f in figures)


def test_a_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run(Bench(kernels=True, seconds=0.01))
    assert "64 @ 4" in capsys.readouterr().out


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--kernels"):
        run(Bench())
