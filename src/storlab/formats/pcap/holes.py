"""Bytes of a stream that a capture lacks: holes between the numbers of its segments, as long as nothing fills them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

_MOST = 1024  # that are still open; what is older stays one for good
_REORDERED = 3_000_000  # ns: what fills a hole sooner was only overtaken


@dataclass
class Holes:
    """Of one direction of a connection. Places are bytes since the first that was seen."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    closed: int = 0

    @property
    def missing(self) -> int:
        """Bytes in all holes."""
        return self.closed + sum(self.ends) - sum(self.begins)

    def open(self, begin: int, end: int, time: int) -> None:
        """A segment came, at ``time`` in ns, that begins at ``end``, where ``begin`` was due."""
        self.begins.append(begin)
        self.ends.append(end)
        self.times.append(time)
        if len(self.begins) > _MOST:
            self.closed += self.ends.pop(0) - self.begins.pop(0)
            self.times.pop(0)

    def fill(self, begin: int, end: int, time: int) -> bool:
        """A segment came that is older than the newest. Whether it was merely overtaken: nothing was sent again."""
        at = max(bisect_right(self.begins, begin) - 1, 0)
        overtaken = False
        while at < len(self.begins) and self.begins[at] < end:
            low, high, since = self.begins[at], self.ends[at], self.times[at]
            if high <= begin:
                at += 1
                continue
            overtaken = overtaken or time - since < _REORDERED
            left = [(low, begin)] if low < begin else []
            right = [(end, high)] if end < high else []
            pieces = left + right
            self.begins[at : at + 1] = [piece[0] for piece in pieces]
            self.ends[at : at + 1] = [piece[1] for piece in pieces]
            self.times[at : at + 1] = [since] * len(pieces)
            at += len(pieces)
        return overtaken
