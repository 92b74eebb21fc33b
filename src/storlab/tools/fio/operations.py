"""fio's logs of single operations (``--write_lat_log`` without ``log_avg_msec``), of millions of lines.

Every chunk of lines is reduced to counts in ``histogram``'s bins at once, so memory depends on the chunk and on the
length of the run in milliseconds, not on the number of operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from storlab.measurements import Measurements
from storlab.percentiles import Floats, Ints
from storlab.tools.fio import histogram
from storlab.tools.fio.blocks import Latency
from storlab.tools.fio.log_lines import DIRECTIONS, Lines, map_chunks
from storlab.tools.fio.logs import Row, series_of


@dataclass(frozen=True)
class Gaps:
    """Times without a completion, s. ``total`` and ``count`` are of those longer than the threshold."""

    longest: float
    total: float
    count: int


def read_operations(logs: Mapping[int, Path], interval: float = 1.0, jobs: Sequence[str] = ()) -> Measurements:
    """Latency histograms and series from logs of single operations, by number of their job.

    Histograms: ``d.latency``, ``latency``; series over ``interval`` s: ``d.iops``, ``d.bandwidth`` (0 where nothing
    completed), ``d.latency`` (mean). Of all jobs together, and of each where ``jobs`` names them all. Raises
    ``ParseError`` with file and line.
    """
    read = [_reduce(path, interval) for path in logs.values()]
    names: list[str | None] = [None, *(jobs if len(jobs) == len(read) else ())]
    sums = [np.concatenate([log.sums for log in read] or [_NO_SUMS], axis=1), *(log.sums for log in read)]
    series = [row for job, of_job in zip(names, sums, strict=False) for row in _series(of_job, interval, job)]
    return Measurements(series=series_of(series, interval), histograms=_histograms(read, names))


def longest_gap(logs: Iterable[Path], threshold: float, interval: float = 0.0, duration: float | None = None) -> Gaps:
    """The longest time without a completion in any job, and the sum of those longer than ``threshold`` s.

    ``logs`` are of single operations, of any kind; or averaged over ``interval`` s (bandwidth or IOPS),
    where a line says only that something completed within the interval, and gaps are known to that
    precision, never overstated. The time from the start (0) to the first completion counts, and that from
    the last to ``duration``. Each job's times are since its own start, so ``added`` is for jobs that ran one after
    another. Raises ``ParseError`` with file and line.
    """
    # Distinct milliseconds only: their number is bounded by the length of the run.
    times = [times for path in logs for times in map_chunks(path, lambda lines: np.unique(lines.time))]
    ended = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *times])) / 1000
    edges = np.concatenate([[0.0], ended, [] if duration is None else [max(duration + interval, 0.0)]])
    gaps = np.maximum(np.diff(edges) - interval, 0.0)
    if not gaps.size:
        return Gaps(0.0, 0.0, 0)
    long = gaps[gaps > threshold]
    return Gaps(float(gaps.max()), float(long.sum()), int(long.size))


def added(gaps: Sequence[Gaps]) -> Gaps:
    longest, total, count = ([getattr(each, name) for each in gaps] for name in ("longest", "total", "count"))
    return Gaps(max(longest, default=0.0), sum(total), sum(count))


_WAYS = len(DIRECTIONS)
_OF = (*(f"{name}.latency" for name in DIRECTIONS), "latency")  # the last: of all directions


@dataclass(frozen=True)
class _Log:
    """What is kept of a log, or of a chunk of it: counts by direction and bin, and sums.

    ``sums``: rows of cell, direction, operations, values and sizes, added up over runs of lines of one cell.
    """

    counts: Ints
    sums: Floats


_NO_SUMS = np.empty((5, 0))


def _reduce(path: Path, interval: float) -> _Log:
    counts = np.zeros((_WAYS, histogram.BINS), dtype=np.int64)
    sums = [_NO_SUMS]
    for part in map_chunks(path, lambda lines: _reduce_chunk(lines, interval)):
        counts += part.counts
        sums.append(part.sums)
    return _Log(counts, np.concatenate(sums, axis=1))


def _reduce_chunk(lines: Lines, interval: float) -> _Log:
    counts = np.zeros((_WAYS, histogram.BINS), dtype=np.int64)
    sums = [_NO_SUMS]
    cell = (lines.time / (interval * 1000)).astype(np.int64)
    for way in np.flatnonzero(np.bincount(lines.direction)):
        mine = np.flatnonzero(lines.direction == way)
        value, size, cells = (column.take(mine) for column in (lines.value, lines.size, cell))
        counts[way] = np.bincount(histogram.bin_index(value), minlength=histogram.BINS)
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        # As floats, sums are exact up to 2^53: a hundred days of ns in one cell.
        added = (np.add.reduceat(column, starts, dtype=np.float64) for column in (value, size))
        sums.append(np.array([cells[starts], np.full(starts.size, way), np.diff(starts, append=cells.size), *added]))
    return _Log(counts, np.concatenate(sums, axis=1))


def _histograms(read: Sequence[_Log], names: Sequence[str | None]) -> pl.DataFrame:
    each = np.array([log.counts for log in read], dtype=np.int64).reshape(-1, _WAYS, histogram.BINS)
    owned = np.concatenate([each.sum(axis=0, keepdims=True), each])[: len(names)]
    counts = np.concatenate([owned, owned.sum(axis=1, keepdims=True)], axis=1)
    owner, of, bins = np.nonzero(counts)
    return pl.DataFrame(
        [
            pl.Series("job", [names[number] for number in owner.tolist()], pl.String),
            pl.Series("metric", [_OF[number] for number in of.tolist()], pl.String),
            pl.Series("lower", histogram.LOWER[bins]),
            pl.Series("upper", histogram.UPPER[bins]),
            pl.Series("count", counts[owner, of, bins]),
        ]
    )


def _series(sums: Floats, interval: float, job: str | None) -> Iterator[Row]:
    cells = int(sums[0].max(initial=-1)) + 1
    grid = np.arange(cells) + 1
    for way in np.flatnonzero(np.bincount(sums[1].astype(np.int64), sums[2], _WAYS)):
        mine = sums[:, sums[1] == way]
        ios, value, size = (np.bincount(mine[0].astype(np.int64), added, cells) for added in mine[2:])
        some = ios > 0
        yield Row(job, f"{DIRECTIONS[way]}.bandwidth", "B/s", grid, size / interval)
        yield Row(job, f"{DIRECTIONS[way]}.iops", "1/s", grid, ios / interval)
        yield Row(job, f"{DIRECTIONS[way]}.latency", "s", grid[some], value[some] / ios[some] / 1e9)


# What fio did in slices: its log of every operation, cut at the turns in which it ran.
#
# Between its turns fio is held (``run.slices``), so the clock of its own rates goes on while it does nothing. An
# operation that was in flight then is completed when fio works again: how long it took says nothing of the disk. It
# began before the turn in which it was completed, by which it is recognised, and is left out, of latencies and of
# rates. In a slice, there are at most as many of them as the queue is deep.
#
# The log (HOWTO, "Log File Formats") has whole milliseconds, rounded down, of the clock
# ``log_alternate_epoch_clock_id``: here CLOCK_MONOTONIC, as are the turns.

FOREVER = 1 << 50
"""ms; of the machine's clock, which may have run for years."""
_ROUNDED = 2.0  # ms: what a log's time may be off; far less than lies between two turns of one load


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
        n = int(self.ios[:, way].sum())
        if not n:
            return Latency(0, 0, 0.0, 0)
        found = np.flatnonzero(self.counts[way])
        bins = {str(histogram.VALUE_NS[at]): int(self.counts[way, at]) for at in found}
        return Latency(int(self._least[way]), int(self._most[way]), float(self._total[way] / n), n, {}, bins)

    def add(self, part: _Placed) -> None:
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
