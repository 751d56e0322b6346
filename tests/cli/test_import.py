"""`rbnn import`, and that other commands can read its output."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from answers import Rbnn
from PIL import Image

from rbnn.data import preprocess
from rbnn.training.checkpoint import load_network

sys.path.append(str(Path(__file__).parents[1] / "importing"))
from released import released, save


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("theirs") / "model_best.pth.tar"
    torch.manual_seed(1)
    save(released("resnet18", 2), "resnet18", path)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            folder = tmp_path / "pictures" / split / name
            folder.mkdir(parents=True)
            for number in range(4):
                noise = random.integers(0, 256, (40, 40, 3), dtype=np.uint8)
                Image.fromarray(noise).resize((256, 240)).save(folder / f"{number}.png")
    return tmp_path / "pictures"


def test_import_and_then_eval_and_info(rbnn: Rbnn, theirs: Path, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours.pt"
    answer = rbnn("import", theirs, "-o", out, "--data-dir", pictures)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"{theirs} is a resnet18 for 2 classes; it was converted to {out}\n"
    found = json.loads(rbnn("eval", out, "--data-dir", pictures, "--json").out)

    network = load_network(out)
    hits = 0
    for label, name in enumerate(network.contract.classes):
        for path in sorted((pictures / "val" / name).iterdir()):
            picture = preprocess.picture(path, 224, 3)[None]
            with torch.no_grad():
                values = preprocess.normalise(picture, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
                hits += int(network.model.eval()(torch.from_numpy(values)).argmax()) == label
    assert found["top1"] == pytest.approx(100 * hits / 8)
    assert rbnn("info", out).code == 0


def test_eval_prepares_pictures_as_the_network_was_trained(
    rbnn: Rbnn, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the data set's values: an imported network has its own mean and standard deviation."""
    state = torch.load(run_directory / "best.pt", weights_only=True)
    seen: list[float] = []

    def normalisation(mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        seen.extend([*mean, *std])
        return np.zeros(len(mean), np.float32), np.ones(len(std), np.float32)

    monkeypatch.setattr("rbnn.data.preprocess.normalisation", normalisation)
    state["contract"] |= {"mean": (0.25,), "std": (0.125,)}
    torch.save(state, tmp_path / "other.pt")
    assert rbnn("eval", tmp_path / "other.pt").code == 0
    assert seen == [0.25, 0.125]


def test_import_says_what_is_missing(rbnn: Rbnn, theirs: Path, tmp_path: Path) -> None:
    answer = rbnn("import", theirs, "-o", tmp_path / "ours.pt", "--json")
    assert json.loads(answer.out) == {"model": "resnet18", "classes": 2, "path": str(tmp_path / "ours.pt")}
    assert "named by numbers" in rbnn("import", theirs, "-o", tmp_path / "ours.pt").out
    for words, says in [
        ([tmp_path / "ours.pt", "-o", tmp_path / "x.pt"], "not a checkpoint of the authors' release"),
        ([theirs, "-o", tmp_path / "no" / "x.pt"], "/no/x.pt: the directory "),
        ([theirs, "-o", tmp_path / "x.pt", "--model", "resnet"], "unknown model 'resnet' of the authors' release"),
    ]:
        answer = rbnn("import", *words)
        assert (answer.code, answer.out) == (2, "")
        assert says in answer.err
        assert answer.err.count("\n") == 1
    assert not (tmp_path / "x.pt").exists()
