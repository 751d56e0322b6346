"""Recipes: each is what its name says, and no row of the paper's tables is without its own."""

import re
import tomllib
from pathlib import Path

import pytest
import torch

from rbnn.methods import method_names, method_options
from rbnn.models import create_model, model_names
from rbnn.training.config import bundled_recipes, find_recipe, read_recipe

# (table, model, method) → accuracy in the paper, top-1 and for ImageNet top-5.
ROWS = {
    ("cifar10", "resnet18-cifar", "float"): ("93.0",),
    ("cifar10", "resnet18-cifar", "rbnn"): ("92.2",),
    ("cifar10", "resnet20", "float"): ("91.7",),
    ("cifar10", "resnet20", "rbnn"): ("86.5",),
    ("cifar10", "resnet20-bireal", "rbnn"): ("87.8",),
    ("cifar10", "vgg-small", "float"): ("91.7",),
    ("cifar10", "vgg-small", "xnor-net"): ("89.8",),
    ("cifar10", "vgg-small", "rbnn"): ("91.3",),
    ("imagenet", "resnet18", "float"): ("69.6", "89.2"),
    ("imagenet", "resnet18", "xnor-net"): ("51.2", "73.2"),
    ("imagenet", "resnet18", "rbnn"): ("59.9", "81.9"),
    ("imagenet", "resnet34", "float"): ("73.3", "91.3"),
    ("imagenet", "resnet34", "rbnn"): ("63.1", "84.4"),
}
DATA = {"cifar10": "cifar10", "imagenet": "image-folder"}
SHORT = {
    "cifar10-resnet20-bireal-rbnn-cpu",
    "cifar10-resnet20-bireal-float-cpu",
    "cifar10-resnet20-bireal-xnor-net-cpu",
    "cifar10-resnet20-bireal-ir-net-cpu",
}
RECIPES = sorted(bundled_recipes().glob("*.toml"))


def name_of(table: str, model: str, method: str) -> str:
    """``cifar10`` in front says enough: ``resnet18-cifar`` need not repeat it."""
    return f"{table}-{model.removesuffix('-cifar')}-{method}"


def comment(path: Path) -> str:
    """The comment at the top, as one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(
        line.removeprefix("#").strip() for line in lines[: lines.index(next(x for x in lines if x[:1] != "#"))]
    )


def test_the_recipes_are_the_rows_their_short_runs_and_the_default() -> None:
    assert {path.stem for path in RECIPES} == {name_of(*row) for row in ROWS} | SHORT | {"digits"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_builds_its_network(path: Path) -> None:
    config = read_recipe(find_recipe(path.stem))
    assert config.model in model_names()
    assert config.method in method_names()
    model = create_model(config.model, config.method, image_size=32, **config.options).eval()
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert len(comment(path)) > 40
    assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= 120


@pytest.mark.parametrize("row", ROWS, ids=lambda row: name_of(*row))
def test_each_row_has_the_published_training(row: tuple[str, str, str]) -> None:
    table, model, method = row
    path = bundled_recipes() / f"{name_of(*row)}.toml"
    config = read_recipe(path)
    assert (config.model, config.method, config.data) == (model, method, DATA[table])
    epochs, batch, warmup = {"cifar10": (1000, 256, 5), "imagenet": (150, 512, 0)}[table]
    assert (config.epochs, config.batch_size, config.warmup) == (epochs, batch, warmup)
    assert (config.lr, config.momentum, config.weight_decay, config.decay) == (0.1, 0.9, 1e-4, "all")
    says = comment(path)
    assert says.startswith({"cifar10": "Table 1 (CIFAR-10): ", "imagenet": "Table 2 (ImageNet): "}[table])
    assert tuple(re.findall(r"(\d\d\.\d) %", says)) == ROWS[row]
    assert "Chosen by us: " in says
    # Defaults may move with what we measure; a published row must not move with them.
    named = set(tomllib.loads(path.read_text(encoding="utf-8")))
    assert named >= {"epochs", "batch_size", "lr", "momentum", "weight_decay", "decay", "warmup"}
    missing = set(method_options(method)) - set(config.options)
    assert not missing, f"{path.name} leaves {missing} to the defaults: say what the published runs did"


def test_the_options_of_the_published_runs() -> None:
    for table, model, method in ROWS:
        if method == "rbnn":
            options = read_recipe(bundled_recipes() / f"{name_of(table, model, method)}.toml").options
            assert (options["rotation"], options["alpha"], options["estimator"]) == (
                "filter",
                "filter",
                "training-aware",
            )
            assert (options["floored"], options["standardise"], options["cycles"]) == (True, True, 3)
            assert options["beta_start"] == pytest.approx(torch.pi / 2)


@pytest.mark.parametrize("name", sorted(SHORT))
def test_short_runs_name_only_what_they_change(name: str) -> None:
    path = bundled_recipes() / f"{name}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    options = {"gradient": "sgd"} if table["method"] == "xnor-net" else {}
    assert table.pop("options", {}) == options
    assert table.pop("binary_lr", 1) == (1 if table["method"] == "float" else 10)
    assert set(table) == {"model", "method", "data", "epochs", "batch_size"}
    assert name == f"{table['data']}-{table['model']}-{table['method']}-cpu"
    assert (table["epochs"], table["batch_size"]) == (12, 64)
    assert read_recipe(path).options == options
