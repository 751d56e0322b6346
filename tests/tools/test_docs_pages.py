"""How tools/docs converts docstrings, notebooks and links for the site."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("griffe", reason="the site needs the extra `docs`")

sys.path.append(str(Path(__file__).parents[2] / "tools" / "docs"))
import docstrings
import repository_pages

DOCSTRING = """Signs times a scale.

    forward   α sign(w)

More about ``α``.

The options are:

gradient        of the weight: ``paper``, or
                ``release``
t_min, t_max    exponents of t
"""


def test_options_of_a_docstring() -> None:
    assert docstrings.options(DOCSTRING) == {
        "gradient": "of the weight: ``paper``, or ``release``",
        "t_min": "exponents of t",
        "t_max": "exponents of t",
    }


def test_formula_of_a_docstring() -> None:
    assert docstrings.formula(DOCSTRING) == "    forward   α sign(w)\n\nMore about `α`."


def test_a_docstring_in_markdown() -> None:
    text = docstrings.markdown(DOCSTRING)
    assert "\n\n- `gradient`: of the weight: `paper`, or\n    `release`\n\n- `t_min`, `t_max`: exponents of t" in text
    assert "\n    forward   α sign(w)\n" in text


def test_a_notebook_is_a_page(tmp_path: Path) -> None:
    path = tmp_path / "one.ipynb"
    path.write_text(
        """{"cells": [
        {"cell_type": "markdown", "source": ["# Title\\n", "text"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [
            {"output_type": "stream", "name": "stdout", "text": ["1\\n"]},
            {"output_type": "display_data", "data": {"text/plain": "<Figure>", "image/png": "AAAA\\n"}},
            {"output_type": "execute_result", "data": {"text/plain": ["2"]}}]},
        {"cell_type": "code", "source": [], "outputs": []}]}""",
        encoding="utf-8",
    )
    assert repository_pages._notebook(path).split("\n\n") == [
        "# Title\ntext",
        "```python\nprint(1)\n```",
        "```text\n1\n```",
        '<img class="output" alt="What the cell drew" src="data:image/png;base64,AAAA">',
        "```text\n2\n```\n",
    ]


@pytest.mark.parametrize(
    ("place", "link", "becomes"),
    [
        ("your-own-model.md", "../examples/ddp.py", "examples/ddp.md"),
        ("results/signals.md", "../../examples/signals.py", "../examples/signals.md"),
        ("extending.md", "../examples/gradients_on_digits.toml", "examples/gradients_on_digits.toml.md"),
        ("extending.md", "../CONTRIBUTING.md", "contributing.md"),
        ("changelog.md", "docs/format.md", "format.md"),
        ("security.md", "docs/format.md#limits", "format.md#limits"),
        ("methods.md", "methods/rbnn.md#options", "methods/rbnn.md#options"),
        ("results/signals.md", "../figures/cosine.svg", "../figures/cosine.svg"),
        ("format.md", "https://example.org/docs/x.md", "https://example.org/docs/x.md"),
        ("method.md", "#limits", "#limits"),
    ],
)
def test_links_lead_to_pages_of_the_site(place: str, link: str, becomes: str) -> None:
    assert repository_pages.links(f"See [this]({link}).", place) == f"See [this]({becomes})."
