"""Methods and networks from outside the package."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rbnn import plugins
from rbnn.cli import main
from rbnn.errors import ConfigError, MissingImport, RbnnError, UnknownName
from rbnn.methods import METHODS, check_method, method_names
from rbnn.models import MODELS, create_model, model_names
from rbnn.plugins import import_file, source_of
from rbnn.training.config import TrainConfig, as_toml, from_table, read_recipe, with_all_options

METHOD = "from rbnn.methods import BNN, register_method\n@register_method('{0}')\nclass Own(BNN): pass\n"
NETWORK = """
from torch import nn
from rbnn.models import register_model

@register_model(image_size=8)
def own_net(bricks):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * bricks.in_channels, bricks.num_classes))
"""


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo the imports of a test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    kept = [(table, dict(table)) for table in (METHODS, MODELS, plugins._sources, plugins._files)]
    modules = set(sys.modules)
    plugins.import_installed.cache_clear()
    yield
    for table, before in kept:
        table.clear()
        table.update(before)  # type: ignore[arg-type]
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    plugins.import_installed.cache_clear()


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_run_once_and_its_names_are_known(tmp_path: Path) -> None:
    text = METHOD.format("own") + NETWORK + "import sys\nsys.path.append('run')\n"
    path = written(tmp_path / "mine.py", text)
    import_file(path)
    import_file(tmp_path / "." / "mine.py")
    assert sys.path.count("run") == 1
    check_method("own")
    assert create_model("own-net", "own")
    assert source_of("method", "own") == source_of("model", "own-net") == str(path)
    assert source_of("method", "rbnn") is source_of("model", "vgg-small") is None
    assert plugins.flags() == ["--import", str(path)]


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path / "beside_it.py", METHOD.format("beside"))
    path = written(tmp_path / "mine.py", "import beside_it\n")
    import_file(path)
    assert source_of("method", "beside") == str(path)  # what the user has to pass
    import_file(tmp_path / "beside_it.py")  # already imported: the same module


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("nothing.py", None, "the file does not exist"),
        ("mine.txt", "", "expected a Python file named NAME.py"),
        ("json.py", "", "a module named json already exists; rename the file"),
        ("mine.py", "1 +\n", "SyntaxError: invalid syntax (mine.py, line 1)"),
        ("mine.py", "import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("mine.py", "raise SystemExit(3)\n", "SystemExit: 3"),
        (
            "mine.py",
            METHOD.format("bnn"),
            "ConfigError: method 'bnn' is already defined by rbnn itself: choose another name in {path}",
        ),
        (
            "mine.py",
            NETWORK.replace("own_net", "vgg_small"),
            "ConfigError: model 'vgg-small' is already defined by rbnn itself: choose another name in {path}",
        ),
    ],
)
def test_what_cannot_be_imported_is_said_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, says: str
) -> None:
    path = tmp_path / name
    if text is not None:
        written(path, text)
    before = dict(METHODS), dict(MODELS)
    assert main(["models", "--import", str(path)]) == 2
    assert capsys.readouterr().err == f"rbnn: cannot import {path}: {says.format(path=path)}\n"
    assert before == (METHODS, MODELS)
    assert "mine" not in sys.modules


@pytest.mark.parametrize("words", [["models", "--import"], ["models", "--import="]])
def test_the_flag_takes_a_file(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == "rbnn: --import takes a Python file: --import FILE.py\n"


def test_the_flag_may_stand_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "mine.py", METHOD.format("own"))
    for words in ([f"--import={path}", "methods", "--json"], ["methods", "--import", str(path), "--json"]):
        assert main(words) == 0
        assert '"name": "own"' in capsys.readouterr().out


def test_two_files_with_one_name_of_a_method(tmp_path: Path) -> None:
    first, second = (written(tmp_path / name, METHOD.format("own")) for name in ("first.py", "second.py"))
    import_file(first)
    with pytest.raises(
        ConfigError, match=f"method 'own' is already defined by {first}: choose another name in {second}"
    ):
        import_file(second)


# Installed packages


def install(folder: Path, name: str, **modules: str) -> None:
    """A package as pip installs it."""
    lines = "\n".join(f"{module} = {module}" for module in modules)
    written(folder / f"{name}-1.0.dist-info" / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    written(folder / f"{name}-1.0.dist-info" / "entry_points.txt", f"[rbnn.plugins]\n{lines}\n")
    for module, text in modules.items():
        written(folder / f"{module}.py", text)
    sys.path.append(str(folder))


def test_an_installed_package_announces_its_names(tmp_path: Path) -> None:
    install(tmp_path, "bits", bits_methods=METHOD.format("own"), bits_networks=NETWORK)
    assert "own" not in METHODS  # only on demand
    config = with_all_options(TrainConfig(method="own", model="own-net"))
    assert config.imports == ["package bits"]
    assert "own" in method_names()
    assert "own-net" in model_names()


def test_a_package_that_fails_does_not_take_the_others_along(tmp_path: Path) -> None:
    install(tmp_path, "bits", bits_broken="import nothing_like_it\n", bits_methods=METHOD.format("own"))
    with pytest.warns(UserWarning, match="the rbnn plugin bits_broken of package bits could not be imported: Mod"):
        names = method_names()
    assert "own" in names


# What a run records


def test_a_run_that_needs_what_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path / "mine.py", METHOD.format("own"))
    import_file(path)
    recipe = written(tmp_path / "config.toml", as_toml(with_all_options(TrainConfig(method="own"))))
    assert read_recipe(recipe).imports == [str(path)]
    del METHODS["own"]
    with pytest.raises(MissingImport, match=f"^the run needs {path}: add --import {path}$"):
        read_recipe(recipe)
    assert "own" not in METHODS


@pytest.mark.parametrize(
    ("imports", "says"),
    [
        (["package bits"], "the run needs package bits: install bits"),
        (["a.py", "package bits"], "the run needs a.py and package bits: install bits and add --import a.py"),
    ],
)
def test_a_package_is_to_be_installed(imports: list[str], says: str) -> None:
    with pytest.raises(MissingImport) as caught:
        from_table({"method": "own", "imports": imports})
    assert str(caught.value) == says


def test_names_from_strangers_are_short() -> None:
    with pytest.raises(MissingImport) as caught:
        from_table({"method": "own", "imports": ["x" * 100_000] * 1000})
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("imports", ["a.py", [1], [["a.py"]], {"a": 1}])
def test_imports_are_names(imports: object) -> None:
    with pytest.raises(RbnnError, match="imports"):
        from_table({"imports": imports})


def test_a_name_that_nobody_knows_is_unknown() -> None:
    with pytest.raises(UnknownName, match="unknown method 'own'"):
        TrainConfig(method="own")


def test_options_are_judged_as_ever_where_the_import_is_there(tmp_path: Path) -> None:
    import_file(written(tmp_path / "mine.py", METHOD.format("own")))
    with pytest.raises(RbnnError, match="'colour'"):
        TrainConfig(method="own", options={"colour": 1}, imports=["mine.py"])


def test_a_file_whose_name_is_no_module_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "my.method.py", METHOD.format("own"))
    with pytest.raises(ConfigError, match=r"has no dots; rename the file to my_method\.py$"):
        import_file(path)
