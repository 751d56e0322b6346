"""Two processes under torchrun: both have the same bits, and together they compute what one process would."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import Fault
from runs import STEPS, assert_same_run, difference, done, log_of, state_of, torchrun, words
from two_ranks import all_reduced, all_reduced_in_double, batch_norm_like, batches_of_both

from rbnn.errors import CheckpointError
from rbnn.training import loop
from rbnn.training.config import TrainConfig
from rbnn.training.directory import RunDirectory
from rbnn.training.distributed import Processes, choose_device


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two ranks")


@pytest.fixture(scope="module")
def stopped(folder: Path) -> subprocess.CompletedProcess[str]:
    """A run in which only the second process received a SIGTERM, in the middle of its second epoch."""
    return done(torchrun("signalled_run.py", "SIGTERM", str(STEPS + 2), *words(folder / "stopped")))


@pytest.fixture(scope="module")
def state_when_stopped(folder: Path, stopped: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return state_of(folder / "stopped" / "last.pt")


@pytest.fixture(scope="module")
def ranks(folder: Path, state_when_stopped: dict[str, Any]) -> list[dict[str, Any]]:
    """What each process found."""
    ended = done(torchrun("two_ranks.py", str(folder)))
    assert ended.returncode == 0, ended.stderr
    assert "Warning" not in ended.stderr
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]


def test_a_signal_to_one_stops_all_with_a_checkpoint(
    folder: Path, stopped: subprocess.CompletedProcess[str], state_when_stopped: dict[str, Any]
) -> None:
    assert stopped.returncode != 0
    assert stopped.stderr.count("stopped; continue with: rbnn train") == 1
    # Once one has exited, the launcher terminates the other, which may no longer handle signals.
    assert "exitcode  : 130" in stopped.stderr
    assert stopped.stderr.count("Traceback") <= 1  # the launcher's own message about failed processes
    assert (state_when_stopped["epoch"], state_when_stopped["step"]) == (1, 2)
    assert state_when_stopped["sums"]["images"] == 2 * 64


def test_resuming_equals_going_on(folder: Path, ranks: list[dict[str, Any]], fault: Fault) -> None:
    with fault("one of two processes stopped"):
        assert_same_run(folder / "local", folder / "stopped")
        assert ranks[0]["resumed"]["hashes"] == ranks[0]["local"]["hashes"][STEPS + 2 :]
        assert difference(ranks[1]["resumed"]["optimizer"], ranks[1]["local"]["optimizer"]) is None


@pytest.mark.parametrize("name", ["local", "all-reduced float64"])
def test_both_processes_hold_the_same_bits_after_every_step(name: str, ranks: list[dict[str, Any]]) -> None:
    first, second = (rank[name] for rank in ranks)
    assert len(first["hashes"]) == len(set(first["hashes"])) >= 4
    assert first["hashes"] == second["hashes"]
    assert first["losses"] == second["losses"]
    assert sum(key.endswith(".R1") for key in first["model"]) == 18
    for part in ("model", "optimizer", "top1"):
        assert difference(first[part], second[part], part) is None


def test_with_all_reduced_statistics_two_processes_lose_what_one_does(
    ranks: list[dict[str, Any]], tmp_path: Path
) -> None:
    one = Processes(0, 1, torch.device("cpu"))
    alone = all_reduced(tmp_path / "float32", one)
    assert ranks[0]["all-reduced"]["losses"] == pytest.approx(alone["losses"], abs=1e-4)
    # At the first step the learning rate is 0, so weights and rotations are bit-identical to the initial ones.
    assert ranks[0]["all-reduced"]["hashes"][0] == alone["hashes"][0]
    whole_run = all_reduced_in_double(tmp_path / "float64", one)
    assert len(whole_run["losses"]) == 4
    assert ranks[0]["all-reduced float64"]["losses"] == pytest.approx(whole_run["losses"], abs=1e-9)
    assert ranks[0]["all-reduced float64"]["top1"] == whole_run["top1"]
    # Check that the test is sensitive: statistics of half the batch differ.
    assert ranks[0]["local"]["losses"][:2] != pytest.approx(alone["losses"], abs=1e-4)


@pytest.mark.parametrize(
    ("what", "named", "when"),
    [
        ("weight", "layers.0.0.conv1.weight", "end of epoch 1"),
        ("rotation", "layers.0.1.conv2.method.R1", "end of epoch 1"),
        ("schedule", "the progress of layers.0.0.conv2", "end of epoch 1"),
        ("schedule between epochs", "the progress of layers.0.0.conv1", "start of epoch 2"),
    ],
)
def test_processes_that_drift_apart_are_stopped(
    what: str, named: str, when: str, ranks: list[dict[str, Any]], folder: Path, fault: Fault
) -> None:
    with fault("processes that drift apart"):
        for rank in ranks:
            said = rank[f"drift of {what}"]
            assert said.startswith(f"{named} and ")
            assert f"differ between the processes at the {when}: " in said
        assert len(log_of(folder / f"drift of {what}")) == (1 if when == "start of epoch 2" else 0)


def test_a_killed_process_is_restarted_from_the_last_checkpoint(
    folder: Path, ranks: list[dict[str, Any]], fault: Fault
) -> None:
    """torchrun restarts both; they continue from the end of the first epoch and end like an uninterrupted run."""
    run = folder / "killed"
    # The launcher polls every three seconds, not ten times a second, so that the other process can report.
    launcher = ("--standalone", "--max-restarts=2", "--monitor-interval=3")
    ended = done(torchrun("signalled_run.py", "SIGKILL", str(STEPS + 2), *words(run), "--resume", launcher=launcher))
    with fault("one of two processes killed, restarted by torchrun"):
        assert ended.returncode == 0, ended.stderr
        assert "rbnn: process 0 lost contact with another of the 2 processes" in ended.stderr
        assert ended.stdout.count("test accuracy") == 1
        assert_same_run(folder / "local", run)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
def test_a_group_ends_with_its_threads(ranks: list[dict[str, Any]]) -> None:
    """A thread that outlives the group could request the GIL after the interpreter has exited, and abort."""
    for rank in ranks:
        assert rank["threads within"] > 0
        assert rank["threads after"] == rank["threads after an error"] == 0


def test_only_the_first_process_writes(folder: Path, ranks: list[dict[str, Any]]) -> None:
    names = sorted(p.name for p in (folder / "local").iterdir())
    assert [name for name in names if not name.startswith("events.out")] == [
        "best.pt",
        "config.toml",
        "initial.safetensors",
        "last.pt",
        "log.jsonl",
        "previous.pt",
    ]
    assert len(names) == 7
    assert [entry["epoch"] for entry in log_of(folder / "local")] == [0, 1]
    assert [rank["local"]["logged"] for rank in ranks] == [2, None]


def test_a_batch_that_cannot_be_shared(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["odd batch"] == "batch_size must be a positive multiple of the number of processes, 2, got 63"
        assert (
            rank["odd limit"] == "33 images are less than one batch, so 2 processes cannot share them: lower batch_size"
        )


@pytest.mark.parametrize("dims", [2, 4])
@pytest.mark.parametrize("momentum", [0.3, None])
def test_all_reduced_batch_norm_is_that_of_the_whole_batch(
    dims: int, momentum: float | None, ranks: list[dict[str, Any]]
) -> None:
    x, grad = batches_of_both(dims)
    norm = batch_norm_like(x, momentum, reduced=False)
    x.requires_grad_()
    y = norm(x)
    y.backward(grad)
    norm(x.detach() * 2 + 1)
    first, second = (rank[f"batch norm {dims} {momentum}"] for rank in ranks)
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(torch.cat([first["y"], second["y"]]), y.detach(), **close)
    torch.testing.assert_close(torch.cat([first["x"], second["x"]]), x.grad, **close)
    # A parameter's gradient is the sum over the shares, which DistributedDataParallel computes.
    for name, parameter in norm.named_parameters():
        torch.testing.assert_close(first[name] + second[name], parameter.grad, **close)
    for name, value in norm.named_buffers():
        torch.testing.assert_close(first[f"buffer {name}"], value, **close)
        torch.testing.assert_close(second[f"buffer {name}"], value, **close)


def test_the_devices_of_this_machine() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type in ("cpu", "cuda", "mps")


def test_a_checkpoint_that_only_some_processes_find_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Processes, "sum", lambda self, values: [1.0])
    config = TrainConfig(out=tmp_path, resume=True)
    with pytest.raises(CheckpointError, match=r"only 1 of 2 processes found .*run directory on a shared disk"):
        loop._Run(config, RunDirectory(tmp_path), Processes(0, 2, torch.device("cpu")), loop.Progress())
