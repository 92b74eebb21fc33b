"""Copying what a command left on its node, and how it ended, into the run's records.

Names and sizes are what the node says, and a guest may say anything: each name is checked component by component, and
opened below the folder that it belongs to without following links. What one load and one trial may bring is bounded.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.errors import NodeError, TooMuch
from storlab.nodes.node import Exit, Node
from storlab.units import size_text
from storlab.workloads.base import NAME, exit_bytes

MAX_FILE = 1024**3  # bytes; larger ones are left out, with a note in their place
MAX_FETCHED = 8 * 1024**3  # bytes of a trial
MAX_FILES = 10_000  # of a trial
_OURS = (NAME, "stdout", "stderr")  # files that are written beside those of the node
_DEEPEST = 16  # components of a name
_LONGEST = 255  # bytes of a component, NAME_MAX of Linux
_ENTRY = re.compile(r"(\d{1,18}) (.+)", re.DOTALL)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Allowance:
    """What a trial may still bring. One for all of its loads."""

    files: int = MAX_FILES
    size: int = MAX_FETCHED

    def take_file(self, node: Node) -> None:
        """One more file. Raises ``TooMuch``."""
        self.files -= 1
        if self.files < 0:
            raise TooMuch(f"node {node.name}: its loads left more than the {MAX_FILES} files that a trial may bring")

    def take(self, node: Node, size: int) -> None:
        """So many more bytes. Raises ``TooMuch``."""
        self.size -= size
        if self.size < 0:
            largest = size_text(MAX_FETCHED)
            raise TooMuch(f"node {node.name}: its loads left more than the {largest} of files that a trial may bring")


def forget_attempt(folder: Path) -> None:
    """Remove what an earlier attempt of a trial, which was stopped half-way, left in the trial's folder."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


async def fetch_folder(node: Node, folder: str, into: Path, allowance: Allowance) -> None:
    """Copy every regular file of a folder on the node, flat or not, into ``into``, where none of them is yet.

    Raises ``TooMuch`` beyond the allowance, and ``NodeError`` where the node names what can be no file of a folder.
    """
    into.mkdir(parents=True, exist_ok=True)
    listing = await node.output("find", folder, "-type", "f", "-printf", "%s %P\\0")
    for entry in filter(None, listing.split("\0")):
        found = _ENTRY.fullmatch(entry)
        names = found[2].split("/") if found else []
        if found is None or not _are_below(names):
            raise NodeError(f"node {node.name}: it says that {folder} holds {entry[:80]!r}, which can be no file there")
        allowance.take_file(node)
        try:
            await _fetch(node, folder, names, int(found[1]), into, allowance)
        except (FileExistsError, NotADirectoryError):
            raise NodeError(f"node {node.name}: it says that {folder} holds {found[2][:80]!r} twice") from None


def _are_below(names: Sequence[str]) -> bool:
    """Whether these are components that lead to a file below a folder, and nowhere else."""
    plain = all(name not in ("", ".", "..") and len(os.fsencode(name)) <= _LONGEST for name in names)
    return plain and 0 < len(names) <= _DEEPEST and (len(names) == 1 or names[0] not in _OURS)


async def _fetch(node: Node, folder: str, names: Sequence[str], size: int, into: Path, allowance: Allowance) -> None:
    with _folder_of(into, names) as at:
        if size > MAX_FILE:
            note = f"{size} bytes: longer than {MAX_FILE}\n"
            with _new_file(f"{names[-1][: _LONGEST - 16]}.left-out", at) as file:
                os.write(file, note.encode())
            return
        with _new_file(names[-1], at) as file:
            try:
                async with aclosing(node.pieces(f"{folder}/{'/'.join(names)}", MAX_FILE)) as pieces:
                    async for piece in pieces:
                        allowance.take(node, len(piece))
                        _write(file, piece)
            except FileNotFoundError:  # it was a passing one
                os.unlink(names[-1], dir_fd=at)


@contextmanager
def _folder_of(root: Path, names: Sequence[str]) -> Iterator[int]:
    """A descriptor of the folder that a file goes into; made as far as it is missing, and never behind a link."""
    at = os.open(root, _FOLDER)
    try:
        for name in names[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=at)
            below = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


@contextmanager
def _new_file(name: str, folder: int) -> Iterator[int]:
    file = os.open(name, _NEW_FILE, 0o644, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def keep_exit(raw: Path, ended: Exit) -> None:
    """Write ``exit.json``, ``stdout`` and ``stderr`` beside what was fetched."""
    raw.mkdir(parents=True, exist_ok=True)
    (raw / NAME).write_bytes(exit_bytes(ended))
    for name, output in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        if output:
            (raw / name).write_bytes(output)
    if not (raw / "stdout").exists():
        (raw / "stdout").touch()
