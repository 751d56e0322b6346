"""Training in bfloat16 and compiled: what each changes, what stays the same, and that runs resume bit for bit."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from residual import ENTRY
from runs import STEPS, assert_same_run, done, log_of, small, state_of, torchrun, words
from stopped_run import StopAt
from torch import Tensor, nn

from rbnn.errors import TrainingError
from rbnn.models import MODELS
from rbnn.nn import BinaryLayer
from rbnn.training.checkpoint import load_network
from rbnn.training.loop import Progress, train

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # torch.compile uses what torch deprecates

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bf16": {"precision": "bf16"},
    "compiled": {"compile": True},
    "both": {"precision": "bf16", "compile": True},
}
Run = Callable[..., Path]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Train the small network in one of the ways, compiled as in a new process."""

    def trained(out: Path, way: str, progress: Progress | None = None, **more: Any) -> Path:
        torch._dynamo.reset()
        return train(small(out, model="residual", **WAYS[way], **more), progress).out

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "residual", ENTRY)
        patch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        yield trained


@pytest.fixture(scope="module")
def runs(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One uninterrupted run in each way; do not modify."""
    return {way: run(tmp_path_factory.mktemp(way), way) for way in WAYS}


def losses(run: Path) -> list[float]:
    return [entry["loss"] for entry in log_of(run)]


def test_a_compiled_run_loses_what_another_does(runs: dict[str, Path]) -> None:
    assert losses(runs["compiled"]) == pytest.approx(losses(runs["plain"]), rel=1e-4)
    assert losses(runs["both"]) == pytest.approx(losses(runs["bf16"]), rel=1e-2)


def test_a_run_in_bfloat16_is_near_one_in_float32(runs: dict[str, Path]) -> None:
    assert losses(runs["bf16"]) != losses(runs["plain"])
    assert losses(runs["bf16"]) == pytest.approx(losses(runs["plain"]), rel=0.05)


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_does_not_show_how_it_was_computed(way: str, runs: dict[str, Path]) -> None:
    for name in ("last.pt", "best.pt"):
        saved, plain = (state_of(runs[which] / name)["model"] for which in (way, "plain"))
        assert {key: (t.shape, t.dtype) for key, t in saved.items()} == {
            key: (t.shape, t.dtype) for key, t in plain.items()
        }
    assert isinstance(load_network(runs[way]).model, nn.Module)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
def test_resuming_equals_going_on(way: str, run: Run, runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, way, StopAt(STEPS + 2))
    run(tmp_path, way, resume=True)
    assert_same_run(runs[way], tmp_path)


def test_a_run_may_go_on_without_a_compiler(run: Run, runs: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(runs["compiled"], tmp_path / "copy")
    run(tmp_path / "copy", "plain", resume=True, epochs=3)
    assert losses(tmp_path / "copy")[:2] == losses(runs["compiled"])


def test_binary_layers_and_evaluation_stay_in_float32(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[tuple[str, bool], set[torch.dtype]] = {}
    call = nn.Module.__call__

    def look(module: nn.Module, *inputs: Tensor) -> Any:
        output = call(module, *inputs)
        kind = "binary" if isinstance(module, BinaryLayer) else type(module).__name__
        seen.setdefault((kind, module.training), set()).add(output.dtype)
        return output

    monkeypatch.setattr(nn.Module, "__call__", look)
    run(tmp_path, "bf16")
    assert seen["binary", True] == {torch.float32}
    assert seen["Conv2d", True] == seen["Linear", True] == {torch.bfloat16}
    assert {kind for (_, training), kinds in seen.items() if not training for kind in kinds} == {torch.float32}


def test_two_processes_train_a_compiled_network(runs: dict[str, Path], tmp_path: Path) -> None:
    compiled, plain = tmp_path / "compiled", tmp_path / "plain"
    for out, flag in ((compiled, "--compile"), (plain, "--no-compile")):
        more = {"model": "residual", "accumulate": 2, "batch_norm": "all-reduced", "epochs": 1}
        ended = done(torchrun("residual.py", "aot_eager", *words(out, **more), flag))
        assert ended.returncode == 0, ended.stderr
    assert losses(compiled) == pytest.approx(losses(plain), rel=1e-4)
    assert state_of(compiled / "last.pt")["model"].keys() == state_of(runs["plain"] / "last.pt")["model"].keys()


def test_a_network_that_torch_cannot_compile_is_said_in_a_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*graph: Any) -> NoReturn:
        raise RuntimeError("no compiler\nas far as I can see")

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=broken))
    with pytest.raises(TrainingError) as said:
        run(tmp_path, "compiled")
    assert str(said.value) == (
        "torch.compile failed (backend='broken' raised: RuntimeError: no compiler): train with --no-compile"
    )
