"""What a script prints, on this machine's disk as it comes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from storlab.suites.texts.zts import log_line

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
            _merge(self._folder)

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


def _merge(folder: Path) -> None:
    with (folder / "log").open("rb") as log, (folder / "merged").open("wb") as merged:
        for line in log:
            merged.write(line[_STAMP:])
