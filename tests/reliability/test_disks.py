"""Disks that are full, read-only or lose bytes: the run uses the last good checkpoint and tells the user."""

import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from faults import Fault
from killed_run import KILL, code_of, messages, start
from runs import assert_same_run, state_of
from short_runs import command

from rbnn.errors import DamagedCheckpoint
from rbnn.training import checkpoint
from rbnn.training.directory import LOCK

Damage = Callable[[Path], None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """``small_disk("size=1m")``: create or resize a file system in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def set_up(options: str) -> Path:
        nonlocal mounted
        how = f"remount,{options}" if mounted else options
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", how, "tmpfs", str(place)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"needs the right to mount a small disk: {done.stderr.strip()}")
        mounted = True
        return place

    yield set_up
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


def one_sentence(said: Path) -> str:
    """The command's error message."""
    lines = messages(said.read_text())
    assert len(lines) == 1, lines
    assert lines[0].startswith("rbnn: ")
    return lines[0]


@pytest.mark.parametrize(
    "size",
    ["5m", *(pytest.param(size, marks=pytest.mark.long) for size in ("20k", "60k", "600k", "1300k", "2m", "4m"))],
)
def test_a_full_disk(
    size: str, small_disk: Callable[[str], Path], undisturbed: Path, tmp_path: Path, fault: Fault
) -> None:
    out, said = small_disk(f"size={size}") / "run", tmp_path / "said"
    with fault("full disk"):
        assert code_of(start(command(out), said)) == 2, said.read_text()
        assert "No space left on device" in one_sentence(said)
        if size == "5m":
            assert state_of(out / "last.pt")["epoch"] == 1
        small_disk("size=20m")
        assert code_of(start([*command(out), "--resume"], tmp_path / "said after")) == 0
        assert_same_run(undisturbed, out)


def test_a_disk_that_became_read_only(
    small_disk: Callable[[str], Path], undisturbed: Path, tmp_path: Path, fault: Fault
) -> None:
    out, said = small_disk("size=20m") / "run", tmp_path / "said"
    assert code_of(start(command(out), said, "step", 3, (KILL,))) == -KILL
    small_disk("ro")
    with fault("read-only disk"):
        assert code_of(start([*command(out), "--resume"], said)) == 2
        assert "Read-only file system" in one_sentence(said)
        assert code_of(start(command(out.with_name("new")), tmp_path / "new said")) == 2
        assert "cannot write to the run directory" in one_sentence(tmp_path / "new said")
        small_disk("rw")
        assert code_of(start([*command(out), "--resume"], tmp_path / "said after")) == 0
        assert_same_run(undisturbed, out)


def cut_at(share: float) -> Damage:
    def damage(path: Path) -> None:
        whole = path.read_bytes()
        path.unlink()  # only the name: the previous checkpoint may be the same file
        path.write_bytes(whole[: int(len(whole) * share)])

    return damage


def change(place: float) -> Damage:
    def damage(path: Path) -> None:
        changed = bytearray(path.read_bytes())
        path.unlink()
        changed[int(len(changed) * place)] ^= 0xFF
        path.write_bytes(changed)

    return damage


def change_a_checksum(path: Path) -> None:
    with zipfile.ZipFile(path) as container:
        place = container.start_dir + 16  # in the first member's entry in the central directory
    change(place / path.stat().st_size)(path)


DAMAGES = {
    "empty": cut_at(0),
    "cut at the start": cut_at(0.001),
    "cut in the middle": cut_at(0.5),
    "cut at the end": cut_at(0.9999),
    "a byte of a tensor": change(0.5),
    "a checksum near the end": change_a_checksum,
    "gone": Path.unlink,
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Killed in the third epoch: last.pt is from the second epoch, previous.pt from the first."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    assert code_of(start(command(out), out.with_name("said"), "step", 5, (KILL,))) == -KILL
    return out


@pytest.mark.parametrize(
    "name",
    [n if n in ("cut in the middle", "gone") else pytest.param(n, marks=pytest.mark.long) for n in DAMAGES],
)
def test_the_checkpoint_before_a_damaged_one(
    name: str, stopped: Path, undisturbed: Path, tmp_path: Path, fault: Fault
) -> None:
    out, said = shutil.copytree(stopped, tmp_path / "run"), tmp_path / "said"
    DAMAGES[name](out / "last.pt")
    with fault("damaged checkpoint"):
        assert code_of(start([*command(out), "--resume"], said)) == 0, said.read_text()
        told = said.read_text().splitlines()[0]
        assert told.startswith(f"rbnn: {out / 'last.pt'} is ")
        before = f"{out / 'previous.pt'}, step 0 of epoch 2"
        assert told.endswith(f"; the run continues from the previous checkpoint, {before}")
        assert_same_run(undisturbed, out)


@pytest.mark.parametrize("part", ["the list at the end", pytest.param("all of it", marks=pytest.mark.long)])
def test_any_byte_of_a_checkpoint(part: str, tmp_path: Path, fault: Fault) -> None:
    """A changed byte is detected, or it is one that nothing reads, such as a date in the central directory."""
    path = tmp_path / "small.pt"
    written = {"step": 3, "model": {"weight": torch.arange(20.0), "bias": torch.ones(2, dtype=torch.int64)}}
    torch.save(written, path)
    whole, noticed = path.read_bytes(), 0
    with zipfile.ZipFile(path) as container:
        first = container.start_dir if part == "the list at the end" else 0
    for place in range(first, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with fault("one byte of a checkpoint changed"):
            try:
                state = checkpoint.read(path)
            except DamagedCheckpoint:
                noticed += 1
            else:
                assert str(state) == str(written), place
    assert noticed > (len(whole) - first) / 3


def test_both_checkpoints_damaged(stopped: Path, tmp_path: Path, fault: Fault) -> None:
    out, said = shutil.copytree(stopped, tmp_path / "run"), tmp_path / "said"
    for name in ("last.pt", "previous.pt"):
        cut_at(0.5)(out / name)
    (out / LOCK).unlink()  # left by the killed run; the next run takes it over and removes it
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with fault("damaged checkpoint"):
        assert code_of(start([*command(out), "--resume"], said)) == 2
        assert "previous.pt is not a readable checkpoint" in one_sentence(said)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_a_disk_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rbnn.files import keep_as, write_whole

    def refused(*paths: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refused)
    file, kept = tmp_path / "file", tmp_path / "kept"
    for text in (b"one", b"two", b"three"):
        write_whole(file, lambda out, text=text: out.write(text))
        keep_as(file, kept)
        write_whole(file, lambda out: out.write(b"new"))
        assert (file.read_bytes(), kept.read_bytes()) == (b"new", text)
    assert sorted(tmp_path.iterdir()) == [file, kept]
