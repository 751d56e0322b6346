"""What the runs of a report are called."""

import json
from pathlib import Path

import pytest

from rbnn.errors import CheckpointError
from rbnn.report.run_names import named_runs


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a"], ["a"]),
        (["runs/a", "runs/b"], ["a", "b"]),
        (["a/run", "b/run"], ["a", "b"]),
        (["a/seed-0", "a/seed-1"], ["seed-0", "seed-1"]),
        (["a/x/seed-0", "b/x/seed-0", "b/y/seed-0"], ["a/x", "b/x", "b/y"]),
        ([], []),
    ],
)
def test_names_are_short_and_tell_runs_apart(paths: list[str], names: list[str]) -> None:
    found = named_runs([Path(path) for path in paths])
    assert found == [(Path(path), name) for path, name in zip(paths, names, strict=True)]


def test_a_link_names_a_run(tmp_path: Path) -> None:
    (tmp_path / "a-long-name").mkdir()
    (tmp_path / "B").symlink_to(tmp_path / "a-long-name")
    assert named_runs([tmp_path / "B", tmp_path / "C"])[0] == (tmp_path / "B", "B")
    with pytest.raises(CheckpointError, match="is given twice"):
        named_runs([tmp_path / "B", tmp_path / "a-long-name"])


def table(path: Path, name: str, **rows: list[str]) -> Path:
    listed = [{"row": row, "runs": runs, "seeds": list(range(len(runs)))} for row, runs in rows.items()]
    path.write_text(json.dumps({"table": name, "rows": listed}))
    return path


def test_a_table_stands_for_its_runs(tmp_path: Path) -> None:
    """The runs are next to the table, although it was written elsewhere; a run in two tables appears once."""
    ablation = table(tmp_path / "ablation.json", "ablation", B=["/gone/b/seed-0"], BT=[], BR=["/gone/br/seed-0"])
    layer = table(tmp_path / "ablation-rotation=layer.json", "ablation", B=["old/b/seed-0"], BR=["old/layer/seed-0"])
    gradients = table(tmp_path / "gradients.json", "gradients", ste=["old/br/seed-0"], B=["old/other/seed-0"])
    assert named_runs([ablation, layer, gradients, tmp_path / "own"]) == [
        (tmp_path / "b/seed-0", "B"),
        (tmp_path / "br/seed-0", "BR"),
        (tmp_path / "layer/seed-0", "BR rotation=layer"),
        (tmp_path / "other/seed-0", "B (2)"),
        (tmp_path / "own", "own"),
    ]


def test_seeds_are_named_where_there_are_several(tmp_path: Path) -> None:
    path = table(tmp_path / "t.json", "t", B=["o/b/seed-0", "o/b/seed-1"], C=["o/c/seed-0"])
    assert [name for _, name in named_runs([path])] == ["B, seed 0", "B, seed 1", "C, seed 0"]
