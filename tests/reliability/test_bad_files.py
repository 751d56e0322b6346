"""Every command × every kind of bad file: one sentence, exit code 2, nothing written, little memory.

A new command needs a line in COMMANDS, a new kind of bad file a function in TROUBLE.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults import Fault
from killed_run import messages
from packed_files import Change, rewrite
from packed_networks import small_network
from PIL import Image
from released import released, save
from restricted import answers
from safetensors.numpy import save_file
from short_runs import EPOCHS

from rbnn.cli import commands
from rbnn.packed import file as packfile
from rbnn.reproduce.plan import make_budget, plan
from rbnn.reproduce.tables import find_table
from rbnn.training.config import as_toml

HUGE = 8 << 30
ODD_NAME = "ein Pfad, mit ü & 漢字"


@dataclass(frozen=True)
class Command:
    """Arguments: BAD is the bad file; NET, PICTURE and RUN are good ones; OUT is the output."""

    words: list[str]
    takes: str
    """checkpoint, foreign (one of the paper's authors), packed, picture, recipe, table, run/FILE (a file in the run
    directory BAD), tables/FILE (in a run of the tables in BAD) or data/FILE."""
    has_good: bool = True
    """Whether a good file exists, which is then also tried under an odd name."""


TRAIN = ["--epochs", "1", "--limit", "128", "--batch-size", "64", "--threads", "1", "--out", "OUT"]
DATA = "data/cifar10/cifar-10-binary.tar.gz"
REPRODUCE = ["reproduce", "ablation", "--rows", "B", "--data", "digits", "--epochs", str(EPOCHS), "--limit", "128"]
COMMANDS = {
    "eval": Command(["eval", "BAD"], "checkpoint"),
    "eval of a packed file": Command(["eval", "BAD", "--data", "digits"], "packed", False),
    "eval of a run": Command(["eval", "BAD"], "run/best.pt"),
    "info": Command(["info", "BAD"], "checkpoint"),
    "info of a packed file": Command(["info", "BAD"], "packed"),
    "export": Command(["export", "BAD", "-o", "out.rbnn"], "checkpoint"),
    "export to ONNX": Command(["export", "BAD", "--onnx", "out.onnx"], "checkpoint"),
    "export to ONNX of a packed file": Command(["export", "BAD", "--onnx", "out.onnx"], "packed"),
    "export to QONNX": Command(["export", "BAD", "--qonnx", "out.onnx"], "checkpoint"),
    "export to QONNX of a packed file": Command(["export", "BAD", "--qonnx", "out.onnx"], "packed"),
    "predict": Command(["predict", "BAD", "PICTURE"], "packed"),
    "predict by a checkpoint": Command(["predict", "BAD", "PICTURE"], "checkpoint"),
    "predict of a picture": Command(["predict", "NET", "BAD"], "picture"),
    "bench": Command(["bench", "BAD", "--against", "", "--seconds", "0.01"], "packed"),
    "bench of a checkpoint": Command(["bench", "BAD", "--against", "", "--seconds", "0.01"], "checkpoint"),
    "train": Command(["train", "BAD", *TRAIN], "recipe"),
    "train, resumed": Command(["train", "BAD", "--resume"], "run/last.pt"),
    "train, its initial signs": Command(["train", "BAD", "--resume"], "run/initial.safetensors"),
    "train, its log": Command(["train", "BAD", "--resume"], "run/log.jsonl"),
    "train, its configuration": Command(["train", "BAD", "--resume"], "run/config.toml"),
    "train, its data": Command(["train", "digits", *TRAIN, "--data", "cifar10", "--data-dir", "BAD"], DATA, False),
    "train from a start": Command(["train", "digits", *TRAIN, "--start-from", "BAD"], "checkpoint"),
    "report": Command(["report", "BAD", "-o", "out.html"], "run/best.pt", False),
    "report of a checkpoint": Command(["report", "BAD", "-o", "out.html"], "checkpoint", False),
    "report, its log": Command(["report", "BAD", "-o", "out.html"], "run/log.jsonl", False),
    "report of a table": Command(["report", "BAD", "-o", "out.html"], "table", False),
    "report, a packed file": Command(["report", "RUN", "--packed", "BAD", "-o", "out.html"], "packed", False),
    "data": Command(["data", "cifar10", "--dir", "BAD"], DATA, False),
    "import": Command(["import", "BAD", "-o", "out.pt"], "foreign"),
    "reproduce": Command([*REPRODUCE, "--out", "BAD"], "tables/last.pt"),
    "reproduce, its log": Command([*REPRODUCE, "--out", "BAD"], "tables/log.jsonl"),
}
WITHOUT_FILES = {"models", "methods", "recipes", "doctor", "completion"}


def rewritten_checkpoint(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        state = torch.load(path, weights_only=True)
        change(state)
        torch.save(state, path)

    return rewrite


def of_version_9(path: Path) -> None:
    now = b'"rbnn.version":"%d"' % packfile.VERSION
    written = path.read_bytes()
    assert now in written
    path.write_bytes(written.replace(now, b'"rbnn.version":"9"'))


def rewritten_packed(change: Change) -> Callable[[Path], object]:
    return lambda path: rewrite(path, change)


def as_text(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def make_huge(path: Path) -> None:
    os.truncate(path, HUGE)


NEST = "[" * 200_000 + "]" * 200_000
TROUBLE: dict[str, dict[str, Callable[[Path], object]]] = {
    "missing": {"any": Path.unlink},
    "empty": {"any": lambda path: path.write_bytes(b"")},
    "truncated": {"any": cut},
    "of another type": {
        "any": lambda path: Image.new("L", (99, 99)).save(path, "PPM"),
        "picture": as_text("hello"),
    },
    "a directory": {"any": make_directory},
    "of another network": {
        "checkpoint": rewritten_checkpoint(lambda state: state["config"].update(model="vgg-small")),
        "packed": rewritten_packed(
            lambda parts, tensors: tensors.update({"stem.weight": np.zeros((16, 3, 5, 5), np.float32)})
        ),
        "foreign": rewritten_checkpoint(lambda state: state["state_dict"].pop("layer1.0.conv1.R1")),
        "recipe": as_text('model = "resnet-1000"\n'),
        "table": as_text('{"table": "ablation", "rows": [{"row": "B", "runs": ["no/such"], "seeds": [0]}]}'),
        "initial.safetensors": lambda path: save_file({"conv": np.zeros(3, np.uint64)}, path),
    },
    "of another version": {
        "checkpoint": rewritten_checkpoint(lambda state: state.update(rbnn=99)),
        "foreign": rewritten_checkpoint(lambda state: state.update(model="resnet20_2w2a")),
        "packed": of_version_9,
        "recipe": as_text("learning_rate = 1.0\n"),
        "table": as_text('{"tables": ["ablation"]}'),
    },
    "not a number": {
        "checkpoint": rewritten_checkpoint(lambda state: state["model"]["conv1.weight"].fill_(float("nan"))),
        "foreign": rewritten_checkpoint(lambda state: state["state_dict"]["conv1.weight"].fill_(float("nan"))),
        "packed": rewritten_packed(lambda parts, tensors: tensors["one.scale"].fill(np.nan)),
        "recipe": as_text("lr = nan\n"),
    },
    "nested deeply": {
        "packed": rewritten_packed(lambda parts, tensors: parts.update(graph=NEST)),
        "recipe": as_text(f"options = {NEST}\n"),
        "log.jsonl": as_text(f'{{"epoch": {NEST}}}\n{{"epoch": 1}}\n'),
        "table": as_text(f'{{"table": "ablation", "rows": {NEST}}}'),
    },
    "huge": {"any": make_huge},
    "without permission": {"any": lambda path: path.chmod(0)},
    "a loop of links": {"any": make_loop},
    "good, under an odd name": {"any": lambda path: None},
}
HARMLESS = {
    "train": {"empty"},
    "train, resumed": {"missing"},
    "train, its log": {"missing", "empty", "truncated"},
    "eval of a run": {"missing", "a loop of links", "a directory"},
    "predict of a picture": {"huge"},
    "reproduce": {"of another network", "not a number"},
}
"""Files that a command can do without: a recipe has defaults, a log is started again, a missing run is started, best.pt
and last.pt replace each other, an image may have trailing bytes, and a table needs only the log of a finished run."""
NOT_HERE = {
    "data": {"missing", "a directory", "a loop of links"},
    "report": {"missing", "a directory", "a loop of links"},
    "report, its log": {"missing", "empty", "truncated", "a loop of links"},
    "reproduce": {"missing", "a loop of links"},
}
"""Cases in which the command would download files, train again, or do its work without this file, which takes long."""


@pytest.fixture(scope="module")
def good(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("good")
    packfile.write(small_network(), folder / "net.rbnn")
    Image.new("RGB", (20, 12), "red").save(folder / "picture.png")
    words = [f"{key[2:]} = {value}" for key, value in zip(TRAIN[:-2:2], TRAIN[1:-2:2], strict=True)]
    (folder / "recipe.toml").write_text("\n".join(words).replace("-", "_") + "\n")
    (folder / "table.json").write_text('{"table": "ablation", "rows": []}')
    (folder / "archive").write_bytes(b"\x1f\x8b" + bytes(5000))
    save(released("resnet20", 10), "resnet20", folder / "theirs.pth")
    fill_tables(folder / "tables", undisturbed)
    return {
        "checkpoint": undisturbed / "best.pt", "packed": folder / "net.rbnn", "picture": folder / "picture.png",
        "recipe": folder / "recipe.toml", "run": undisturbed, "data": folder / "archive",
        "table": folder / "table.json",
        "foreign": folder / "theirs.pth", "tables": folder / "tables",
    }  # fmt: skip


def fill_tables(out: Path, run: Path) -> None:
    """The directory that REPRODUCE writes; the weights are those of ``run``, which has the same number of epochs."""
    table = find_table("ablation")
    budget = make_budget(table, out, name="digits", epochs=EPOCHS, batch_size=0, accumulate=1, limit=128)
    planned = plan(table, (0,), budget, {}, out=out, data_dir=Path("data"))
    (chosen,) = (one for one in planned if one.row.name == "B")
    shutil.copytree(run, chosen.out)
    (chosen.out / "config.toml").write_text(as_toml(chosen.config))


def prepare(name: str, trouble: str, good: dict[str, Path], folder: Path) -> tuple[list[str], Path] | None:
    """The arguments of the command and the bad file, or None if the combination is impossible."""
    entry = COMMANDS[name]
    kind, _, inside = entry.takes.partition("/")
    type_of = {"last.pt": "checkpoint", "best.pt": "checkpoint", "config.toml": "recipe"}.get(inside, inside or kind)
    makers = TROUBLE[trouble]
    make = makers.get(type_of, makers.get("any"))
    if make is None or trouble in NOT_HERE.get(name, ()) or (trouble.startswith("good") and not entry.has_good):
        return None
    folder.mkdir()
    odd = ODD_NAME if trouble.startswith("good") else "bad"
    if kind in ("run", "tables"):
        place = shutil.copytree(good[kind], folder / odd)
        (file,) = place.rglob(inside)
        file.with_name("previous.pt").unlink()
    elif kind == "data":
        place = folder / odd
        file = place / inside
        file.parent.mkdir(parents=True)
        shutil.copy(good["data"], file)
    else:
        place = file = folder / f"{odd}{good[kind].suffix}"
        shutil.copy(good[kind], file)
    make(file)
    return with_places(entry.words, good, BAD=place, OUT=folder / "out"), file


def with_places(words: list[str], good: dict[str, Path], **places: Path) -> list[str]:
    known = {"NET": good["packed"], "PICTURE": good["picture"], "RUN": good["run"], **places}
    return [str(known.get(word, word)) for word in words]


QUICK = {"info", "predict", "train"}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in COMMANDS])
def test_bad_files(name: str, good: dict[str, Path], tmp_path: Path, fault: Fault) -> None:
    prepared = {trouble: prepare(name, trouble, good, tmp_path / trouble) for trouble in TROUBLE}
    cases = {trouble: found for trouble, found in prepared.items() if found is not None}
    here = tmp_path / "here"
    here.mkdir()
    for (trouble, (words, _)), (code, out, err) in zip(
        cases.items(), answers([words for words, _ in cases.values()], here), strict=True
    ):
        well = trouble.startswith("good") or trouble in HARMLESS.get(name, ())
        with fault("bad file" if not well else "odd name, or a file that can be spared"):
            assert code == (0 if well else 2), (trouble, words, code, out, err)
            assert "Traceback" not in err, (trouble, err)
            if not well:
                said = messages(err)
                assert len(said) == 1, (trouble, err)
                assert said[0].startswith("rbnn: "), (trouble, err)
                assert out == "", (trouble, out)


def without_rights(path: Path) -> None:
    path.mkdir(mode=0o500)


OUTPUTS = {
    "train": ["train", "digits", *TRAIN[:-1], "OUT"],
    "export": ["export", "RUN", "-o", "OUT"],
    "export to ONNX": ["export", "NET", "--onnx", "OUT"],
    "export to QONNX": ["export", "RUN", "--qonnx", "OUT"],
    "report": ["report", "RUN", "-o", "OUT"],
    "report, its figures": ["report", "RUN", "-o", "out.html", "--figures", "OUT"],
    "import": ["import", "THEIRS", "-o", "OUT"],
    "reproduce": [*REPRODUCE, "--out", "OUT"],
    "data": ["data", "cifar10", "--dir", "OUT"],
}
PLACES: dict[str, Callable[[Path], object]] = {
    "without permission": without_rights,
    "a file": as_text(""),
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a directory": lambda path: (path / "out").mkdir(parents=True),
}
FILES = {"export", "export to ONNX", "export to QONNX", "report", "import"}
"""Commands whose output is a file; the others write to a directory."""


@pytest.mark.long
@pytest.mark.parametrize("name", OUTPUTS)
def test_places_that_cannot_be_written_to(name: str, good: dict[str, Path], tmp_path: Path, fault: Fault) -> None:
    cases = []
    places = [trouble for trouble in PLACES if trouble != "a directory" or name in FILES]
    for trouble in places:
        PLACES[trouble](tmp_path / trouble)
        cases.append(with_places(OUTPUTS[name], good, OUT=tmp_path / trouble / "out", THEIRS=good["foreign"]))
    here = tmp_path / "here"
    here.mkdir()
    for trouble, (code, out, err) in zip(places, answers(cases, here), strict=True):
        with fault("place that cannot be written to"):
            assert (code, out) == (2, ""), (trouble, code, out, err)
            assert err.startswith("rbnn: "), (trouble, err)
            assert err.count("\n") == 1, (trouble, err)


def test_every_command_is_in_the_table() -> None:
    tested = {entry.words[0] for entry in COMMANDS.values()}
    assert tested | WITHOUT_FILES == set(commands())


def test_the_restriction_is_real(tmp_path: Path) -> None:
    """The limits on memory and rights take effect."""
    (tmp_path / "secret.toml").write_text("epochs = 1\n")
    (tmp_path / "secret.toml").chmod(0)
    ((code, _, err),) = answers([["train", "secret.toml"]], tmp_path)
    assert (code, err) == (2, "rbnn: cannot read recipe secret.toml: Permission denied\n")
