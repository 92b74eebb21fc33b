"""What a server prints, a line each with its time, in the run's records; the last lines stay at hand."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from storlab.nodes.process import Exit

_LINES = 20
_LONGEST = 64 * 1024  # bytes of a line; more is cut into several


class ServerLog:
    """Takes output as it comes, and writes each line as it ends: seconds on the node's monotonic clock, and the text.

    A line's time is that of its first byte. Without a path, only the last lines are kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("ab", buffering=0)  # whole, should Storlab be killed
        self._last: deque[str] = deque(maxlen=_LINES)
        self._begun, self._at = b"", 0.0

    def take(self, payload: bytes, at: float) -> None:
        if len(self._begun) > _LONGEST:
            payload = b"\n" + payload
        *ended, rest = (self._begun + payload).split(b"\n")
        times = [self._at if self._begun else at, *(at for _ in ended)]
        self._write(list(zip(times, ended, strict=False)))
        self._begun, self._at = rest, times[len(ended)]

    def close(self, _: Exit | None = None) -> None:
        if self._begun:
            self._write([(self._at, self._begun)])
            self._begun = b""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def lines(self) -> list[str]:
        """The last lines, without their times."""
        begun = [self._begun.decode(errors="replace")] if self._begun else []
        return [line for line in (*self._last, *begun) if line.strip()] or ["no output"]

    @property
    def tail(self) -> str:
        return "\n".join(self.lines)

    def _write(self, lines: list[tuple[float, bytes]]) -> None:
        self._last.extend(line.decode(errors="replace").rstrip("\r") for _, line in lines)
        if self._file is not None and lines:
            self._file.write(b"".join(b"%.6f %s\n" % (at, line) for at, line in lines))
