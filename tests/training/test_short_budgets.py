"""The rows of the short-budget table: each can be trained, and the experiments do what their names say."""

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rbnn.training.config import TrainConfig, from_table

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import short_budgets  # noqa: E402

TINY = {"data": "digits", "limit": 128, "epochs": 2, "batch_size": 64}


def test_the_table_has_each_row_once() -> None:
    page = (ROOT / "docs/results/short-budgets.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `([^`]+)` \|", page, re.M)
    assert sorted(set(names)) == sorted(short_budgets.ROWS)


@pytest.mark.parametrize("name", short_budgets.ROWS)
def test_each_row_is_a_run(name: str) -> None:
    fields = short_budgets.BUDGET | short_budgets.ROWS[name]
    assert from_table(fields).limit == 20_000
    assert {fields[key] for key in ("teacher", "start_from") if key in fields} <= set(short_budgets.ROWS)


def test_weights_are_averaged_over_200_steps() -> None:
    averages: list[torch.optim.swa_utils.AveragedModel] = []
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = short_budgets.averaging(averages)(model, TrainConfig())
    expected = None
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 3)).square().sum().backward()
        optimizer.step()
        now = torch.cat([p.detach().flatten() for p in model.parameters()] + [model[1].running_mean])
        expected = now if expected is None else 0.995 * expected + 0.005 * now
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with torch.no_grad():
        short_budgets.copy_values(averages[0].module, other)
    torch.testing.assert_close(
        torch.cat([p.detach().flatten() for p in other.parameters()] + [other[1].running_mean]), expected
    )


def test_rows_with_several_accuracies(tmp_path: Path) -> None:
    averaged = short_budgets.run("averaged-weights", tmp_path, **TINY)
    assert list(averaged) == ["as trained", "averaged"]
    anew = short_budgets.run("more-decay", tmp_path, **TINY)
    assert len(anew) == 3
    assert len(set(anew.values())) > 1, "other means and variances give other answers"


def test_a_taught_row_trains_its_teacher(tmp_path: Path) -> None:
    short_budgets.run("taught", tmp_path, **TINY)
    assert (tmp_path / "float" / "last.pt").exists()
