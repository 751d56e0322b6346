"""Whatever happens while a file is written, the old one or the new one is there."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from rbnn.files import check_place, write_whole


class Interrupted(BaseException):
    pass


def test_a_new_file_and_a_replaced_one(tmp_path: Path) -> None:
    path = tmp_path / "ein Lauf ü" / "file"
    path.parent.mkdir()
    write_whole(path, lambda file: file.write(b"old"))
    assert path.read_bytes() == b"old"
    write_whole(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", [".", "..", "/", "folder", ""])
def test_a_directory_is_no_place_for_a_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "folder").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(IsADirectoryError, match="Is a directory") as raised:
        write_whole(Path(name), pytest.fail)
    assert raised.value.filename == (name or ".")
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        check_place(Path(name))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for attempt in (check_place, lambda path: write_whole(path, lambda file: file.write(b"new"))):
        with pytest.raises(OSError, match="not an ordinary file"):
            attempt(pipe)
    assert pipe.is_fifo()
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_place_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    check_place(tmp_path / "file")
    check_place(tmp_path / "new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    for place, error in (("none/new", FileNotFoundError), ("file/new", NotADirectoryError)):
        with pytest.raises(error) as raised:
            check_place(tmp_path / place)
        assert raised.value.filename == str(tmp_path / place)


@pytest.mark.parametrize("error", [OSError("disk full"), ValueError(), KeyboardInterrupt(), Interrupted()])
def test_an_error_while_writing_leaves_the_old_file_alone(error: BaseException, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"new" * 1000)
        file.flush()
        raise error

    with pytest.raises(type(error)):
        write_whole(path, write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_data_is_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the rename must not find an empty file."""
    path = tmp_path / "file"
    happened = []
    fsync, replace = os.fsync, Path.replace

    def seen_fsync(number: int) -> None:
        happened.append(f"fsync with {path.exists()=}")
        fsync(number)

    def seen_replace(self: Path, target: Path) -> Path:
        happened.append(f"replace {len(self.read_bytes())}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(Path, "replace", seen_replace)
    write_whole(path, lambda file: file.write(b"12345"))
    assert happened == ["fsync with path.exists()=False", "replace 5", "fsync with path.exists()=True"]


@pytest.mark.parametrize("moment", ["before", "while", "after"])
def test_a_kill_leaves_the_old_or_the_new_file(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    script = f"""
import os, signal
from pathlib import Path
from rbnn.files import write_whole

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def write(file):
    file.write(b"new" * 100_000)
    if {moment == "while"}:
        kill()

if {moment == "before"}:
    Path.replace = kill
if {moment == "after"}:
    replace = Path.replace
    Path.replace = lambda self, target: (replace(self, target), kill())
write_whole(Path({str(path)!r}), write)
"""
    killed = subprocess.run([sys.executable, "-c", script], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == (b"new" * 100_000 if moment == "after" else b"old")
    # And what the kill left behind is in nobody's way.
    write_whole(path, lambda file: file.write(b"newer"))
    assert path.read_bytes() == b"newer"
