"""train, eval, models, methods and data, end to end on digits."""

import json
import shutil
from pathlib import Path

import pytest
from answers import SMALL, Rbnn

from rbnn.cli.train import parse
from rbnn.methods import method_names, method_options
from rbnn.models import model_names
from rbnn.text import plural
from rbnn.training.config import TrainConfig, read_recipe
from rbnn.training.log import read_log


def test_train_says_what_came_of_it(rbnn: Rbnn, tmp_path: Path) -> None:
    out = tmp_path / "run"
    answer = rbnn("train", "digits", "--epochs", "1", *SMALL, "--options", "alpha=layer", "cycles=2", "--out", out)
    (entry,) = read_log(out / "log.jsonl")
    assert answer.code == 0
    assert answer.err.startswith(f"epoch   1  loss {entry['loss']:.3f}  train {entry['train_top1']:.2f} %  test ")
    assert answer.err.count("\n") == 1  # bars are for terminals
    *_, method, last = answer.out.splitlines()
    assert method == (
        "rbnn, not as in its paper: rotate_until = 0 (paper: 1), alpha = layer (paper: filter), cycles = 2 (paper: 3)"
    )
    assert f"resnet20-bireal rbnn on digits: test accuracy {entry['top1']:.2f} %" in last
    assert last.endswith(f"run in {out}")
    for name in entry["layers"]:
        assert name in answer.out
    options = {"alpha": "layer", "cycles": 2, "rotate_until": 0.0}
    assert read_recipe(out / "config.toml").options == method_options("rbnn") | options


def test_train_refuses_to_overwrite_and_resumes(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(run_directory, tmp_path / "moved")
    answer = rbnn("train", moved)
    assert answer.code == 2
    assert answer.err.startswith(f"rbnn: {moved} already contains a run: add --resume")
    answer = rbnn("train", moved, "--resume")
    assert (answer.code, answer.err) == (0, "")
    epochs = read_recipe(moved / "config.toml").epochs
    longer = f"rbnn train {moved} --resume --epochs {2 * epochs}"
    assert answer.out == f"{moved} is finished after {plural(epochs, 'epoch')}; train longer with: {longer}\n"
    answer = rbnn("train", moved, "--resume", "--lr", "0.7")
    assert answer.code == 2
    assert "was trained with lr = 0.1, not lr = 0.7" in answer.err


def test_a_run_that_does_not_exist(rbnn: Rbnn, run_directory: Path, tmp_path: Path) -> None:
    answer = rbnn("train", tmp_path / "none", "--resume")
    missing = f"rbnn: the run directory or recipe {tmp_path / 'none'} does not exist"
    assert (answer.code, answer.err) == (2, f"{missing}; {tmp_path} contains no runs\n")
    shutil.copytree(run_directory, tmp_path / "one")
    assert rbnn("train", tmp_path / "none", "--resume").err == f"{missing}; runs in {tmp_path}: {tmp_path / 'one'}\n"


def test_train_on_a_float_twin_has_no_table(rbnn: Rbnn, tmp_path: Path) -> None:
    answer = rbnn("train", "digits", "--epochs", "1", *SMALL, "--method", "float", "--out", tmp_path)
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 1


def test_a_packed_network_is_no_teacher(rbnn: Rbnn, tmp_path: Path) -> None:
    answer = rbnn("train", "digits", "--teacher", "resnet20-bireal-digits", "--out", tmp_path / "run")
    assert answer.code == 2
    assert "is a packed network, which has no training state: name the run directory or checkpoint" in answer.err
    assert not (tmp_path / "run").exists()


def test_flags_override_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('epochs = 7\nlr = 0.2\nmethod = "xnor-net"\nstart_from = "a b.pt"\n')
    assert parse([str(recipe), "--lr", "0.3", "--seed", "5"]) == TrainConfig(
        epochs=7, lr=0.3, method="xnor-net", seed=5, start_from=Path("a b.pt")
    )
    assert parse([]).data == "digits"
    # Options change one by one; those of the recipe apply only to its own method.
    assert parse(["digits"]).options == {"rotate_until": 0.0}
    assert parse(["digits", "--options", "t_max=0.5"]).options == {"rotate_until": 0.0, "t_max": 0.5}
    assert parse(["digits", "--options", "rotate_until=1"]).options == {"rotate_until": 1}
    assert parse(["digits", "--method", "bnn"]).options == {}
    assert parse(["digits", "--method", "bnn", "--options", "estimator=ppf"]).options == {"estimator": "ppf"}
    assert parse(["--batch-size", "16"]).batch_size == parse(["--batch_size", "16"]).batch_size == 16


def test_a_run_is_where_it_is_now(run_directory: Path, tmp_path: Path) -> None:
    """Not in the original place: the run may have been moved, or named from another directory."""
    moved = shutil.copytree(run_directory, tmp_path / "moved")
    assert parse([str(moved), "--resume"]).out == moved
    assert parse([str(moved), "--out", "elsewhere"]).out == Path("elsewhere")


def test_eval(rbnn: Rbnn, run_directory: Path) -> None:
    answer = rbnn("eval", run_directory, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = json.loads(answer.out)
    (entry,) = read_log(run_directory / "log.jsonl")
    assert found == {"top1": round(entry["top1"], 4), "top5": round(entry["top5"], 4)}
    for words in (["--data", "digits"], ["--batch-size", "7"], ["--device", "cpu"]):
        assert json.loads(rbnn("eval", run_directory / "last.pt", "--json", *words).out) == found
    answer = rbnn("eval", run_directory)
    accuracy = f"top-1 {found['top1']:.2f} %, top-5 {found['top5']:.2f} %"
    assert f"360 test images of digits (every fifth, ordered by class): {accuracy}" in answer.out


def test_models(rbnn: Rbnn) -> None:
    rows = json.loads(rbnn("models", "--json").out)
    assert [row["name"] for row in rows] == model_names()
    assert all(set(row) == {"name", "image_size", "summary", "imported_from"} and row["summary"] for row in rows)
    table = rbnn("models")
    assert (table.code, table.err) == (0, "")
    for name in model_names():
        assert name in table.out


def test_names_of_pretrained_networks_are_whole(rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table = rbnn("models", "--pretrained").out
    assert all(f" {each['name']} " in table for each in json.loads(rbnn("models", "--pretrained", "--json").out))


def test_pretrained_sizes_are_in_kilobytes(rbnn: Rbnn) -> None:
    table = rbnn("models", "--pretrained").out
    assert " kB " in table
    for card in json.loads(rbnn("models", "--pretrained", "--json").out):
        assert f" {card['bytes'] / 1000:.1f} " in table


def test_methods(rbnn: Rbnn) -> None:
    rows = json.loads(rbnn("methods", "--json").out)
    assert [row["name"] for row in rows] == method_names()
    for row in rows:
        assert set(row) == {"name", "summary", "options", "in_our_recipes", "imported_from"}
        assert row["summary"]
        assert row["options"] == method_options(row["name"])
    table = rbnn("methods")
    assert (table.code, table.err) == (0, "")
    assert "beta_start" in table.out
    assert "(default)" not in rbnn("methods", "rbnn").out  # a default is the authors', not always the paper's


def test_a_method_says_where_our_recipes_leave_its_paper(rbnn: Rbnn) -> None:
    (row,) = json.loads(rbnn("methods", "rbnn", "--json").out)
    found = {(each["recipe"], each["option"]): each for each in row["in_our_recipes"]}
    short, wide = "cifar10-resnet20-bireal-rbnn-cpu", "cifar10-resnet20-bireal-rbnn-wide"
    assert {key: each["value"] for key, each in found.items()} == {
        (short, "rotate_until"): 0.0,
        ("digits", "rotate_until"): 0.0,
        (wide, "rotate_until"): 0.0,
        (wide, "t_max"): 0.5,
    }
    answer = rbnn("methods", "rbnn")
    assert (answer.code, answer.err) == (0, "")
    said = " ".join(answer.out.split())
    assert "Rotate the weights towards their signs" in said
    assert f"digits: rotate_until = 0.0: {found['digits', 'rotate_until']['reason']}" in said
    for each in (each for name in method_names() for each in json.loads(rbnn("methods", name, "--json").out)):
        assert all(len(there["reason"]) > 10 for there in each["in_our_recipes"])
    assert "did you mean 'rbnn'" in rbnn("methods", "rbn").err


def test_data(rbnn: Rbnn, tmp_path: Path) -> None:
    answer = rbnn("data", "digits", "--dir", tmp_path)
    assert (answer.code, answer.err) == (0, "")
    assert "1,437 training and 360 test images in 10 classes" in answer.out


def test_without_a_recipe_the_defaults_hold() -> None:
    """Not those of a recipe for small images, which would apply to every other data set."""
    assert parse([]) == TrainConfig()
    assert parse(["--data", "cifar10"]) == TrainConfig(data="cifar10")
