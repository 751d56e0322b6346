"""The documentation site: links and anchors resolve, every public name, command and method has its page, and the site
loads nothing from other hosts."""

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rbnn.cli import commands
from rbnn.functional import ESTIMATORS
from rbnn.methods import METHODS, method_names, method_options

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.append(str(ROOT / "tools" / "docs"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(path: Path) -> str:
    """A page without its code."""
    return re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as code-hosting sites and our site name them."""
    headings = re.findall(r"^#+ (.*)", prose(path), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_anchors_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(prose(path)):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        page = (path.parent / target).resolve() if target else path
        assert page.exists(), link
        assert not anchor or anchor in anchors(page), link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lines_of_prose_are_short(path: Path) -> None:
    long = [line for line in prose(path).splitlines() if len(line) > 120 and not line.startswith("|")]
    assert not long


def test_every_method_has_its_page() -> None:
    table = (DOCS / "methods.md").read_text(encoding="utf-8")
    pages = {name: DOCS / target for name, target in re.findall(r"^\| \[`([^`]+)`\]\(([^)]+)\)", table, re.MULTILINE)}
    assert list(pages) == method_names()
    for name, page in pages.items():
        text = page.read_text(encoding="utf-8")
        asked = {f"<!-- {part} of {name} -->" for part in ("formula", "gradients", "options", "published results")}
        missing = {comment for comment in asked if comment not in text}
        assert not missing or name == "float"


mkdocs = pytest.importorskip("mkdocs", reason="the site needs the extra `docs`")


@pytest.mark.parametrize("name", METHODS)
def test_every_option_is_explained_in_the_docstring(name: str) -> None:
    from docstrings import options

    assert set(options(inspect.getdoc(METHODS[name]) or "")) == set(method_options(name))


def test_pages_of_methods_contain_what_the_library_says() -> None:
    from method_parts import PAGES as METHOD_PAGES
    from method_parts import written

    for page in METHOD_PAGES.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert text == written(text), "run python tools/docs/method_parts.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built like `make docs`; warnings are errors."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


class Tags(HTMLParser):
    """Every tag with its attributes, and the text of inline styles and scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))


def tags(page: Path) -> list[tuple[str, dict[str, str]]]:
    return Tags(page.read_text(encoding="utf-8")).found


def loaded(page: Path) -> Iterator[str]:
    """The addresses that a browser fetches when it shows a page."""
    for tag, attributes in tags(page):
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed", "input", "track"):
            yield attributes.get("src", "")
            yield from (part.split()[0] for part in attributes.get("srcset", "").split(",") if part.strip())
        if tag == "object":
            yield attributes.get("data", "")
        if tag == "link" and attributes.get("rel") not in ("canonical", "next", "prev"):
            yield attributes.get("href", "")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    outside = {address for page in pages for address in loaded(page) if re.match(r"(https?:)?//", address)}
    assert not outside
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", style.read_text(encoding="utf-8")), style.name
    for image in site.rglob("*.svg"):
        assert not re.search(r"(href=|url\()[\"']?(https?:)?//", image.read_text(encoding="utf-8")), image.name


def navigation(site: Path) -> set[str]:
    """The pages that the home page's navigation links to."""
    return {attributes.get("href", "") for tag, attributes in tags(site / "index.html") if tag == "a"}


def test_every_command_has_its_page(site: Path) -> None:
    assert len(commands()) > 12
    for name in commands():
        page = f"reference/commands/{name}.html"
        assert page in navigation(site)
        text = (site / page).read_text(encoding="utf-8")
        assert f"usage: rbnn {name}" in text
        assert "--help" in text


def test_every_public_name_has_its_entry(site: Path) -> None:
    from reference_pages import MODULES, defined_at, public_names

    assert MODULES[0] == "rbnn"
    entries: list[str] = []
    for module in MODULES:
        page = f"reference/python/{module}.html"
        assert page in navigation(site)
        entries += [attributes["id"] for _, attributes in tags(site / page) if "id" in attributes]
        missing = [name for name in public_names(module) if defined_at(module, name) not in entries]
        assert not missing, module


def test_pages_of_methods_are_filled_in(site: Path) -> None:
    for page in (site / "methods").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<!-- " not in re.sub(r"<!--\[if.*?-->", "", text.partition("<article")[2].partition("</article")[0])
    text = (site / "methods" / "rbnn.html").read_text(encoding="utf-8")
    assert all(f"<code>{option}</code>" in text for option in method_options("rbnn"))
    assert text.count("<polyline") == 10, "five curves for weights, five for activations"
    estimators = (site / "methods.html").read_text(encoding="utf-8")
    assert all(f">{name}</text>" in estimators for name in ESTIMATORS)


def test_search_works_from_a_disk(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    found = json.loads(index.partition("=")[2].rstrip("; \n"))
    assert any("rotate_until" in entry["text"] for entry in found["docs"])
    scripts = [attributes.get("src", "") for tag, attributes in tags(site / "index.html") if tag == "script"]
    assert "assets/iframe-worker.js" in scripts
