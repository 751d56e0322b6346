"""`rbnn recipes`."""

import json
import re
from pathlib import Path

import pytest
from answers import Rbnn

from rbnn.cli.recipes import paragraphs
from rbnn.reproduce.tables import TABLES
from rbnn.training.config import bundled_recipes, read_recipe

ROOT = Path(__file__).parents[2]


def test_all_are_listed_with_what_is_known_of_them(rbnn: Rbnn) -> None:
    rows = json.loads(rbnn("recipes", "--json").out)
    assert [row["name"] for row in rows] == sorted(path.stem for path in bundled_recipes().glob("*.toml"))
    for row in rows:
        config = read_recipe(bundled_recipes() / f"{row['name']}.toml")
        assert (row["model"], row["method"], row["data"]) == (config.model, config.method, config.data)
        assert row["epochs"] == config.epochs
        assert len(row["purpose"]) > 40
        assert re.match(r"\d\d\.\d %", row["result"]), row["name"]


def test_published_numbers_are_those_of_the_tables(rbnn: Rbnn) -> None:
    found = [row for row in json.loads(rbnn("recipes", "--json").out) if not row["name"].endswith(("-cpu", "-wide"))]
    rows = {(row["data"], row["model"], row["method"]): row["result"] for row in found}
    for table in (TABLES["cifar10"], TABLES["imagenet"]):
        for row in table.rows:
            top5 = "" if row.top5 is None else f"top-1 and {row.top5:.1f} % top-5 "
            top1 = "top-1 " * (table.name == "imagenet" and row.top5 is None)
            assert rows[table.data, row.model, row.method] == f"{row.top1:.1f} % {top1}{top5}in the paper"


def test_measured_numbers_are_those_of_the_documents() -> None:
    pages = [*(ROOT / "docs" / "results").glob("*.md"), ROOT / "docs" / "get-started.md"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    found = 0
    for path in bundled_recipes().glob("*.toml"):
        for measured in (each for each in paragraphs(path) if each.startswith("Measured: ")):
            numbers = re.findall(r"\d\d\.\d+", measured.partition("(")[2]) or re.findall(r"\d\d\.\d", measured)
            assert all(number in text for number in numbers), path.stem
            mean = float(re.findall(r"\d\d\.\d", measured)[0])
            assert abs(mean - sum(map(float, numbers)) / len(numbers)) < 0.06
            found += 1
    assert found == 6


def test_one_is_shown_as_it_is_written(rbnn: Rbnn) -> None:
    text = (bundled_recipes() / "digits.toml").read_text(encoding="utf-8")
    assert rbnn("recipes", "digits").out == f"{text}\n# rbnn train digits\n"
    assert "known result" in rbnn("recipes").out
    answer = rbnn("recipes", "digit")
    assert answer.code == 2
    assert answer.err.startswith("rbnn: unknown recipe 'digit': did you mean 'digits'?")


def test_at_80_columns_no_word_is_broken(rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network and the method are in the name, so their column is left out."""
    rows = json.loads(rbnn("recipes", "--json").out)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = rbnn("recipes").out
    assert max(map(len, narrow.splitlines())) <= 80
    words = {word for line in narrow.splitlines() if line.startswith("│") for word in re.split(r"[\s│]+", line)}
    assert words <= {word for row in rows for key in ("name", "result") for word in row[key].split()} | {
        str(row["epochs"]) for row in rows
    } | {""}
    monkeypatch.setenv("COLUMNS", "120")
    assert "resnet20-bireal, rbnn, cifar10" in rbnn("recipes").out
