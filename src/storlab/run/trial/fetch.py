"""Copying what a command left on its node, and how it ended, into the run's records.

Names and sizes are what the node says, and a guest may say anything: each name is checked component by component, and
opened below the folder that it belongs to without following links. What one load and one trial may bring is bounded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from storlab.base.errors import NodeError, TooMuch
from storlab.base.limits import FETCHED, FILE, FILES
from storlab.base.units import size_text
from storlab.nodes.agent import steps
from storlab.nodes.answers import files_below
from storlab.nodes.node import Exit, Node
from storlab.nodes.raw_folders import make_raw_folder
from storlab.workloads.base import NAME, exit_bytes

_OURS = (NAME, "stdout", "stderr")  # files that are written beside those of the node
_DEEPEST = 16  # components of a name
_LONGEST = 255  # bytes of a component, NAME_MAX of Linux
_SMALL = 64 * 1024  # bytes of a file, of which
_AT_A_TIME = 12  # are fetched in one request
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Allowance:
    """What a trial may still bring. One for all of its loads."""

    files: int = FILES
    size: int = FETCHED

    def take_file(self, node: Node) -> None:
        """One more file. Raises ``TooMuch``."""
        self.files -= 1
        if self.files < 0:
            raise TooMuch(f"node {node.name}: its loads left more than the {FILES} files that a trial may bring")

    def take(self, node: Node, size: int) -> None:
        """So many more bytes. Raises ``TooMuch``."""
        self.size -= size
        if self.size < 0:
            largest = size_text(FETCHED)
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

    Raises ``TooMuch`` beyond the allowance, and ``NodeError`` if the node names what can be no file of a folder.
    """
    make_raw_folder(into)
    small: list[_File] = []
    for path, size in await files_below(node, folder):
        names = path.split("/")
        if not _are_below(names):
            raise NodeError(f"node {node.name}: it says that {folder} holds {path[:80]!r}, which can be no file there")
        file = _File(folder, path, names, size)
        if size > _SMALL:
            allowance.take_file(node)
            await _fetch(node, file, into, allowance)
            continue
        small.append(file)
        if len(small) == _AT_A_TIME:
            await _fetch_small(node, small, into, allowance)
            small = []
    await _fetch_small(node, small, into, allowance)


def _are_below(names: Sequence[str]) -> bool:
    """Whether these are components that lead to a file below a folder, and nowhere else."""
    plain = all(name not in ("", ".", "..") and len(os.fsencode(name)) <= _LONGEST for name in names)
    return plain and 0 < len(names) <= _DEEPEST and (len(names) == 1 or names[0] not in _OURS)


@dataclass(frozen=True)
class _File:
    """One of a folder of the node, by its path from there on, and the components of that."""

    folder: str
    path: str
    names: Sequence[str]
    size: int

    @property
    def whole(self) -> str:
        return f"{self.folder}/{self.path}"

    def twice(self, node: Node) -> NodeError:
        return NodeError(f"node {node.name}: it says that {self.folder} holds {self.path[:80]!r} twice")


async def _fetch_small(node: Node, files: Sequence[_File], into: Path, allowance: Allowance) -> None:
    """Several in one request; what has grown beyond that meanwhile is fetched by itself."""
    if not files:
        return
    done = await node.carry_out(*(steps.read(file.whole, _SMALL + 1) for file in files), go_on=True)
    for file, each in zip(files, done, strict=True):
        allowance.take_file(node)
        if each.result.errno == "EFBIG" or len(each.contents) > _SMALL:
            await _fetch(node, file, into, allowance)
        elif not each.missing:  # it was a passing one
            allowance.take(node, len(each.check(node.name).contents))
            with _made(node, file, into) as (written, _):
                _write(written, each.contents)


async def _fetch(node: Node, file: _File, into: Path, allowance: Allowance) -> None:
    if file.size > FILE:
        note = f"{file.size} bytes: longer than {FILE}\n"
        with _made(node, file, into, f"{file.names[-1][: _LONGEST - 16]}.left-out") as (written, _):
            os.write(written, note.encode())
        return
    with _made(node, file, into) as (written, at):
        try:
            async with aclosing(node.pieces(file.whole, FILE)) as pieces:
                async for piece in pieces:
                    allowance.take(node, len(piece))
                    _write(written, piece)
        except FileNotFoundError:  # it was a passing one
            os.unlink(file.names[-1], dir_fd=at)


@contextmanager
def _made(node: Node, file: _File, into: Path, name: str = "") -> Iterator[tuple[int, int]]:
    """Descriptors of the new file for it, and of the folder of that. Raises ``NodeError`` if there is one."""
    try:
        with _folder_of(into, file.names) as at, _new_file(name or file.names[-1], at) as written:
            yield written, at
    except (FileExistsError, NotADirectoryError):
        raise file.twice(node) from None


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
    make_raw_folder(raw)
    (raw / NAME).write_bytes(exit_bytes(ended))
    for name, output in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        if output:
            (raw / name).write_bytes(output)
    if not (raw / "stdout").exists():
        (raw / "stdout").touch()
