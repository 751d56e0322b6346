"""Tables that users define."""

from pathlib import Path

import pytest

from rbnn.errors import ConfigError, RbnnError
from rbnn.reproduce.plan import Budget, plan
from rbnn.reproduce.table_file import read_table

ROOT = Path(__file__).parents[2]
GOOD = '[[rows]]\nname = "a"\nmodel = "resnet20"\nmethod = "bnn"\n'


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_is_a_table() -> None:
    table = read_table(ROOT / "examples" / "gradients_on_digits.toml")
    assert (table.name, table.title) == ("gradients_on_digits", "Gradients of sign, on digits")
    assert (table.data, table.epochs, table.batch_size, table.warmup) == ("digits", 8, 64, 1)
    assert [row.name for row in table.rows] == ["rbnn", "rbnn, straight-through", "xnor-net", "ir-net"]
    assert table.rows[1].options == {"estimator": "ste"}


def test_the_table_of_the_page_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").partition("## A table of your own")[2]
    text = page.partition("```toml\n")[2].partition("```")[0]
    table = read_table(written(tmp_path / "mine.toml", text.replace('"balanced"', '"bnn"')))  # which is known here
    assert (table.data, table.epochs, table.batch_size, table.warmup) == ("digits", 8, 64, 1)
    assert [(row.name, row.top1) for row in table.rows] == [("bnn", None), ("rbnn", 90.1)]


def test_published_numbers_and_what_is_left_out(tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "mine.toml", f"{GOOD}top1 = 80\ntop5 = 97.5\n"))
    (row,) = table.rows
    assert (row.top1, row.top5, row.options) == (80.0, 97.5, {})
    assert (table.name, table.title, table.data, table.epochs, table.batch_size, table.warmup) == (
        "mine", "mine", "cifar10", 120, 256, 5,
    )  # fmt: skip


def test_a_method_is_as_in_its_paper_unless_the_row_says_otherwise(tmp_path: Path) -> None:
    """The paper's tables use XNOR-Net with another gradient; a user's row has exactly the options it names."""
    text = GOOD.replace("bnn", "xnor-net") + GOOD.replace('"a"', '"b"').replace("bnn", "xnor-net")
    table = read_table(written(tmp_path / "mine.toml", text + 'options = { gradient = "sgd" }\n'))
    runs = plan(table, (0,), Budget(1, 8, 1, "digits", 0, 64), {}, out=tmp_path, data_dir=tmp_path)
    assert [run.config.options["gradient"] for run in runs] == ["release", "sgd"]
    assert len({run.out for run in runs}) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "table {path} has no rows: each row begins with [[rows]] and has name, model, method"),
        ("rows = 3", "rows in table {path} must be of type list, got 3"),
        ("rows = [3]", "row 1 of table {path} must be a table that begins with [[rows]], got 3"),
        ("title = ", "table {path} is not valid TOML: Invalid value (at end of document)"),
        ('titel = "x"\n' + GOOD, "unknown key 'titel' in table {path}: did you mean 'title'?"),
        ("epochs = 0\n" + GOOD, "epochs in table {path} must be at least 1, got 0"),
        ("epochs = true\n" + GOOD, "epochs in table {path} must be of type int, got True"),
        ("warmup = -1\n" + GOOD, "warmup in table {path} must be 0 or more, got -1"),
        ('data = "cifar"\n' + GOOD, "unknown data set 'cifar' in table {path}: did you mean 'cifar10'?"),
        (GOOD + GOOD, "table {path} has two rows named 'a': give each its own name"),
        (
            GOOD + GOOD.replace('"a"', '"b"') + 'options = { estimator = "ste" }',
            "rows 'a' and 'b' of table {path} have the same network, method and options: remove one",
        ),
        (GOOD + 'tpo1 = 3\n', "unknown key 'tpo1' in row 1 of table {path}: did you mean 'top1'?"),
        (GOOD + "top1 = 101\n", "top1 in row 1 of table {path} must be a percentage, 0 to 100, got 101.0"),
        (GOOD + "top5 = nan\n", "top5 in row 1 of table {path} must be a percentage, 0 to 100, got nan"),
        (GOOD + 'top1 = "80 %"\n', "top1 in row 1 of table {path} must be of type float, got '80 %'"),
        (GOOD.replace("resnet20", "resnet21"), "unknown model 'resnet21' in row 1 of table {path}: did you"),
        (GOOD.replace("bnn", "bnm"), "unknown method 'bnm': did you mean 'bnn'?"),
        (GOOD + "options = { estimater = 'ste' }\n", "unknown option 'estimater' of method 'bnn'"),
        (GOOD.replace('method = "bnn"', ""), "row 1 of table {path} has no method: it needs name, model, method"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = written(tmp_path / "mine.toml", text)
    with pytest.raises(RbnnError) as caught:
        read_table(path)
    assert str(caught.value).startswith(says.format(path=path))
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read table"):
        read_table(tmp_path / "nothing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_table(tmp_path / "bytes.toml")
    written(tmp_path / "long.toml", "#" * (1 << 21))
    with pytest.raises(ConfigError, match="is too large for a table: expected at most"):
        read_table(tmp_path / "long.toml")
    written(tmp_path / "ablation.toml", GOOD)
    with pytest.raises(ConfigError, match="has the name of a built-in table, 'ablation': rename it"):
        read_table(tmp_path / "ablation.toml")
