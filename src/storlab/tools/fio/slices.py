"""What fio did in slices: its log of every operation, cut at the turns in which it ran.

Between its turns fio is held (``run.slices``), so the clock of its own rates goes on while it does nothing. An
operation that was in flight then is completed when fio works again: how long it took says nothing of the disk. It began
before the turn in which it was completed, by which it is recognised, and is left out, of latencies and of rates. In a
slice, there are at most as many of them as the queue is deep.

The log (HOWTO, "Log File Formats") has whole milliseconds, rounded down, of the clock ``log_alternate_epoch_clock_id``:
here CLOCK_MONOTONIC, as are the turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from storlab.percentiles import Floats, Ints
from storlab.tools.fio import histogram
from storlab.tools.fio.blocks import Latency
from storlab.tools.fio.log_lines import DIRECTIONS, Lines, map_chunks

FOREVER = 1 << 50
"""ms; of the machine's clock, which may have run for years."""
_ROUNDED = 2.0  # ms: what a log's time may be off; far less than lies between two turns of one load
_WAYS = len(DIRECTIONS)


class Cut:
    """Operations of one job that began and ended within a turn, by direction; ``straddling`` did not.

    ``outside``: completed while the job should have been held. ``ios`` and ``bytes`` have a row for each turn and a
    column for each direction; ``counts`` a row for each direction and a column for each bin of latency. ``lines``: of
    the whole log, with what came before the first turn.
    """

    def __init__(self, turns: int) -> None:
        self.ios, self.bytes = np.zeros((turns, _WAYS), np.int64), np.zeros((turns, _WAYS), np.int64)
        self.counts = np.zeros((_WAYS, histogram.BINS), np.int64)
        self._least, self._most = np.full(_WAYS, np.iinfo(np.int64).max), np.zeros(_WAYS, np.int64)  # ns
        self._total = np.zeros(_WAYS)
        self.straddling = self.outside = self.lines = 0

    def latency(self, way: int) -> Latency:
        """Of all operations in one direction."""
        n = int(self.ios[:, way].sum())
        if not n:
            return Latency(0, 0, 0.0, 0)
        found = np.flatnonzero(self.counts[way])
        bins = {str(histogram.VALUE_NS[at]): int(self.counts[way, at]) for at in found}
        return Latency(int(self._least[way]), int(self._most[way]), float(self._total[way] / n), n, {}, bins)

    def add(self, part: _Placed) -> None:
        """The next chunk of the log."""
        self.lines += part.turn.size
        self.straddling += int(np.count_nonzero(part.turn == -3))
        self.outside += int(np.count_nonzero(part.turn == -2))
        for way in range(_WAYS):
            mine = (part.turn >= 0) & (part.lines.direction == way)
            if not mine.any():
                continue
            value, turn = part.lines.value[mine], part.turn[mine]
            np.add.at(self.ios[:, way], turn, 1)
            np.add.at(self.bytes[:, way], turn, part.lines.size[mine])
            self.counts[way] += np.bincount(histogram.bin_index(value), minlength=histogram.BINS)
            self._least[way] = min(self._least[way], value.min())
            self._most[way] = max(self._most[way], value.max())
            self._total[way] += float(value.sum())


def cut(path: Path, turns: Sequence[tuple[float, float]]) -> Cut:
    """The log of one job, by its turns: from and to, in s on the log's clock, in order.

    Raises ``ParseError`` with file and line.
    """
    begins, ends = (np.array(edge) * 1000 for edge in zip(*turns, strict=True))
    found = Cut(len(turns))
    for part in map_chunks(path, lambda lines: _Placed.of(lines, begins, ends), longest=FOREVER):
        found.add(part)
    return found


@dataclass(frozen=True)
class _Placed:
    """A chunk, and each line's turn; -1: before the first or after the last, -2: between two, -3: it straddles."""

    lines: Lines
    turn: Ints

    @classmethod
    def of(cls, lines: Lines, begins: Floats, ends: Floats) -> _Placed:
        turn = np.searchsorted(begins - _ROUNDED, lines.time, side="right") - 1
        there = np.maximum(turn, 0)
        inside = lines.time <= ends[there] + _ROUNDED
        straddles = lines.time + 1 - lines.value / 1e6 < begins[there] - _ROUNDED
        placed = np.where(inside, np.where(straddles, -3, turn), -2)
        over = (turn == begins.size - 1) & ~inside
        return cls(lines, np.where((turn < 0) | over, -1, placed))
