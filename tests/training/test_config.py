"""The configuration of a run: what it rejects, and that it survives being written to a file and read back."""

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbnn.errors import ConfigError, RbnnError, UnknownName
from rbnn.methods import method_names, method_options
from rbnn.models import model_names
from rbnn.training.config import (
    CONFIG_NAME,
    TrainConfig,
    _options_from_words,
    as_table,
    as_toml,
    bundled_recipes,
    find_recipe,
    from_table,
    read_recipe,
    with_all_options,
)

NUMBERS = st.floats(0, 1e6, allow_nan=False)
COUNTS = st.integers(0, 2**40)
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).map(Path)


@st.composite
def methods(draw: st.DrawFn) -> dict[str, Any]:
    """A method and values of the right type for some of its options; check_method checks no more than that."""
    name = draw(st.sampled_from(method_names()))
    kinds = {bool: st.booleans(), int: COUNTS, float: NUMBERS, str: st.text(st.characters(exclude_categories=["Cs"]))}
    options = {key: draw(kinds[type(value)]) for key, value in method_options(name).items() if draw(st.booleans())}
    return {"method": name, "options": options}


@st.composite
def configs(draw: st.DrawFn) -> TrainConfig:
    accumulate = draw(st.integers(1, 8))
    return TrainConfig(
        **draw(methods()),
        model=draw(st.sampled_from(model_names())),
        data=draw(st.sampled_from(["digits", "cifar10", "image-folder"])),
        data_dir=draw(PATHS),
        out=draw(st.none() | PATHS),
        epochs=draw(st.integers(1, 10**6)),
        batch_size=accumulate * draw(st.integers(1, 64)),
        accumulate=accumulate,
        lr=draw(NUMBERS),
        binary_lr=draw(NUMBERS),
        momentum=draw(st.floats(0, 1, exclude_max=True)),
        weight_decay=draw(NUMBERS),
        decay=draw(st.sampled_from(["weights", "all"])),
        warmup=draw(COUNTS),
        seed=draw(st.integers(0, 2**63 - 1)),
        limit=draw(COUNTS),
        threads=draw(st.integers(0, 64)),
        device=draw(st.text(st.characters(exclude_categories=["Cs"]))),
        batch_norm=draw(st.sampled_from(["local", "all-reduced"])),
        start_from=draw(st.none() | PATHS),
        teacher=draw(st.none() | PATHS),
        resume=draw(st.booleans()),
    )


@given(config=configs())
def test_toml_round_trip(config: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> None:
    config = with_all_options(config)  # as a run writes it
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"
    path.write_bytes(as_toml(config).encode())
    assert read_recipe(path) == config


@given(config=configs())
def test_table_round_trip(config: TrainConfig) -> None:
    config = with_all_options(config)
    assert from_table(as_table(config)) == config


def test_every_field_reaches_the_file() -> None:
    """If as_toml omitted a field, a resumed run would silently use its default."""
    config = TrainConfig(out=Path("a"), start_from=Path("b"), teacher=Path("c"))
    assert set(tomllib.loads(as_toml(config))) == {f.name for f in fields(TrainConfig)}


def test_keys_that_are_left_out_have_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "short.toml"
    path.write_text('method = "float"\nlr = 1\n')
    assert read_recipe(path) == TrainConfig(method="float", lr=1.0)


@pytest.mark.parametrize(
    ("key", "nearest"), [("epoch", "epochs"), ("batchsize", "batch_size"), ("learning_decay", "decay"), ("Lr", "lr")]
)
def test_unknown_key_names_the_nearest(key: str, nearest: str) -> None:
    with pytest.raises(UnknownName, match=f"'{key}' in recipe: did you mean '\\w*{nearest}'"):
        from_table({key: 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", "3"),
        ("epochs", 3.0),
        ("epochs", True),
        ("lr", "0.1"),
        ("lr", False),
        ("resume", 1),
        ("model", 20),
        ("out", 3),
        ("data_dir", ["a"]),
        ("options", "rotation=layer"),
        ("options", ["rotation=layer"]),
    ],
)
def test_wrong_type_names_the_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{key} in recipe must be of type .*{str(value)[:3].replace('[', '.')}"):
        from_table({key: value})


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 10**400}, "batch_size must be at least 1 and below"),
        ({"accumulate": 0}, "accumulate must be at least 1"),
        ({"accumulate": -2}, "accumulate must be at least 1"),
        ({"lr": -0.1}, "lr must be 0 or more"),
        ({"lr": float("nan")}, "lr must be a finite number of 0 or more, got nan"),
        ({"lr": float("inf")}, "lr must be a finite number of 0 or more, got inf"),
        ({"weight_decay": float("inf")}, "weight_decay must be a finite number of 0 or more"),
        ({"momentum": 1.0}, "momentum must be below 1"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"seed": 2**63}, "seed must be 0 or more and below"),
        ({"limit": -1}, "limit must be 0 or more"),
        ({"threads": 100_000}, "threads must be at most"),
        ({"batch_size": 100, "accumulate": 3}, "cannot be split into 3"),
        ({"method": "float", "options": {"rotation": "layer"}}, "'float' has no options"),
        ({"method": "rbnn", "options": {"rotatoin": "layer"}}, "did you mean 'rotation'"),
        ({"method": "rbnn", "options": {"cycles": "three"}}, "'cycles' .* must be of type int"),
        ({"method": "rbnn", "options": {"cycles": True}}, "'cycles' .* must be of type int"),
        ({"method": "rbn"}, "did you mean 'rbnn'"),
        ({"model": "resnet-20"}, "did you mean 'resnet20"),
        ({"data": "cifar"}, "did you mean 'cifar10"),
        ({"decay": "weight"}, "did you mean 'weights'"),
        ({"batch_norm": "all_reduced"}, "did you mean 'all-reduced'"),
        ({"out": Path("a\0b")}, "out must be a path in valid Unicode"),
        ({"data_dir": Path("caf\udce9")}, "data_dir must be a path in valid Unicode"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(RbnnError, match=says):
        TrainConfig(**values)
    with pytest.raises(RbnnError, match=says):
        replace(TrainConfig(), **values)


def test_options_from_the_command_line() -> None:
    words = ["rotation=layer", "cycles=5", "beta_start=1.5", "floored=false", 'alpha="none"', "text=a=b", "empty="]
    assert _options_from_words(words) == {
        "rotation": "layer",
        "cycles": 5,
        "beta_start": 1.5,
        "floored": False,
        "alpha": "none",
        "text": "a=b",
        "empty": "",
    }
    assert _options_from_words([]) == {}
    with pytest.raises(ValueError, match="expected KEY=VALUE, got 'rotation'"):
        _options_from_words(["rotation"])


def test_an_option_is_one_value() -> None:
    """Text that merely begins like a value is kept whole, not silently truncated."""
    assert _options_from_words(["key=1\nother=2", "path=1/2"]) == {"key": "1\nother=2", "path": "1/2"}


def test_find_recipe_by_name_path_and_run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_recipe("digits") == bundled_recipes() / "digits.toml"
    mine = tmp_path / "mein Rezept ü.toml"
    mine.write_text("epochs = 3\n")
    assert read_recipe(find_recipe(str(mine))).epochs == 3
    run = tmp_path / "run"
    run.mkdir()
    (run / CONFIG_NAME).write_text("epochs = 4\n")
    assert read_recipe(find_recipe(str(run))).epochs == 4
    (tmp_path / "digits").mkdir()  # a folder that is not a run must not hide the recipe of that name
    assert find_recipe("digits") == bundled_recipes() / "digits.toml"
    with pytest.raises(UnknownName, match="did you mean 'digits'"):
        find_recipe("digit")


def test_every_bundled_recipe_can_be_read() -> None:
    recipes = sorted(bundled_recipes().glob("*.toml"))
    assert recipes
    for path in recipes:
        assert isinstance(read_recipe(path), TrainConfig)


@pytest.mark.parametrize(
    "content",
    [
        b"epochs = ",
        b"\x80\x02}q\x00.",
        b"PK\x03\x04\x00\x00",
        b"\xff\xfe",
        b"a" * 10_000,
        b"options = " + b"[" * 5000,
        b"lr = 1" + b"0" * 5000,
    ],
    ids=["cut short", "pickle", "zip", "not UTF-8", "letters", "deeply nested", "thousands of digits"],
)
def test_what_is_not_toml(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        read_recipe(path)


@pytest.mark.parametrize("key", ["lr", "epochs", "temperature"])
def test_numbers_that_no_float_holds(key: str, tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_text(f"{key} = 1{400 * '0'}")
    with pytest.raises(ConfigError, match=rf"{key} in .* must be below 2\^63, got 1000") as refused:
        read_recipe(path)
    assert len(str(refused.value)) < 600


def test_missing_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read recipe .*No such file"):
        read_recipe(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"cannot read recipe .*Is a directory"):
        read_recipe(tmp_path)
