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
    """The gaps of phases that ran one after another."""
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
    """Of all logs together, then of each, if there are more ``names`` than one; in each direction, and over all."""
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
    """Series of one job, with a 0 for every interval in which nothing completed (and no latency)."""
    cells = int(sums[0].max(initial=-1)) + 1
    grid = np.arange(cells) + 1
    for way in np.flatnonzero(np.bincount(sums[1].astype(np.int64), sums[2], _WAYS)):
        mine = sums[:, sums[1] == way]
        ios, value, size = (np.bincount(mine[0].astype(np.int64), added, cells) for added in mine[2:])
        some = ios > 0
        yield Row(job, f"{DIRECTIONS[way]}.bandwidth", "B/s", grid, size / interval)
        yield Row(job, f"{DIRECTIONS[way]}.iops", "1/s", grid, ios / interval)
        yield Row(job, f"{DIRECTIONS[way]}.latency", "s", grid[some], value[some] / ios[some] / 1e9)
