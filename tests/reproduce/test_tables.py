"""The rows of the paper's tables, and that they are compared on equal footing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rbnn import data
from rbnn.errors import ConfigError, UnknownName
from rbnn.methods import method_options
from rbnn.models import create_model
from rbnn.nn import binary_layers
from rbnn.reproduce.plan import Budget, Run, make_budget, plan
from rbnn.reproduce.summary import budget_sentence, summarise
from rbnn.reproduce.tables import TABLES, PaperTable, find_table
from rbnn.training import checkpoint
from rbnn.training.batches import Batches
from rbnn.training.config import TrainConfig
from rbnn.training.contract import InputContract

every_table = pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))


def runs_of(table: PaperTable, more: dict[str, Any] | None = None, seeds: tuple[int, ...] = (0,)) -> list[Run]:
    budget = Budget(epochs=3, batch_size=16, accumulate=1, data="digits", limit=64, images=64)
    return plan(table, seeds, budget, more or {}, out=Path("out"))


@every_table
def test_each_row_builds_its_network(table: PaperTable) -> None:
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)
    for run in runs_of(table):
        assert set(run.config.options) == set(method_options(run.row.method))
        if not run.row.model.startswith("resnet34"):  # the same file as ResNet-18
            create_model(run.row.model, run.row.method, image_size=32, **run.config.options)


@every_table
def test_rows_share_budget_data_order_and_initial_weights(table: PaperTable) -> None:
    """The training loop before its first step, for each row; equal networks must start with equal weights."""
    runs = runs_of(table)
    fields = (
        "epochs",
        "batch_size",
        "accumulate",
        "limit",
        "lr",
        "momentum",
        "weight_decay",
        "decay",
        "warmup",
        "seed",
    )
    assert len({tuple(getattr(run.config, name) for name in (*fields, "data")) for run in runs}) == 1
    digits = data.load("digits", None, "train")
    contract = InputContract.of(digits, 0)
    first: dict[str, dict[str, Tensor]] = {}
    batches: list[tuple[Tensor, Tensor]] = []
    for run in runs:
        config = run.config
        torch.manual_seed(config.seed)
        if config.model == "resnet34":
            continue
        model = checkpoint.build(config, contract)
        kept = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Conv2d | torch.nn.Linear)]
        weights = {name: model.get_submodule(name).weight for name in kept}
        expected = first.setdefault(config.model, weights)
        assert weights.keys() == expected.keys()
        assert all(torch.equal(weights[name], expected[name]) for name in kept), run.name
        some = Batches(digits, config.batch_size, train=True, limit=config.limit, seed=config.seed)
        batches.append(next(some.epoch(1)))
    assert all(torch.equal(images, batches[0][0]) and torch.equal(labels, batches[0][1]) for images, labels in batches)
    assert len(first) >= 1


def test_other_seeds_give_other_weights_and_rotations() -> None:
    """The first rotation depends only on the weight, so it differs if the weights differ."""
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(dict(binary_layers(create_model("resnet20-bireal"))))
    names = list(models[0])
    for name in names:
        assert not torch.equal(models[0][name].weight, models[1][name].weight)
        assert not torch.equal(models[0][name].method.R1, models[1][name].method.R1)
    assert not torch.equal(models[0][names[0]].method.R1, models[0][names[1]].method.R1)  # same shape, different layer


def test_the_ablation_is_rbnn_with_parts_switched_off() -> None:
    table = find_table("ablation")
    runs = {run.row.name: run.config for run in runs_of(table)}
    full = runs["B+T+R+A"].options
    assert full == method_options("rbnn")
    assert full["rotate_until"] == 1.0
    assert (full["rotation"], full["alpha"], full["estimator"]) == ("filter", "filter", "training-aware")
    for name, config in runs.items():
        if name == "xnor-net":
            assert config.options == method_options("xnor-net") | {"gradient": "sgd"}
            continue
        if name == "ir-net":
            assert config.options == method_options("ir-net")
            continue
        whole, _, reading = name.partition("-")  # another reading of R
        parts, read = whole.split("+"), {"once": {"rotate_until": 0.0}, "release": {"gradient": "release"}}
        changed = read.get(reading, {})
        assert {key: config.options[key] for key in changed} == changed
        assert config.method == "rbnn"
        assert (config.options["rotation"] != "none") == ("R" in parts)
        assert (config.options["alpha"] != "none") == ("A" in parts)
        assert config.options["estimator"] == ("training-aware" if "T" in parts else "ste")
        others = set(full) - {"rotation", "alpha", "estimator"} - set(changed)
        assert {key: config.options[key] for key in others} == {key: full[key] for key in others}


def test_a_without_r_is_an_error() -> None:
    with pytest.raises(ConfigError, match="alpha adjusts the rotation"):
        create_model("resnet20-bireal", "rbnn", rotation="none", alpha="filter")


def test_a_system_in_two_tables_is_one_run() -> None:
    directory = {
        (name, run.row.name): run.out for name in ("gradients", "ablation", "cifar10") for run in runs_of(TABLES[name])
    }
    assert (
        directory["gradients", "training-aware"]
        == directory["ablation", "B+T+R+A"]
        == directory["cifar10", "rbnn-resnet20-bireal"]
    )
    for table in TABLES.values():
        runs = runs_of(table, seeds=(0, 1))
        assert len({run.out for run in runs}) == len(runs)


def test_options_for_all_rbnn_rows() -> None:
    table = find_table("ablation")
    plain = {run.row.name: run for run in runs_of(table)}
    more = {run.row.name: run for run in runs_of(table, {"rotation": "layer", "rotate_until": 0.5, "beta_start": 0.5})}
    for name, run in more.items():
        if "R" in name.partition("-")[0].split("+"):
            once = name.endswith("-once")  # the options that define the row stay
            assert (run.config.options["rotation"], run.config.options["rotate_until"]) == ("layer", 0 if once else 0.5)
            assert plain[name].config.options["rotate_until"] == (0.0 if once else 1.0)
            assert run.out != plain[name].out
        else:  # without rotation they have no effect: the same run
            assert run.config == plain[name].config
    assert more["B+T+R+A"].config.options["beta_start"] == 0.5
    assert more["B+T+R"].config.options["beta_start"] == method_options("rbnn")["beta_start"]


@pytest.mark.parametrize("options", [{"rotation": "none"}, {"alpha": "none"}, {"estimator": "ste"}])
def test_options_cannot_change_what_a_row_is(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="would turn a row into another row"):
        runs_of(find_table("ablation"), options)
    with pytest.raises(UnknownName):
        runs_of(find_table("ablation"), {"rotatoin": "layer"})


@pytest.mark.parametrize(
    ("limit", "batch_size", "expected"),
    [(0, 0, 89), (64, 0, 16), (320, 0, 20), (0, 7, 7)],  # digits has 1,437 training images; 1437 // 16 = 89
)
def test_a_small_set_gets_sixteen_steps_an_epoch(limit: int, batch_size: int, expected: int) -> None:
    budget = make_budget(
        find_table("ablation"), Path("."), name="digits", epochs=0, batch_size=batch_size, accumulate=1, limit=limit
    )
    assert budget.batch_size == expected
    assert budget.epochs == 1000
    assert budget.images == (limit or 1437)


def test_names_are_unknown_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'ablation'"):
        find_table("ablations")
    with pytest.raises(UnknownName, match=r"did you mean 'B\+T\+R\+A'"):
        find_table("ablation").chosen(("T+R+A",))
    assert [row.name for row in find_table("ablation").chosen(("B+T", "B"))] == ["B", "B+T"]


def test_a_recipe_does_not_change_the_networks_of_a_table() -> None:
    table = find_table("ablation")
    budget = Budget(2, 64, 1, "digits", 0, 1437)
    recipe = TrainConfig(width=2.0, activation="prelu", shortcut="pool-conv", image_size=16, lr=0.3, average=0.9)
    for run in plan(table, (0,), budget, {}, replace(recipe, start_from=Path("a")), out="o"):
        assert run.config.parts == TrainConfig().parts
        assert (run.config.start_from, run.config.image_size) == (None, 0)
        assert (run.config.lr, run.config.average) == (0.3, 0.9)
    with pytest.raises(ConfigError, match="compares accuracies on the test set: remove validation from the recipe"):
        plan(table, (0,), budget, {}, TrainConfig(validation=300), out="o")


def test_a_summary_says_what_is_unusual_about_the_training(tmp_path: Path) -> None:
    table, budget = find_table("ablation"), Budget(2, 64, 1, "digits", 0, 1437)
    taught = TrainConfig(average=0.9, teacher=Path("runs/float"))
    for recipe, also in ((taught, ", average 0.9, teacher runs/float"), (None, "")):
        runs = plan(table, (0,), budget, {}, recipe, out=tmp_path)
        said = budget_sentence(summarise(table, budget, runs, {}, list(table.rows)))
        assert f" epochs of warm-up{also}; seeds" in said
