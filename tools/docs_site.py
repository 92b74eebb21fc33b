"""What MkDocs is told of this documentation, beyond ``mkdocs.yml``: its hooks.

https://www.mkdocs.org/user-guide/configuration/#hooks

Pages stay as they are for readers of the repository. Here ``docs/index.md`` becomes the navigation; pages and files
outside ``docs/`` that are linked to are taken along, and links to them lead there; and code blocks lose what only tests
read after their language.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "about.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "RELEASING.md": "releasing.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Pages outside ``docs/``, and what they are called on the site, where README.md would be an index."""

_LINK = re.compile(r"(\]\(|\b(?:src|srcset)=\")([^)#\s\"]+)")
_HEADING = re.compile(r"^## (.+)$")
_FIRST_CELL = re.compile(r"^\| ([^|\[]*?) ?\| \|$")
_ITEM = re.compile(r"^\| \[(.+?)\]\(([^)#]+\.md)\)")
_FENCE = re.compile(r"^( *```)(\w+) .*$", re.MULTILINE)
_LIST_BEGINS = re.compile(r"^(?!\s*(?:[-*]|\d+\.) |\s*$|\||#)(.*\S.*)\n(?=(?:[-*]|1\.) )", re.MULTILINE)
_OF_AN_ITEM = re.compile(r"^   (?=\S)", re.MULTILINE)
_WORKER = "assets/javascripts/worker.js"
_FETCHED = "https://unpkg.com/iframe-worker/shim"
_BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The map is the navigation."""
    config.nav = navigation((ROOT / "docs" / "index.md").read_text("utf-8"))
    return config


def navigation(page: str) -> list[Any]:
    """Headings as tabs, the first cells of tables as groups below them, links as pages."""
    tabs: list[Any] = [
        {"Start": ["index.md", {"About": "about.md"}, {"Tutorial": "tutorial.md"}, {"Gallery": "gallery/index.md"}]}
    ]
    items: list[Any] = []
    for line in page.splitlines():
        if heading := _HEADING.match(line):
            items = []
            tabs.append({_shortened(heading[1]): items})
            group = items
        elif cell := _FIRST_CELL.match(line):
            group = items
            if cell[1].strip():
                group = []
                items.append({_titled(cell[1].strip()): group})
        elif (item := _ITEM.match(line)) and tabs[1:]:
            group.append({_titled(item[1]): item[2]})
    project = [{name: PAGES[f"{name.upper()}.md"]} for name in ("Contributing", "Changelog", "Security", "Releasing")]
    return [*tabs, {"Project": [*project, {"Benchmarks": PAGES["benchmarks/README.md"]}]}]


def _titled(name: str) -> str:
    """With a capital at the beginning, but for a command."""
    return name.replace("`", "") if name.startswith("`") else name[:1].upper() + name[1:].replace("`", "")


def _shortened(heading: str) -> str:
    return "How-to guides" if heading.startswith("How to") else heading


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take along what pages link to outside ``docs/``."""
    wanted = dict.fromkeys(
        target
        for source in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in PAGES)]
        for _, target in _links(source.read_text("utf-8"), source.relative_to(ROOT).as_posix())
        if not target.startswith("docs/") and (ROOT / target).is_file()
    )
    for source in dict.fromkeys([*PAGES, *wanted]):
        files.append(File.generated(config, _place(source), abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, _WORKER, abs_src_path=str(ROOT / "tools" / "docs_worker.js")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page with links as they are on the site, and blocks and lists as Python-Markdown reads them."""
    source = next((name for name, place in PAGES.items() if place == page.file.src_uri), f"docs/{page.file.src_uri}")
    here = posixpath.dirname(page.file.src_uri)

    def relinked(found: re.Match[str]) -> str:
        target = _target(found[2], source)
        if target is None:
            return found[0]
        if not (ROOT / target).is_file():  # a folder: there is no page of it
            target = "README.md"
        return f"{found[1]}{posixpath.relpath(_place(target), here or '.')}"

    parts = _BLOCK.split(_FENCE.sub(r"\1\2", markdown))
    return _LINK.sub(relinked, "".join(map(_for_python_markdown, parts)))


def _for_python_markdown(part: str) -> str:
    """A list begins after an empty line, and what belongs to its items is indented by four, where others take three."""
    if not part.lstrip().startswith("```"):
        return _OF_AN_ITEM.sub("    ", _LIST_BEGINS.sub(r"\1\n\n", part))
    return re.sub("^(?=.)", " ", part, flags=re.MULTILINE) if part.startswith("   ```") else part


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Nothing is fetched: the one script that the theme would fetch is a file of ours."""
    return output.replace(_FETCHED, posixpath.relpath(_WORKER, posixpath.dirname(page.file.dest_uri) or "."))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same of the page for what is not found, at the top of the site."""
    return output.replace(_FETCHED, f"/{_WORKER}")


def _links(text: str, source: str) -> Iterator[tuple[str, str]]:
    for _, link in _LINK.findall(text):
        target = _target(link, source)
        if target is not None:
            yield link, target


def _target(link: str, source: str) -> str | None:
    """Where in the repository a link leads; ``None`` where it leads elsewhere."""
    if re.match(r"[a-z]+:|/", link):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return target if (ROOT / target).exists() else None


def _place(source: str) -> str:
    """Where a file of the repository is on the site."""
    return PAGES.get(source, source.removeprefix("docs/"))
