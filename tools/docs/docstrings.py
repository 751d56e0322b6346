"""Convert the library's docstrings to Markdown: formulas stay as they are, and options become lists."""

import re

import griffe

OPTION = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*)\s{2,}(\S.*)$")
"""A line such as ``rotation        groups of weights that …``.  Indented lines below it continue it."""


def options(docstring: str) -> dict[str, str]:
    """The options that a docstring explains, each with its text in one line."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.splitlines():
        if option := OPTION.match(line):
            names = option[1].split(", ")
            found |= dict.fromkeys(names, option[2])
        elif names and line.startswith("  ") and line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


def formula(docstring: str) -> str:
    """The docstring without its first sentence and its options: the formulas and their explanation."""
    kept, skipped = list[str](), False
    for line in docstring.splitlines()[1:]:
        skipped = bool(OPTION.match(line)) or (skipped and line.startswith("  ") and bool(line.strip()))
        if not skipped:
            kept.append(line)
    paragraphs = "\n".join(kept).strip("\n").split("\n\n")
    if paragraphs[-1].rstrip().endswith(":"):  # it introduces the options
        paragraphs.pop()
    return inline_code("\n\n".join(paragraphs))


def markdown(docstring: str) -> str:
    """The whole docstring; each option is an item of a list."""
    lines, inside = list[str](), False
    for line in docstring.splitlines():
        if option := OPTION.match(line):
            names = ", ".join(f"`{name}`" for name in option[1].split(", "))
            lines += ["", f"- {names}: {option[2]}"]
            inside = True
        elif inside and line.startswith("  ") and line.strip():
            lines.append(f"    {line.strip()}")
        else:
            inside = False
            lines.append(line)
    return inline_code("\n".join(lines))


def inline_code(text: str) -> str:
    """Replace Sphinx's double backticks by Markdown's single ones."""
    return re.sub(r"``([^`\n]+)``", r"`\1`", text)


class MarkdownDocstrings(griffe.Extension):
    """For mkdocstrings: every docstring as Markdown."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
