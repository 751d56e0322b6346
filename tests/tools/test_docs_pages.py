"""How tools/docs converts docstrings, notebooks and links for the site."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("griffe", reason="the site needs the extra `docs`")

sys.path.append(str(Path(__file__).parents[2] / "tools" / "docs"))
import docstrings
import hooks
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
        "```{ .text .printed .no-copy }\n1\n```",
        '<img class="output" alt="What the cell drew" src="data:image/png;base64,AAAA">',
        "```{ .text .printed .no-copy }\n2\n```\n",
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


@pytest.mark.parametrize(
    ("html", "becomes"),
    [
        ("<code>--resume</code>", '<code><span class="flag">--resume</span></code>'),
        (
            "<code>rbnn eval a-b/c --data-dir=d -o x</code>",
            '<code>rbnn eval a-b/<wbr>c <span class="flag">--data-dir</span>=d <span class="flag">-o</span> x</code>',
        ),
        ("<code>src/rbnn/</code>", "<code>src/<wbr>rbnn/</code>"),
        ("<code>-1 - x</code>", "<code>-1 - x</code>"),
        ("<pre><code>rbnn --help a/b</code></pre>", "<pre><code>rbnn --help a/b</code></pre>"),
        ("<pre><span></span><code>a --b c/d</code></pre>", "<pre><span></span><code>a --b c/d</code></pre>"),
        ("text --help a/b", "text --help a/b"),
    ],
)
def test_flags_stay_whole_and_paths_break_after_slashes(html: str, becomes: str) -> None:
    assert hooks.on_page_content(html, None, None, None) == becomes  # type: ignore[arg-type]
