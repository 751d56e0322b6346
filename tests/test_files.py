"""Whatever happens while a file is written, either the old or the new file is complete."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from rbnn.files import check_place, keep_as, write_whole


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
    with pytest.raises(IsADirectoryError, match="it is a directory, but the output must be a file") as raised:
        write_whole(Path(name), pytest.fail)
    assert raised.value.filename == (name or ".")
    with pytest.raises(IsADirectoryError, match="it is a directory, but the output must be a file"):
        check_place(Path(name))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for attempt in (check_place, lambda path: write_whole(path, lambda file: file.write(b"new"))):
        with pytest.raises(OSError, match="not a regular file"):
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
    """A power failure after the rename must not leave an empty file."""
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
    # The kill's leftovers do no harm.
    write_whole(path, lambda file: file.write(b"newer"))
    assert path.read_bytes() == b"newer"


# Links, and files that are not regular


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    file, link, second = tmp_path / "far" / "file", tmp_path / "link", tmp_path / "second"
    link.symlink_to(file)
    second.symlink_to(link)
    for text in (b"one", b"two"):  # at first it is dangling
        write_whole(second, lambda out, text=text: out.write(text))
        assert file.read_bytes() == text
    assert link.is_symlink()
    assert second.is_symlink()
    assert list((tmp_path / "far").iterdir()) == [file]


def test_a_second_name_is_not_given_to_a_link(tmp_path: Path) -> None:
    file, link, kept = tmp_path / "file", tmp_path / "link", tmp_path / "kept"
    file.write_bytes(b"old")
    link.symlink_to(file)
    keep_as(link, kept)
    write_whole(link, lambda out: out.write(b"new"))
    assert (file.read_bytes(), kept.read_bytes()) == (b"new", b"old")


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_whole(path, lambda out: out.write(b"new"))
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_no_ordinary_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "link", "loop"):
        for attempt in (check_place, lambda path: write_whole(path, lambda out: out.write(b"new"))):
            with pytest.raises(OSError, match=r"not a regular file|symbolic links"):
                attempt(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "loop", "pipe"]
    assert (tmp_path / "link").readlink() == Path("/dev/null")


@pytest.mark.parametrize("where", ["a file", "a pipe"])
def test_the_devices_of_the_own_output_are_refused(where: str, tmp_path: Path) -> None:
    """With ``-o /dev/stdout > file`` a rename would give the file another inode than the one that the shell has opened,
    and as root it would replace the link in /dev.  The test uses its own link, so that a failure does no harm."""
    link, file = tmp_path / "stdout", tmp_path / "file"
    link.symlink_to("/proc/self/fd/1")
    script = f"from pathlib import Path; from rbnn.files import check_place; check_place(Path({str(link)!r}))"
    with file.open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdout=out if where == "a file" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    says = "this command's own output goes there" if where == "a file" else "not a regular file"
    assert says in done.stderr.splitlines()[-1]
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "stdout"]
