"""Help texts fit the terminal, name values plainly, and keep what is laid out."""

import os
import subprocess
import sys

import pytest
from answers import Rbnn

from rbnn.cli import commands, main
from rbnn.cli._wrapping import table, wrapped


def helped(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["", *commands()])
def test_help_fits_the_terminal(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples are whole lines, which can be copied.  The ways to call rbnn are one line."""
    monkeypatch.setenv("COLUMNS", str(width))
    text = helped(*([name] if name else []), capsys=capsys)
    lines = [
        line
        for paragraph in text.split("\n\n")
        for line in paragraph.splitlines()
        if not paragraph.startswith(("  Example", "usage: rbnn COMMAND"))
    ]
    assert max(map(len, lines)) <= width
    assert "\n\n\n" not in text


@pytest.mark.parametrize("name", commands())
def test_values_have_plain_names(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    text = helped(name, capsys=capsys)
    for unwanted in ("{None}", "[[", "STR", "(default: )", "(default: None)", "(default: False)", "(default: '')"):
        assert unwanted not in text


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("predict", "[-h] NET IMAGE ... "),
        ("predict", " --output PATH "),
        ("export", " -o PATH, --output PATH"),
        ("report", "[-h] RUN ... "),
        ("bench", "[OPTIONS] [NET]"),
        ("methods", "[-h] [NAME] "),
        ("reproduce", " --seeds INT ... "),
        ("train", " --options KEY=VALUE ..."),
    ],
)
def test_arguments(name: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert shown in helped(name, capsys=capsys)


def test_a_usage_line_breaks_between_arguments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert helped("predict", capsys=capsys).splitlines()[:2] == [
        "usage: rbnn predict [-h] NET IMAGE ... [--top INT] [--output PATH]",
        "       [--json | --no-json]",
    ]


def test_lines_for_the_files_of_a_shell_stay_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = helped("completion", capsys=capsys)
    assert '  bash, in ~/.bashrc:      eval "$(rbnn completion bash)"\n  zsh,' in text


def test_a_method_fits_the_terminal(rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A formula loses no line of its own, and its remark follows in the next line."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = rbnn("methods", "rbnn").out.splitlines()
    assert max(map(len, lines[: lines.index(next(line for line in lines if line.startswith("┏")))])) <= 80
    assert "    w̃  = w + α (Rᵀw − w),   R = R1 ⊗ R2,   α = |sin β|" in lines
    assert "        (eq. 11; R fixed during an epoch)" in lines
    assert "                values, one rotation shared by all filters), `layer` (all" in lines
    assert (
        "              L = mean_c (2 − |μ| − σ)₊² + mean_c (σ − 4)₊² + mean_c (μ² − σ²)₊" in rbnn("methods", "rad").out
    )


def test_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    text = """One two three four
    five six seven eight nine ten eleven.

    name     what the first thing is, in many words
             that go on
    other    short

    Example: rbnn a-command --with more --words than --fit
    """
    assert wrapped(text, " ").splitlines() == [
        " One two three four five six seven eight",
        " nine ten eleven.",
        "",
        " name     what the first thing is, in many",
        "          words that go on",
        " other    short",
        "",
        " Example: rbnn a-command --with more --words than --fit",
    ]


def test_a_narrow_terminal_has_the_second_column_below_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"rbnn predict resnet20-bireal-cifar10": "classify an image", "rbnn": "first steps"}
    monkeypatch.setenv("COLUMNS", "60")
    assert table(rows)[1] == "  rbnn                                   first steps"
    monkeypatch.setenv("COLUMNS", "50")
    assert table(rows) == [
        "  rbnn predict resnet20-bireal-cifar10",
        "      classify an image",
        "  rbnn",
        "      first steps",
    ]


def test_first_steps_fit_80_columns(rbnn: Rbnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = rbnn().out.splitlines()
    assert max(map(len, lines)) <= 80
    steps = [line for line in lines if line.startswith("  rbnn ")]
    assert len(steps) == 6
    assert all(line.strip().count("   ") >= 1 for line in steps)  # command and purpose in one line


def test_the_overview_does_not_wait_for_the_parser() -> None:
    code = "import sys; from rbnn.cli import main; main(['--help']); sys.exit('tyro' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_word_help_is_help(rbnn: Rbnn) -> None:
    assert rbnn("help") == rbnn("--help")
