"""What every page owes its readers: links that lead somewhere, blocks that are what they say, studies that load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from storlab.study.study import load_study

from .pages import ACTIONS, EXAMPLES, PAGES, ROOT, Block, all_blocks, anchors, links, name


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links to {link}, which does not exist"
        assert target.is_relative_to(ROOT), f"{name(page)} links to {link}, outside of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name(page)} links to {link}, but that page has no such heading"


@pytest.mark.parametrize("page", [page for page in PAGES if "docs" in page.parts], ids=name)
def test_every_page_can_be_reached_from_the_map(page: Path) -> None:
    index = ROOT / "docs" / "index.md"
    maps = (index, index.parent / "gallery" / "index.md")  # the gallery, which the map leads to, has one of its own
    reached = {(each.parent / link.partition("#")[0]).resolve() for each in maps for link in links(each)}
    assert page == index or page in reached


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_mark_up_of_a_page_is_shown_as_text(page: Path) -> None:
    """A row of a table after a blank line, a link or emphasis that is not closed: shown as they are written."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))
    texts = [part.content for token in tokens for part in token.children or () if part.type == "text"]
    assert [text for text in texts if re.search(r"^\s*\|.*\||\*\*|\]\(|`", text)] == []


@pytest.mark.parametrize("block", [b for b in all_blocks() if "/" in b.about], ids=str)
def test_a_block_that_names_a_file_is_a_copy_of_it(block: Block) -> None:
    assert block.text == (ROOT / block.about).read_text("utf-8")


@pytest.mark.parametrize("block", [b for b in all_blocks() if b.about.split(" ")[0] in ("study", "saved")], ids=str)
def test_a_block_that_is_a_study_loads(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(block.text)
    assert load_study(file).cells


def test_blocks_say_only_what_is_known() -> None:
    known = {"study", *ACTIONS}
    strange = [str(b) for b in all_blocks() if b.about and "/" not in b.about and b.about.split(" ")[0] not in known]
    assert not strange


def test_every_example_is_shown_or_linked_on_some_page() -> None:
    files = {path for path in EXAMPLES.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    shown = {ROOT / block.about for block in all_blocks() if "/" in block.about}
    linked = {(page.parent / link).resolve() for page in PAGES for link in links(page) if ":" not in link}
    left = {str(path.relative_to(ROOT)) for path in files - shown - linked if path.parent not in linked}
    assert left <= {"examples/extensions/storlab_examples/__init__.py"}


def test_the_readme_names_no_number_that_a_run_gave() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert not re.findall(r"\d+(?:\.\d+)?\s?(?:×|[kMG]i?B/s|IOPS|k/s|ms\b|µs)", text)


def test_every_module_that_the_architecture_names_is_there() -> None:
    """A name without a folder stands in that of the name before it."""
    folder, missing = Path(), []
    for module in re.findall(r"`((?:[\w*-]+/)*[\w*-]+\.py|(?:[\w-]+/)+)`", (ROOT / "docs/architecture.md").read_text()):
        places = (ROOT / "src" / "storlab", ROOT, folder)
        found = [path for place in places for path in place.glob(module.rstrip("/"))]
        if found:
            folder = found[0].parent if found[0].suffix else found[0]
        else:
            missing.append(module)
    assert missing == []
