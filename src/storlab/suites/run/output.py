"""What a script prints, on this machine's disk as it comes; and the folders that it leaves, such as what it measured.

What is in these is a stranger's: how much is kept has bounds, and no name leads out of the folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from storlab.base.errors import TooMuch
from storlab.nodes.agent import steps
from storlab.nodes.answers import files_below
from storlab.nodes.node import Node
from storlab.suites.adapters.base import Launch
from storlab.suites.zts_text import log_line

MOST = 64 * 1024**2  # bytes of one stream that are kept
_LONGEST = 64 * 1024  # bytes of a line; a longer one is several
_STAMP = 12  # bytes before a line in `log`


class ScriptOutput:
    """``stdout`` and ``stderr`` as they were printed, and ``log`` with the lines of both and when each came."""

    def __init__(self, folder: Path, printed: Callable[[bytes], None] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():  # by a try that has no result, for the run was interrupted meanwhile
            if left.is_file():
                left.unlink()
        self._folder, self._printed = folder, printed
        self._files: dict[str, BinaryIO] = {}
        self._unfinished = {"stdout": b"", "stderr": b""}
        self._kept = {"stdout": 0, "stderr": 0}
        self.dropped = 0
        self.last: float | None = None
        """When something came last, on the node's monotonic clock."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, rest in self._unfinished.items():
            if rest:  # a last line without its end is a line
                self._log(rest)
            self._unfinished[name] = b""
        both = {"stdout", "stderr"} <= self._files.keys()
        for file in self._files.values():
            file.close()
        if both:
            with (self._folder / "log").open("rb") as log, (self._folder / "merged").open("wb") as merged:
                merged.writelines(line[_STAMP:] for line in log)

    def listener(self, stream: str) -> Callable[[bytes, float], None]:
        def take(data: bytes, at: float) -> None:
            self.last = at
            if self._printed is not None:
                self._printed(data)
            room = max(MOST - self._kept[stream], 0)
            self.dropped += max(len(data) - room, 0)
            self._take(stream, data[:room])

        return take

    def _take(self, stream: str, data: bytes) -> None:
        if not data:
            return
        self._kept[stream] += len(data)
        self._file(stream).write(data)
        *lines, rest = (self._unfinished[stream] + data).split(b"\n")
        for line in lines:
            self._log(line)
        while len(rest) > _LONGEST:
            self._log(rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._unfinished[stream] = rest

    def _log(self, line: bytes) -> None:
        self._file("log").write(log_line(datetime.now(), line))

    def _file(self, name: str) -> BinaryIO:
        if name not in self._files:
            self._files[name] = (self._folder / name).open("wb", buffering=0 if name != "log" else -1)
        return self._files[name]


_MOST = 256 * 1024**2  # bytes of all folders of one script
_MOST_FILES = 4096
_KEPT_FOLDERS_LONGEST = 255  # bytes of a name in it, as file systems have it
_DEEPEST = 1024  # bytes of a path in it: here, more comes before it


@dataclass(frozen=True)
class KeptFolder:
    """``files``: name → bytes of what was kept; ``dropped``: bytes of what was not."""

    name: str
    files: dict[str, int]
    dropped: int = 0

    def has(self, pattern: str) -> bool:
        return any(size and fnmatchcase(name.rpartition("/")[2], pattern) for name, size in self.files.items())


async def keep_folders(node: Node, launch: Launch, into: Path) -> Sequence[KeptFolder]:
    if not launch.folders:
        return ()
    (listed,) = await node.carry_out(steps.names(launch.cwd), go_on=True)
    patterns = launch.folders
    names = [name for name in listed.entries if _is_plain(name) and any(fnmatchcase(name, each) for each in patterns)]
    looked = await node.carry_out(*(steps.look(f"{launch.cwd}/{name}") for name in names), go_on=True) if names else []
    # A link may lead anywhere, and on this machine tests of other users than root may have made it.
    folders = [name for name, each in zip(names, looked, strict=True) if each.result.kind == "directory"]
    kept: list[KeptFolder] = []
    room = _MOST
    for name in sorted(folders):
        folder = await _keep(node, f"{launch.cwd}/{name}", into / name, room)
        room -= sum(folder.files.values())
        kept.append(folder)
    return kept


async def _keep(node: Node, source: str, target: Path, room: int) -> KeptFolder:
    shutil.rmtree(target, ignore_errors=True)  # of a try that has no result
    files: dict[str, int] = {}
    dropped = 0
    try:
        there = await files_below(node, source)
    except FileNotFoundError:  # something still works in it
        return KeptFolder(target.name, files)
    # The small ones first: of much that was recorded, what was measured is the least.
    for path, size in sorted(there, key=lambda file: (file[1], file[0])):
        if size > room or len(files) >= _MOST_FILES or not is_plain_path(path):
            dropped += size
            continue
        try:
            data = await node.read(f"{source}/{path}", room)
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(data)
        # Something still writes into it, or it says of one name that it is both a file and a folder.
        except (FileNotFoundError, TooMuch, FileExistsError, IsADirectoryError, NotADirectoryError):
            dropped += size
            continue
        files[path], room = len(data), room - len(data)
    await node.run(["rm", "--recursive", "--force", "--", source], check=False)
    return KeptFolder(target.name, files, dropped)


def is_plain_path(path: str) -> bool:
    """Whether a path leads to a file below where it begins, and can be one here."""
    return len(path.encode(errors="replace")) <= _DEEPEST and all(map(_is_plain, path.split("/")))


def _is_plain(name: str) -> bool:
    known = name not in ("", ".", "..") and "/" not in name and name.isprintable()
    return known and len(name.encode(errors="replace")) <= _KEPT_FOLDERS_LONGEST
