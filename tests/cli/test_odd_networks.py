"""Networks with non-finite outputs, and classes in another order."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from answers import Rbnn
from PIL import Image

from rbnn import data
from rbnn.training import checkpoint
from rbnn.training.config import TrainConfig
from rbnn.training.contract import InputContract


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained network for digits."""
    config = TrainConfig(model="resnet20", method="dsq")
    contract = InputContract.of(data.load("digits", None, "train"), 0)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("net") / "net.pt"
    checkpoint.save(path, config, contract, checkpoint.build(config, contract))
    return path


CHANGES = {
    "3e38": ("conv1.weight", 3e38, "above 1e+18"),
    "a negative variance": ("bn1.running_var", -1.0, "below 0"),
    "finite, but not in effect": ("layers.0.0.conv1.method.of_weight.alpha", 5.0, "not finite"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_no_answer_is_not_a_number(name: str, net: Path, tmp_path: Path, rbnn: Rbnn) -> None:
    key, value, says = CHANGES[name]
    state = torch.load(net, weights_only=True)
    state["model"][key].fill_(value)
    torch.save(state, tmp_path / "odd.pt")
    Image.new("L", (8, 8), 99).save(tmp_path / "picture.png")
    for words in (["predict", "odd.pt", "picture.png", "--json"], ["eval", "odd.pt", "--json"]):
        said = rbnn(*(str(tmp_path / word) if "." in word else word for word in words))
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1), (words, said)
        assert says in said.err


def test_classes_in_another_order_are_the_same_classes(net: Path, rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs of a network keep their meaning if a data set orders its classes differently."""
    out = rbnn("eval", str(net), "--json").out
    load, order = data.load, np.random.default_rng(0).permutation(10)

    def shuffled(*words: object) -> object:
        found = load(*words)  # type: ignore[arg-type]
        return replace(found, classes=tuple(found.classes[i] for i in order), labels=np.argsort(order)[found.labels])

    monkeypatch.setattr(data, "load", shuffled)
    assert rbnn("eval", str(net), "--json").out == out
    assert json.loads(out)["top5"] > 0
