"""The directory of a run: foreign files are never touched, and two runs never share a directory."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from runs import small, words

from rbnn.errors import ConfigError
from rbnn.training.directory import LOCK, RunDirectory
from rbnn.training.loop import Progress, train

HIDDEN = (".env.2", ".secrets.1", ".bashrc.20240101", ".zcompdump-host-5.9", ".last.pt.4711")
OURS = (".rbnn-tmp.4711.last.pt", ".rbnn-tmp.1.config.toml")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", [*HIDDEN, "thesis.tex", ".rbnn-tmp.x.last.pt", ".rbnn-tmp.1.thesis.tex", "src/"])
def test_a_directory_with_strangers_files_is_refused(name: str, tmp_path: Path) -> None:
    if name.endswith("/"):
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=rf"is not a run directory, because it contains {name.strip('/')}: choose"):
        train(small(tmp_path, epochs=1, limit=64))
    assert contents(tmp_path) == before


def test_what_a_user_puts_into_a_run_stays(uninterrupted: Path, tmp_path: Path) -> None:
    """A resumed run deletes only what it wrote itself."""
    run = tmp_path / "run"
    run.mkdir()
    for path in uninterrupted.iterdir():
        (run / path.name).write_bytes(path.read_bytes())
    for name in (*HIDDEN, *OURS, "net.rbnn", ".rbnn-tmp.1.net.rbnn"):
        (run / name).write_text("mine")
    train(small(run, resume=True))
    left = contents(run)
    assert {name for name in OURS if name in left} == set()
    assert {name for name in HIDDEN if left.get(name) == b"mine"} == set(HIDDEN)
    assert left["net.rbnn"] == left[".rbnn-tmp.1.net.rbnn"] == b"mine"


@pytest.mark.parametrize("name", ["best.pt", "log.jsonl"])
def test_remains_of_another_run_are_not_written_over(name: str, uninterrupted: Path, tmp_path: Path) -> None:
    for kept in (name, "config.toml"):
        (tmp_path / kept).write_bytes((uninterrupted / kept).read_bytes())
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="contains the remains of a run: choose another --out"):
        train(small(tmp_path))
    with pytest.raises(ConfigError, match=r"remains of a run with lr = 0\.05, not lr = 0\.7"):
        train(small(tmp_path, lr=0.7, resume=True))
    assert contents(tmp_path) == before
    (tmp_path / "config.toml").unlink()
    with pytest.raises(ConfigError, match=r"remains of a run with no config\.toml"):
        train(small(tmp_path, resume=True))


class Another(Progress):
    """Start a second run in the same directory while the first is running."""

    def __init__(self, out: Path) -> None:
        self.out, self.said = out, ""

    def step(self, images: int, loss: float, top1: float) -> None:
        if not self.said:
            try:
                train(small(self.out, resume=True))
            except ConfigError as error:
                self.said = str(error)


def test_two_runs_of_one_process(tmp_path: Path) -> None:
    another = Another(tmp_path / "run")
    train(small(tmp_path / "run", epochs=1, limit=64), another)
    assert another.said == (
        f"{tmp_path / 'run'} is in use by another run (process {os.getpid()}, this one): wait for it, or choose "
        "another --out"
    )
    assert not (tmp_path / "run" / LOCK).exists()


def test_two_runs_of_two_processes(tmp_path: Path) -> None:
    """The second run is told which process holds the directory; once that process is killed, it may start."""
    out = tmp_path / "run"
    script = Path(__file__).with_name("signalled_run.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    first = subprocess.Popen([sys.executable, str(script), "SIGSTOP", "2", *words(out)], env=environment)
    try:
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        with pytest.raises(ConfigError, match=rf"in use by another run \(process {first.pid} on \S+, since 20"):
            train(small(out, resume=True))
        with pytest.raises(ConfigError, match="in use by another run"):
            train(small(out))
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert (out / LOCK).exists()
    assert train(small(out, resume=True, epochs=2)).last["epoch"] == 1
    assert not (out / LOCK).exists()


def test_a_lock_that_was_taken_away_is_not_relied_upon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening and locking the file, its holder may delete it; the name may then belong to another file."""
    fcntl = pytest.importorskip("fcntl")
    locked, lockf = [], fcntl.lockf

    def delete_first(handle: int, how: int) -> None:
        if not locked:
            (tmp_path / LOCK).unlink()
        locked.append(handle)
        lockf(handle, how)

    monkeypatch.setattr(fcntl, "lockf", delete_first)
    directory = RunDirectory(tmp_path)
    directory.hold()
    assert len(locked) == 2
    assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    directory.release()
    assert list(tmp_path.iterdir()) == []


def test_threads_do_not_share_a_directory(tmp_path: Path) -> None:
    said: list[str] = []

    def hold() -> None:
        try:
            RunDirectory(tmp_path).hold()
        except ConfigError as error:
            said.append(str(error))

    directory = RunDirectory(tmp_path)
    directory.hold()
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    directory.release()
    assert len(said) == 1
