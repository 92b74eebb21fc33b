"""The commands in the documentation, run in order, page by page, in a folder of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .pages import EXAMPLES, PAGES, Block, blocks, name, need_image, storlab

ACTIONS = ("run", "saved", "edit", "mistake", "output")
USER_MISTAKE = 2


def _actions(page: Path) -> Iterator[Block]:
    return (block for block in blocks(page) if block.about.split(" ")[0] in ACTIONS)


@dataclass
class Reader:
    """Somebody who does what a page says."""

    folder: Path
    printed: str = ""

    def follow(self, block: Block) -> None:
        action, _, file = block.about.partition(" ")
        if (action, file) == ("run", "guests"):
            need_image()
        if action == "saved":
            (self.folder / file).write_text(block.text)
        elif action == "edit":
            self.edit(self.folder / file, block)
        elif action == "output":
            self.compare(block)
        else:
            self.printed = ""
            for line in block.text.splitlines():
                if line.startswith("$ "):
                    self.command(shlex.split(line[2:], comments=True), 0 if action == "run" else USER_MISTAKE, block)

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

    def compare(self, block: Block) -> None:
        lines = [line.rstrip() for line in self.printed.splitlines()]
        for line in block.text.splitlines():
            pattern = re.escape(line.rstrip()).replace("…", ".*")
            assert any(re.fullmatch(pattern, said) for said in lines), f"{block}: not printed: {line}\n{self.printed}"


@pytest.mark.skipif(os.geteuid() != 0, reason="some commands put up loop devices, which needs root")
@pytest.mark.parametrize("page", [page for page in PAGES if any(_actions(page))], ids=name)
def test_the_commands_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    reader = Reader(tmp_path)
    for block in _actions(page):
        reader.follow(block)
