"""The documentation's pages, their code blocks and links, as Markdown's own parser sees them."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from laboratory.preloaded import Forked, can_fork

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = ROOT / "examples"
EXTENSIONS = EXAMPLES / "extensions"

ACTIONS = ("run", "brief", "steps", "saved", "edit", "mistake", "regressed", "missing", "output", "like")
"""What a reader does with a block (``test_commands``)."""

_SOURCE = re.compile(r'(?:src|srcset|href)="([^"]+)"')


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Block:
    """A fenced code block. ``about`` is what follows the language: a path, ``study``, ``run``, or nothing."""

    page: Path
    line: int
    language: str
    about: str
    text: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    for token in _tokens(page):
        if token.type == "fence":
            language, _, about = token.info.strip().partition(" ")
            assert token.map is not None
            yield Block(page, token.map[0] + 1, language, about.strip(), token.content)


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


def links(page: Path) -> Iterator[str]:
    for token in _tokens(page):
        yield from _SOURCE.findall(token.content) if token.type == "html_block" else ()
        for child in token.children or ():
            if child.type == "link_open":
                yield str(child.attrs["href"])
            elif child.type == "image":
                yield str(child.attrs["src"])
            elif child.type == "html_inline":
                yield from _SOURCE.findall(child.content)


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings: lower case, spaces as hyphens, other signs left out."""
    tokens = _tokens(page)
    titles = [text.content for head, text in pairwise(tokens) if head.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()).replace(" ", "-") for title in titles}


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))


def storlab(*words: str, folder: Path, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run this environment's Storlab in ``folder``, with ``path`` among the places where packages are installed."""
    with running_storlab(*words, folder=folder, path=path) as running:
        printed, said = running.communicate(timeout=300)
    return subprocess.CompletedProcess(words, running.returncode, printed.decode(), said.decode())


@contextmanager
def running_storlab(*words: str, folder: Path, path: tuple[Path, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """Start it; it is killed at the end of the context."""
    environment = {**os.environ, "COLUMNS": "200", "XDG_STATE_HOME": str(folder / "state")}
    process: subprocess.Popen[bytes]
    if not path and can_fork(environment):
        process = Forked(words, environment, folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    else:
        environment["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "storlab.cli.main", *words]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        try:
            yield process
        finally:
            process.kill()


def nothing_is_left_of(identity: str) -> None:
    """Assert that a run has left no mount, loop device, file, process or network of its own."""
    assert identity not in Path("/proc/self/mountinfo").read_text()
    assert identity not in subprocess.run(["losetup", "--list"], capture_output=True, text=True, check=True).stdout
    assert not list(Path("/var/tmp").glob(f"*{identity}*"))
    left = [pid for pid in Path("/proc").glob("[0-9]*") if identity in read(pid / "cmdline") + read(pid / "cgroup")]
    assert left == []
    assert not list(Path("/run/netns").glob(f"*{identity}*"))


def read(path: Path) -> str:
    """A file's text; none where it is gone, or not to be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
