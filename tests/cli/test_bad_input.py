"""Bad input: one sentence, exit code 2, no traceback, nothing changed."""

import pickle
from pathlib import Path

import pytest
import torch
from answers import SMALL, Rbnn
from packed_networks import small_network

from rbnn.packed import file as packfile


@pytest.fixture
def place(tmp_path: Path, run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files that users pass by mistake."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("urllib.request.urlopen", pytest.fail)
    monkeypatch.setattr("shutil.which", lambda name: None)
    (tmp_path / "empty directory").mkdir()
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "half.pt").write_bytes((run_directory / "best.pt").read_bytes()[:5000])
    (tmp_path / "foreign.pt").write_bytes(pickle.dumps({"model": 3}))
    torch.save({"weight": torch.zeros(2)}, tmp_path / "weights ü.pt")
    (tmp_path / "typo.toml").write_text("epoch = 3\n")
    (tmp_path / "type.toml").write_text('epochs = "3"\n')
    (tmp_path / "not.toml").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (tmp_path / "option.toml").write_text('[options]\nrotatoin = "layer"\n')
    (tmp_path / "contradiction.toml").write_text('[options]\nrotation = "none"\n')
    (tmp_path / "file").write_text("in the way")
    packfile.write(small_network(), tmp_path / "packed")
    return tmp_path


TRAIN = ["train", "digits", *SMALL]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([*TRAIN, "--model", "resnet-20"], "unknown model 'resnet-20': did you mean 'resnet20"),
        ([*TRAIN, "--method", "rbn"], "unknown method 'rbn': did you mean 'rbnn'?"),
        ([*TRAIN, "--data", "cifra10"], "unknown data set 'cifra10': did you mean 'cifar10'?"),
        (
            [*TRAIN, "--options", "rotatoin=layer"],
            "unknown option 'rotatoin' of method 'rbnn': did you mean 'rotation'?",
        ),
        ([*TRAIN, "--options", "cycles=many"], "option 'cycles' of method 'rbnn' must be of type int"),
        ([*TRAIN, "--options", "rotation=row"], "option 'rotation' of method 'rbnn' must be one of"),
        ([*TRAIN, "--lr", "nan"], "lr must be a finite number of 0 or more, got nan"),
        ([*TRAIN, "--epochs", "0"], "epochs must be at least 1"),
        ([*TRAIN, "--accumulate", "3"], "cannot be split into 3"),
        ([*TRAIN, "--seed", "99999999999999999999"], "seed must be 0 or more and below"),
        ([*TRAIN, "--device", "gpu"], "device 'gpu' is not available"),
        ([*TRAIN, "--image-size", "32"], "images of digits have size 8"),
        (
            [*TRAIN, "--out", "file"],
            "run directory file cannot be created, because file is a file: choose another --out",
        ),
        (
            [*TRAIN, "--out", "file/run"],
            "run directory file/run cannot be created, because file is a file: choose another",
        ),
        (
            [*TRAIN, "--start-from", "nothing.pt"],
            "no checkpoint, run directory, packed file or pretrained network is named nothing.pt",
        ),
        ([*TRAIN, "--start-from", "weights ü.pt"], "weights ü.pt is not an rbnn checkpoint"),
        ([*TRAIN, "--data", "cifar10", "--data-dir", "no such"], "cifar"),
        ([*TRAIN, "--data", "image-folder", "--data-dir", "empty directory"], "empty directory"),
        (["train", "digit"], "unknown recipe or file 'digit': did you mean 'digits'?"),
        (["train", "empty directory"], "empty directory contains no run: it has no config.toml"),
        (["train", "typo.toml"], "unknown key 'epoch' in recipe typo.toml: did you mean 'epochs'?"),
        (["train", "type.toml"], "epochs in recipe type.toml must be of type int, got '3'"),
        (["train", "not.toml"], "recipe not.toml is not valid TOML"),
        (["train", "option.toml"], "did you mean 'rotation'?"),
        (["train", "contradiction.toml", *SMALL], "alpha = 'none'"),
        (["train", "x" * 300], "File name too long"),
        (["eval", "nothing"], "no checkpoint, run directory, packed file or pretrained network is named nothing:"),
        (["eval", "empty directory"], "empty directory contains neither best.pt nor last.pt"),
        (["eval", "text.pt"], "text.pt is not a readable checkpoint"),
        (["eval", "half.pt"], "half.pt is not a readable checkpoint"),
        (
            ["eval", "foreign.pt"],
            "foreign.pt is not a readable checkpoint: it is truncated, damaged or from another program",
        ),
        (["eval", "weights ü.pt"], "weights ü.pt is not an rbnn checkpoint: the key 'rbnn' is missing"),
        (["eval", "file/inside"], "cannot read checkpoint file/inside: Not a directory"),
        (["eval", "RUN", "--data", "digitz"], "unknown data set 'digitz': did you mean 'digits'?"),
        (["eval", "RUN", "--data", "cifar10"], "cifar"),
        (["eval", "RUN", "--batch-size", "0"], "batch_size"),
        (["eval", "RUN", "--device", "cuda:77"], "device 'cuda:77' is not available"),
        (
            ["export", "resnet20-bireal-digits", "-o", "x.rbnn"],
            "resnet20-bireal-digits is a packed network, which",
        ),
        (
            ["export", "packed", "-o", "x.rbnn"],
            "packed is a packed network, which has no training state: -o takes a run directory or checkpoint",
        ),
        (
            ["export", "weights ü.pt", "-o", "x.rbnn"],
            "it is a state dict: load it into your model with load_state_dict, which rbnn.export then packs",
        ),
        (["export", "none.rbnn", "-o", "x.rbnn"], "checkpoint none.rbnn does not exist"),
        (["export", "RUN", "-o", "."], "cannot access .: it is a directory, but the output must be a file"),
        (
            ["export", "RUN", "-o", "empty directory"],
            "cannot access empty directory: it is a directory, but the output must be a file",
        ),
        (
            ["export", "RUN", "-o", "no such/net.rbnn"],
            "cannot access no such/net.rbnn: the directory no such does not exist",
        ),
        (["report", "RUN", "-o", "/"], "cannot access /: it is a directory, but"),
        (["report", "RUN", "-o", "file/page.html"], "cannot access file/page.html: Not a directory"),
        (["import", "text.pt", "-o", ".."], "cannot access ..: it is a directory, but"),
        (["info", "nothing"], "unknown network, run directory, checkpoint or packed file 'nothing': "),
        (["data", "digitz"], "unknown data set 'digitz': did you mean 'digits'?"),
        (["data", "cifar10", "--dir", "file"], "file"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_one_sentence(words: list[str], says: str, rbnn: Rbnn, run_directory: Path, place: Path) -> None:
    before = sorted(place.rglob("*"))
    answer = rbnn(*(run_directory if word == "RUN" else word for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("rbnn: ")
    assert says in answer.err
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert sorted(place.rglob("*")) == before


def test_places_are_tried_before_the_work(
    rbnn: Rbnn, run_directory: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object) -> None:
        raise RuntimeError("work")

    for name in ("exporting.pack", "report.page.read", "importing.authors_release.import_checkpoint"):
        monkeypatch.setattr(f"rbnn.{name}", work)
    for command in ("export", "report", "import"):
        assert rbnn(command, run_directory, "-o", "empty directory").code == 2
        assert "RuntimeError: work" in rbnn(command, run_directory, "-o", "new").err


@pytest.mark.parametrize(
    "words",
    [
        [*TRAIN, "--learning-rate", "1"],
        [*TRAIN, "--lr", "much"],
        [*TRAIN, "--epochs", "1.5"],
        [*TRAIN, "--decay", "none"],
        [*TRAIN, "--options", "rotation"],
        ["eval"],
        ["models", "--jsno"],
        ["data"],
    ],
    ids=lambda value: " ".join(value)[:40],
)
def test_the_parser_complains_of_flags(words: list[str], rbnn: Rbnn, place: Path) -> None:
    answer = rbnn(*words)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err
    assert "Traceback" not in answer.err


def test_a_network_on_other_data(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    """The data set is valid, but not the one that the network was trained on."""
    from PIL import Image

    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "image-folder" / split / name
            folder.mkdir(parents=True)
            Image.new("RGB", (12, 12)).save(folder / "picture.png")
    answer = rbnn("eval", run_directory, "--data", "image-folder", "--data-dir", tmp_path)
    assert (answer.code, answer.out) == (2, "")
    assert "takes images with 1 channel, but those of image-folder have 3: choose the data set" in answer.err


def test_a_loss_that_is_not_finite(rbnn: Rbnn, tmp_path: Path) -> None:
    answer = rbnn(*TRAIN, "--epochs", "2", "--lr", "1e12", "--out", tmp_path)
    assert (answer.code, answer.out) == (2, "")
    *epochs, last = answer.err.splitlines()
    assert last.startswith("rbnn: ")
    assert "lower lr" in last
    assert all(line.startswith("epoch ") for line in epochs)


def test_debug_shows_where(rbnn: Rbnn) -> None:
    answer = rbnn(*TRAIN, "--model", "resnet-20", "--debug")
    assert answer.code == 2
    assert "Traceback (most recent call last)" in answer.err
    assert "UnknownName" in answer.err
