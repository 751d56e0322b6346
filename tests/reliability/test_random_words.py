"""Random recipes and command lines: each gives a result or one sentence, never a bug."""

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from faults import Fault
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rbnn.cli import main
from rbnn.errors import RbnnError
from rbnn.training.config import TrainConfig, as_table, as_toml, read_recipe, with_all_options

often = settings(max_examples=200, suppress_health_check=list(HealthCheck), derandomize=True)

FIELDS = sorted(as_table(TrainConfig()) | {"out": "", "start_from": "", "teacher": ""})
numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.booleans())
words = st.one_of(st.text(max_size=8), st.sampled_from(["rbnn", "float", "digits", "resnet20", "all", "cpu", "../x"]))
values = st.recursive(st.one_of(numbers, words), lambda inner: st.lists(inner, max_size=3), max_leaves=5)


def toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" if not 0xD800 <= ord(c) < 0xE000 else "?" for c in value) + '"'
    return str(value)


@pytest.mark.long
@often
@given(st.dictionaries(st.sampled_from([*FIELDS, "epoch", "options.rotation"]), values, max_size=6))
def test_any_recipe(tmp_path_factory: pytest.TempPathFactory, fault: Fault, table: dict[str, Any]) -> None:
    path = tmp_path_factory.getbasetemp() / "random.toml"
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in table.items()), encoding="utf-8")
    with fault("random recipe"), contextlib.suppress(RbnnError):
        config = with_all_options(read_recipe(path))  # as a run writes it
        path.write_text(as_toml(config), encoding="utf-8")
        assert read_recipe(path) == config


@often
@given(st.binary(max_size=60))
def test_any_bytes_as_a_recipe(tmp_path_factory: pytest.TempPathFactory, fault: Fault, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "random.toml"
    path.write_bytes(data)
    with fault("random recipe"), contextlib.suppress(RbnnError):
        read_recipe(path)


FLAGS = [
    "--json", "--debugg", "--model", "--method", "--lr", "--epochs", "--top", "--classes", "--batch-size", "-o",
    "--help", "--threads", "--options", "--seed", "--limit", "--version", "-h", "--images", "--figures", "--rows",
]  # fmt: skip
COMMANDS = [
    "eval",
    "info",
    "export",
    "predict",
    "report",
    "models",
    "methods",
    "reproduce",
    "import",
    "bench",
    "doctor",
    "completion",
    "nonsense",
]
arguments = st.lists(
    st.one_of(
        st.sampled_from(FLAGS),
        st.sampled_from(["resnet20", "rbnn", "nothing.pt", "nothing.rbnn", "-1", "0", "1e999", "nan", "a=b", "a b"]),
        st.text(st.characters(exclude_characters="\0"), max_size=6),
    ),
    max_size=5,
)


@pytest.mark.long
@settings(often, max_examples=150)
@given(st.sampled_from(COMMANDS), arguments)
def test_any_command_line(
    tmp_path_factory: pytest.TempPathFactory, fault: Fault, command: str, rest: list[str]
) -> None:
    with fault("random command line"):
        answer_is_clean(tmp_path_factory.getbasetemp(), [command, *rest])


@settings(often, max_examples=100)
@given(arguments)
def test_any_training_command(tmp_path_factory: pytest.TempPathFactory, fault: Fault, rest: list[str]) -> None:
    """Uses a device that does not exist, so the command ends after it has built its configuration."""
    with fault("random command line"):
        answer_is_clean(tmp_path_factory.getbasetemp(), ["train", "digits", *rest, "--device", "abacus"])


def answer_is_clean(folder: Path, words: list[str]) -> None:
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        code = main(words)
    assert code in (0, 2), (words, said.getvalue())
    assert "Traceback" not in said.getvalue()
    assert "a bug" not in said.getvalue()
