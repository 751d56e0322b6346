"""Hooks that MkDocs calls while it builds the site: generated pages, generated parts of pages, and links.

The sources in docs/ can be read on a code-hosting site.  These hooks fill in what the library knows itself.
"""

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))  # also for the extension of griffe, which is loaded later

import method_parts
import reference_pages
import repository_pages

CODE = re.compile(r"(?<!<pre>)(?<!<span></span>)<code>([^<]*)</code>")
"""Code within a line.  The code of a block follows ``<pre>``."""
FLAG = re.compile(r"(?<!\S)--?[a-z][\w-]*")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Generate pages and insert them where the navigation has a folder: ``Commands: reference/commands/``."""
    config.extra["generated"] = reference_pages.commands() | reference_pages.modules() | repository_pages.pages()
    config.nav = _expanded(config.nav, config.extra["generated"])
    return config


def _expanded(nav: Any, generated: dict[str, str]) -> Any:
    if isinstance(nav, list):
        return [expanded for each in nav if (expanded := _expanded(each, generated)) not in ([], {})]
    if isinstance(nav, dict):
        return {title: inside for title, each in nav.items() if (inside := _expanded(each, generated)) != []}
    return [place for place in generated if place.startswith(nav)] if nav.endswith("/") else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for place, text in config.extra["generated"].items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", reference_pages.command_table())
    return repository_pages.links(method_parts.fill_in(markdown), page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return CODE.sub(lambda code: f"<code>{_breakable(code[1])}</code>", html)


def _breakable(code: str) -> str:
    """Code that a browser breaks after slashes and not within flags."""
    return FLAG.sub(lambda flag: f'<span class="flag">{flag[0]}</span>', re.sub(r"/(?=\w)", "/<wbr>", code))
