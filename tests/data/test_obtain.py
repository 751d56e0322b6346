"""Getting data sets: downloads appear complete or not at all, and the error if nothing works."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from official_formats import records, tar

from rbnn import data
from rbnn.cli.data import Data, run
from rbnn.data import _cifar, _files, cifar100
from rbnn.errors import DataError, UnknownName


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _cifar.Cifar:
    """A small CIFAR-100 with a folder in place of the official server."""
    server = tmp_path / "server"
    found = {split: records(100, 20, 100).tobytes() for split in ("train", "test")}
    files = {f"cifar-100-binary/{split}.bin": raw for split, raw in found.items()}
    archive = tar(server / "cifar-100-binary.tar.gz", files)
    monkeypatch.setattr(_cifar, "OFFICIAL", server.as_uri())
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    return replace(
        cifar100.CIFAR100,
        pictures={"train": 100, "test": 100},
        archives={archive.name: md5, "cifar-100-python.tar.gz": ""},
    )


def test_download_verify_and_find_again(small: _cifar.Cifar, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    first = _cifar.obtain(small, directory)
    assert (first.how, first.train, first.test) == ("was downloaded", 100, 100)
    assert first.path == directory / "cifar100" / "cifar-100-binary.tar.gz"
    assert _cifar.obtain(small, directory).how == "was already there"
    assert os.listdir(directory / "cifar100") == ["cifar-100-binary.tar.gz"]


def test_a_download_of_something_else_leaves_nothing(small: _cifar.Cifar, tmp_path: Path) -> None:
    (tmp_path / "server" / "cifar-100-binary.tar.gz").write_bytes(b"<html>please log in</html>")
    with pytest.raises(DataError, match=r"is not the published file.*put cifar-100-binary\.tar\.gz from"):
        _cifar.obtain(small, tmp_path)
    assert list((tmp_path / "cifar100").iterdir()) == []


def test_an_interrupted_download_leaves_nothing(
    small: _cifar.Cifar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _cifar.obtain(small, tmp_path)
    assert list((tmp_path / "cifar100").iterdir()) == []


def test_a_users_archive_that_is_not_the_official_one_is_refused(small: _cifar.Cifar, tmp_path: Path) -> None:
    tar(tmp_path / "cifar-100-binary.tar.gz", {"anything": b""})
    with pytest.raises(DataError, match="is not the published file: expected md5"):
        _cifar.obtain(small, tmp_path)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["cifar10", "cifar100", "fashion-mnist"])
def test_without_any_way_the_error_names_file_and_place(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbnn.data.fashion_mnist.DEBIAN", tmp_path / "nowhere")
    with pytest.raises(DataError) as caught:
        data.obtain(name, tmp_path)
    message = str(caught.value)
    assert "no network" in message
    assert ".gz" in message
    assert str(tmp_path / name) in message
    assert "\n" not in message
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_member_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tar.gz", {"big": bytes(1000)})
    with pytest.raises(DataError, match=r"expected at most 999 bytes in .*big, got 1,000"):
        list(_files.members(archive, ["big"], 999))


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cifar10'"):
        data.load("cifar-10", None, "train")
    with pytest.raises(UnknownName, match="available: cifar10, cifar100"):
        data.obtain("mnist-fashion-and-more", Path())


def test_the_names_are_those_of_the_documentation() -> None:
    assert data.names() == ["digits", "cifar10", "cifar100", "fashion-mnist", "image-folder"]


def test_the_command_says_what_is_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(Data("digits", tmp_path))
    out, err = capsys.readouterr()
    assert out == ("digits is part of scikit-learn: verified, 1,437 training and 360 test images in 10 classes\n")
    assert err == ""
