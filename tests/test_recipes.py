"""Recipes: each matches its name, and every row of the paper's tables has one."""

import re
import tomllib
from pathlib import Path

import pytest
import torch

from rbnn.methods import method_names, method_options
from rbnn.models import create_model, model_names
from rbnn.packed import pretrained
from rbnn.reproduce.plan import Budget, plan
from rbnn.reproduce.tables import TABLES, PaperTable, Row
from rbnn.training.config import as_table, bundled_recipes, difference, find_recipe, read_recipe

ROWS = [(TABLES[name], row) for name in ("cifar10", "imagenet") for row in TABLES[name].rows]
SHORT = {
    "cifar10-resnet20-bireal-rbnn-cpu",
    "cifar10-resnet20-bireal-float-cpu",
    "cifar10-resnet20-bireal-xnor-net-cpu",
    "cifar10-resnet20-bireal-ir-net-cpu",
}
ACCURATE = "cifar10-resnet20-bireal-rbnn-wide"
RECIPES = sorted(bundled_recipes().glob("*.toml"))


def name_of(table: PaperTable, row: Row) -> str:
    """After the prefix ``cifar10``, ``resnet18-cifar`` is shortened to ``resnet18``."""
    return f"{table.name}-{row.model.removesuffix('-cifar')}-{row.method}"


def recipe_of(table: PaperTable, row: Row) -> Path:
    return bundled_recipes() / f"{name_of(table, row)}.toml"


every_row = pytest.mark.parametrize(("table", "row"), ROWS, ids=[name_of(*row) for row in ROWS])


def comment(path: Path) -> str:
    """The comment at the top, as one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(
        line.removeprefix("#").strip() for line in lines[: lines.index(next(x for x in lines if x[:1] != "#"))]
    )


def test_the_recipes_are_the_rows_their_short_runs_and_the_default() -> None:
    rows = {name_of(*row) for row in ROWS}
    assert len(rows) == len(ROWS) == 18 + 14  # the number of rows in the paper's two tables
    assert {path.stem for path in RECIPES} == rows | SHORT | {"digits", ACCURATE}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_each_builds_its_network(path: Path) -> None:
    config = read_recipe(find_recipe(path.stem))
    assert config.model in model_names()
    assert config.method in method_names()
    model = create_model(config.model, config.method, image_size=32, **config.options).eval()
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 10)
    assert len(comment(path)) > 40
    assert max(map(len, path.read_text(encoding="utf-8").splitlines())) <= 120


@every_row
def test_each_row_has_the_published_training(table: PaperTable, row: Row) -> None:
    path = recipe_of(table, row)
    config = read_recipe(path)
    epochs, batch, warmup = {"cifar10": (1000, 256, 5), "imagenet": (150, 512, 0)}[table.name]
    assert (config.epochs, config.batch_size, config.warmup) == (epochs, batch, warmup)
    assert (config.lr, config.momentum, config.weight_decay, config.decay) == (0.1, 0.9, 1e-4, "all")
    # Defaults may change with new measurements; published rows must not change with them.
    named = set(tomllib.loads(path.read_text(encoding="utf-8")))
    assert named >= {"epochs", "batch_size", "lr", "momentum", "weight_decay", "decay", "warmup"}
    missing = set(method_options(row.method)) - set(config.options)
    assert not missing, f"{path.name} leaves {missing} to the defaults: say what the published runs did"


@every_row
def test_each_row_says_what_it_is_and_what_is_ours(table: PaperTable, row: Row) -> None:
    says = comment(recipe_of(table, row))
    assert says.startswith({"cifar10": "Table 1 (CIFAR-10): ", "imagenet": "Table 2 (ImageNet): "}[table.name])
    printed = [f"{accuracy:.1f}" for accuracy in (row.top1, row.top5) if accuracy is not None]
    assert re.findall(r"(\d\d\.\d) %", says) == printed
    assert "Chosen by us: " in says
    if row.method not in ("rbnn", "float"):  # another system, trained like RBNN
        assert re.search("as in RBNN's published runs, not as in .*'s own paper, for a fair comparison", says)


@pytest.mark.parametrize("table", [TABLES["cifar10"], TABLES["imagenet"]], ids=lambda table: str(table.name))
def test_a_recipe_and_the_row_that_reproduce_trains_are_the_same_run(table: PaperTable) -> None:
    """With the paper's budget; only the device and the directories are left out."""
    budget = Budget(table.epochs, table.batch_size, accumulate=1, data=table.data, limit=0, images=0)
    runs = plan(table, (0,), budget, {}, out=Path("out"))
    assert [run.row for run in runs] == list(table.rows)
    for run in runs:
        recipe = read_recipe(recipe_of(table, run.row))
        assert difference(as_table(recipe), as_table(run.config)) is None, run.row.name


def test_the_options_of_the_published_runs() -> None:
    of_rbnn = [(table, row) for table, row in ROWS if row.method == "rbnn"]
    assert len(of_rbnn) == 6
    for table, row in of_rbnn:
        options = read_recipe(recipe_of(table, row)).options
        assert (options["rotation"], options["alpha"], options["estimator"]) == ("filter", "filter", "training-aware")
        assert (options["floored"], options["standardise"], options["cycles"]) == (True, True, 3)
        assert options["beta_start"] == pytest.approx(torch.pi / 2)


@pytest.mark.parametrize("name", sorted(SHORT))
def test_short_runs_name_only_what_they_change(name: str) -> None:
    path = bundled_recipes() / f"{name}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    options = {"xnor-net": {"gradient": "sgd"}, "rbnn": {"rotate_until": 0.0}}.get(table["method"], {})
    assert table.pop("options", {}) == options
    assert table.pop("binary_lr", 1) == (1 if table["method"] == "float" else 10)
    assert set(table) == {"model", "method", "data", "epochs", "batch_size"}
    assert name == f"{table['data']}-{table['model']}-{table['method']}-cpu"
    assert (table["epochs"], table["batch_size"]) == (12, 64)
    assert read_recipe(path).options == options
    for key in (*options, *(["binary_lr"] if "binary_lr" in path.read_text() else [])):
        if table["method"] == "rbnn" or key in options:  # a difference from the paper gives its reason on the same line
            assert re.search(rf"^{key} = \S+  # \w+", path.read_text(encoding="utf-8"), re.MULTILINE), key


def test_the_recipe_of_the_accurate_network() -> None:
    """It is the run of the pretrained network, and each difference from the paper has its reason on the same line."""
    path = bundled_recipes() / f"{ACCURATE}.toml"
    card = pretrained.card("resnet20-bireal-wide-cifar10")
    config = read_recipe(path)
    assert (config.model, config.method, config.data) == (card.model, card.method, card.data)
    assert (config.epochs, config.options) == (card.epochs, card.options)
    assert {part: getattr(config, part) for part in card.parts} == card.parts
    for key in ("binary_lr", *card.parts, *config.options):
        assert re.search(rf"^{key} = \S+  # \w+", path.read_text(encoding="utf-8"), re.MULTILINE), key
    assert f"({card.packed_top1:.2f} after the last epoch" in comment(path)
