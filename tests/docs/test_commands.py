"""The commands in the documentation, run in order, page by page, in a folder of their own.

What follows the language of a block says what a reader does with it:

    run          runs the commands that begin with ``$``; ``mistake``: they are refused;
                 ``regressed``: they end with 3
                 ``missing``: they end with 4; before all other words, ``guests``: they start virtual machines
    brief        as ``run``, with as few rounds and as little time as the commands allow; further words are added to
                 each ``storlab run``
    steps        runs the ``- run:`` lines of a CI job, of which gates may fail
    saved, edit  writes or changes a file
    output       finds each of these lines in what was printed; ``…`` stands for anything
    like         finds these words in what was printed, in this order, whatever the numbers and where lines end
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from .pages import ACTIONS, EXAMPLES, PAGES, ROOT, Block, blocks, name, storlab

STATUSES = {"mistake": 2, "regressed": 3, "missing": 4}
GATE_HIT = 4


def _actions(page: Path) -> Iterator[Block]:
    return (block for block in blocks(page) if block.about.split(" ")[0] in ACTIONS)


@dataclass
class Reader:
    folder: Path
    printed: str = ""

    def follow(self, block: Block) -> None:
        action, _, file = block.about.replace(" guests", "", 1).partition(" ")
        if action == "saved":
            (self.folder / file).write_text(block.text)
        elif action == "edit":
            self.edit(self.folder / file, block)
        elif action == "output":
            self.compare(block)
        elif action == "like":
            self.resemble(block)
        elif action == "steps":
            self.steps(block, file)
        else:
            self.printed = ""
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    words = shlex.split(line[2:], comments=True)
                    brief = _briefly(words, file) if action == "brief" else words
                    self.command(brief, STATUSES.get(action, 0), block)

    @staticmethod
    def edit(file: Path, block: Block) -> None:
        lines = file.read_text().splitlines()
        for line in block.text.splitlines():
            (at,) = (i for i, old in enumerate(lines) if old.split(" ")[0] == line.split(" ")[0])
            lines[at] = line
        file.write_text("\n".join(lines) + "\n")

    def command(self, words: list[str], status: int, block: Block) -> None:
        if words[0] == "storlab":
            ended = storlab(*words[1:], folder=self.folder)
        else:
            assert words[0] == "python", f"{block}: only storlab and python are run here"
            command = [sys.executable, *words[1:]]
            ended = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)
        assert ended.returncode == status, f"{block}: {shlex.join(words)}:\n{ended.stdout}{ended.stderr}"
        self.printed += ended.stdout + ended.stderr

    def steps(self, block: Block, more: str) -> None:
        search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        summary = {"GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"), "PATH": search}
        for line in block.text.splitlines():
            if line.startswith("- run: "):
                command = line.removeprefix("- run: ")
                words = [
                    "sh",
                    "-c",
                    shlex.join(_briefly(shlex.split(command), more)) if ">>" not in command else command,
                ]
                ended = subprocess.run(
                    words, cwd=self.folder, env=os.environ | summary, capture_output=True, text=True, timeout=300
                )
                fine = (0, GATE_HIT) if "--fail-on" in command else (0,)
                assert ended.returncode in fine, f"{block}: {command}:\n{ended.stdout}{ended.stderr}"

    def resemble(self, block: Block) -> None:
        printed = iter(_words(self.printed))
        for word in _words(block.text):
            assert word in printed, f"{block}: {word!r} is not printed, or not there:\n{self.printed}"

    def compare(self, block: Block) -> None:
        lines = [line.rstrip() for line in self.printed.splitlines()]
        for line in block.text.splitlines():
            pattern = re.escape(line.rstrip()).replace("…", ".*")
            assert any(re.fullmatch(pattern, said) for said in lines), f"{block}: not printed: {line}\n{self.printed}"


def _words(text: str) -> list[str]:
    """Words of five letters and more: others may be units. Those that only say how large a number is are left out."""
    return [word for word in re.findall(r"[A-Za-z]{5,}", text) if word not in ("about", "more")]


def _briefly(words: list[str], more: str = "") -> list[str]:
    """The same command with the fewest rounds and the least time, and with more words if it runs a study."""
    least = {"--rounds": "2", "--for": "1s"}
    brief = [least[before] if before in least and word != "1" else word for before, word in pairwise(["", *words])]
    return brief + shlex.split(more) * (words[:2] == ["storlab", "run"])


ELSEWHERE = (ROOT / "docs" / "how-to" / "virtual-machines.md",)
"""Pages that another test follows, which looks at what their commands make: ``test_reference``."""


def follow(page: Path, folder: Path) -> None:
    """All that a page says, in a folder that has the examples."""
    (folder / "examples").symlink_to(EXAMPLES)
    reader = Reader(folder)
    for block in _actions(page):
        reader.follow(block)


def _needs(page: Path) -> tuple[str, ...]:
    """Some commands set up loop devices. The guests of all pages have an image with ZFS."""
    return ("root", "zfs") if any(" guests" in block.about for block in _actions(page)) else ("root",)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.needs(*_needs(page)), id=name(page))
        for page in PAGES
        if page not in ELSEWHERE and any(_actions(page))
    ],
)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path)
