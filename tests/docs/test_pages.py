"""What every page owes its readers: links that lead somewhere, blocks that are what they say, plain words, a site."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from tools.gallery_pages import GALLERY, PICTURES, pages, read_gallery
from tools.install_size import Cost, Requirement, brought_by, requirements, table, used_modules

from storlab.base.programs import MODULES
from storlab.study.study import load_study, named_studies

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


MOST = 150_000
"""Bytes of a picture."""


@pytest.mark.parametrize("file", pages(read_gallery()))
def test_a_page_of_the_gallery_is_what_its_study_and_run_make_of_it(file: str) -> None:
    written = (GALLERY / file).read_text("utf-8")
    assert written == pages(read_gallery())[file], "write it again: .venv/bin/python -m tools.gallery_pages"


def test_pictures_are_small_and_a_study_has_one_or_a_reason_why_not() -> None:
    gallery = read_gallery()
    assert set(gallery.runs) | set(gallery.not_run) == set(named_studies())
    assert set(gallery.runs).isdisjoint(gallery.not_run)
    assert {f"{name}.png" for name in gallery.runs} == {picture.name for picture in PICTURES.glob("*.png")}
    assert all(picture.stat().st_size <= MOST for picture in PICTURES.glob("*.png"))


_FETCHED = re.compile(r'<(?:script|link|img|source|iframe)\b[^>]*?\b(?:src|href|srcset)="(https?:[^"]*)"')
_CODE = re.compile(r"(?s)<(pre|code).*?</\1>")


def test_the_site_builds_strictly_fetches_nothing_and_has_every_page_in_its_navigation(tmp_path: Path) -> None:
    mkdocs = str(Path(sys.executable).with_name("mkdocs"))
    command = [mkdocs, "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert (built.returncode, built.stderr) == (0, "")
    built_pages = {path.relative_to(tmp_path): path.read_text("utf-8") for path in tmp_path.rglob("*.html")}
    assert {url for page in built_pages.values() for url in _FETCHED.findall(page)} == set()
    start = built_pages[Path("index.html")]
    for source in (ROOT / "docs").rglob("*.md"):
        place = source.relative_to(ROOT / "docs").with_suffix(".html")
        assert place in built_pages
        assert place.parts[0] == "gallery" or f'href="{place}"' in start or place.name == "index.html", place
    assert "```" not in _CODE.sub("", built_pages[Path("tutorial.html")])


INSTALLING = (ROOT / "docs" / "reference" / "installing.md").read_text("utf-8")
_ROW = re.compile(r"^\| (?P<name>[\w-]+) \| (?:`(?P<extra>\w+)`)? ?\| [\d.]+ \| [\d.]+ \|$", re.MULTILINE)


def test_the_table_has_every_dependency_with_its_extra_each_of_which_is_named_with_its_feature() -> None:
    rows = {Requirement(row["name"], row["extra"] or "") for row in _ROW.finditer(INSTALLING)}
    assert rows == set(requirements("storlab"))
    assert {extra for extra in MODULES if f"`storlab[{extra}]`" not in INSTALLING} == set()


def test_what_only_one_dependency_brings_counts_for_it_in_megabytes() -> None:
    assert {"polars", "polars-runtime-32"} <= brought_by(["polars"]).keys()
    assert "numpy" in brought_by(["scipy"])
    assert "numpy" not in brought_by(["scipy"], without={"numpy"})
    rows = list(table([Cost(Requirement("numpy"), 57_400_000, 0.2), Cost(Requirement("qemu-qmp", "vm"), 200_000, 0.1)]))
    assert rows[2:4] == ["| numpy |  | 57.4 | 0.20 |", "| qemu-qmp | `vm` | 0.2 | 0.10 |"]
    assert rows[4].startswith("| **base installation**")


def test_the_modules_whose_import_is_timed_are_those_that_storlab_uses() -> None:
    assert "scipy.special" in used_modules("scipy")
    assert used_modules("qemu-qmp") == ["qemu.qmp"]


_INSTEAD = {
    r"anew": "again", r"besides": "also, other than, in addition to",
    r"beneath": "underneath, underlying, below", r"mend(s|ed|ing)?": "fix, repair", r"nought": "zero",
    r"goes on with": "continues, resumes", r"put up": "set up", r"take[ns]? down": "tear down, removed",
    r"node by node": "per node", r"not measured in full": "incomplete cells",
    r"can't be (?:foreseen|told from)": "not yet estimable, indistinguishable from",
    r"fault of storlab's own": "internal error",
    r"no level is better than another": "no difference established yet",
    r"(?<![.,])1 (?:rounds|trials|cells|requests)": "the singular",
}  # fmt: skip
_SUFFIXES = {".md", ".py", ".rs", ".j2", ".toml", ".sh", ".js"}
_PLACES = ("README.md", "CONTRIBUTING.md", "docs", "src", "agent/src", "scripts", "tools", "examples")


def _files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "--", *_PLACES], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if Path(name).suffix in _SUFFIXES]


def _pattern(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){word}(?![\w-])", re.IGNORECASE)


def test_words_that_readers_stumble_over_are_nowhere() -> None:
    patterns = {_pattern(word): instead for word, instead in _INSTEAD.items()}
    every = re.compile("|".join(pattern.pattern for pattern in patterns), re.IGNORECASE)
    found = [
        f"{file.relative_to(ROOT)}:{number}: say {instead}: {line.strip()}"
        for file in _files()
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if every.search(line)
        for pattern, instead in patterns.items()
        if pattern.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("text", "finds"), [("What mends it", True), ("recommended", False), ("un-mend", False)])
def test_such_a_word_is_found_only_as_a_whole(text: str, finds: bool) -> None:
    assert bool(_pattern("mend(s|ed|ing)?").search(text)) is finds
