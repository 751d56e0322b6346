"""Files of the repository that are also pages of the site: CONTRIBUTING, CHANGELOG, SECURITY, examples, notebooks.

Pages link to them as on a code-hosting site, ``../examples/ddp.py``; on the site the same link leads to their page.
"""

import json
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
LANGUAGES = {".py": "python", ".toml": "toml"}
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")


def pages() -> dict[str, str]:
    """Pages by path."""
    found = {place: (ROOT / name).read_text(encoding="utf-8") for name, place in DOCUMENTS.items()}
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in LANGUAGES:
            found[_place(path)] = _listing(path)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        found[_place(path)] = _notebook(path)
    return found


def _place(path: Path) -> str:
    return f"{path.parent.name}/{path.name if path.suffix == '.toml' else path.stem}.md"


def _listing(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    return f"# {name}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}```\n"


def _notebook(path: Path) -> str:
    """The text and the code of a notebook, and what the code printed or drew."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
            parts += [_output(output) for output in cell.get("outputs", [])]
    return "\n\n".join(part for part in parts if part) + "\n"


def _output(output: dict[str, object]) -> str:
    data = output.get("data", {})
    assert isinstance(data, dict)
    if "image/svg+xml" in data:
        drawn = "".join(data["image/svg+xml"])
        return f'<div class="output">{drawn[drawn.index("<svg") :]}</div>'
    if "image/png" in data:
        encoded = "".join(data["image/png"]).replace("\n", "")
        return f'<img class="output" alt="What the cell drew" src="data:image/png;base64,{encoded}">'
    text = output.get("text", data.get("text/plain", ""))
    assert isinstance(text, str | list)
    printed = "".join(text).rstrip()
    return f"```{{ .text .printed .no-copy }}\n{printed}\n```" if printed else ""


def links(text: str, place: str) -> str:
    """The links of a page at ``place`` in the site.  Links that lead out of docs/ lead to the pages above."""
    folder = place.partition("/")[0]
    elsewhere = place if folder in ("examples", "notebooks") else f"docs/{place}"
    source = next((name for name, page in DOCUMENTS.items() if page == place), elsewhere)

    def changed(link: re.Match[str]) -> str:
        target = link[2]
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path.startswith("docs/"):
            page = path.removeprefix("docs/")
        elif path in DOCUMENTS:
            page = DOCUMENTS[path]
        elif (ROOT / path).is_file() and (ROOT / path).parent.name in ("examples", "notebooks"):
            page = _place(ROOT / path)
        else:
            return link[0]
        return f"{link[1]}{posixpath.relpath(page, posixpath.dirname(place) or '.')}{link[3]}"

    return LINK.sub(changed, text)
