"""fio's logs of single operations (``--write_lat_log`` without ``log_avg_msec``), of millions of lines.

Every chunk of lines is reduced to counts at once, so memory depends on the chunk and on the length of the
run in milliseconds, not on the number of operations. Percentiles come from ``histogram``'s bins, to within
1/128.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Across, Measurements, Value, empty, metric_frame
from storlab.workloads import histogram
from storlab.workloads.fio_latency import STATISTICS, Latencies
from storlab.workloads.fio_log_lines import DIRECTIONS, map_chunks
from storlab.workloads.histogram import Floats, Ints


@dataclass(frozen=True)
class Gaps:
    """Times without a completion, s. ``total`` and ``count`` are of those longer than the threshold."""

    longest: float
    longest_at: float
    total: float
    count: int


def read_operations(logs: Mapping[int, Path], interval: float = 1.0, jobs: Sequence[str] = ()) -> Measurements:
    """Latency metrics, histograms and series from logs of single operations, by number of their job.

    Metrics and histograms: ``d.latency.*``, ``latency.*``, ``d.ios``, ``ios``; series over ``interval`` s:
    ``d.iops``, ``d.bandwidth`` (0 where nothing completed), ``d.latency`` (mean). Of all jobs together, and
    of each where ``jobs`` names them all. Raises ``ParseError`` with file and line.
    """
    read = [_reduce(path, interval) for path in logs.values()]
    names: list[str | None] = [None, *(jobs if len(jobs) == len(read) else ())]
    latencies = _latencies(read, len(names))
    series = [empty(SERIES_COLUMNS), *_series(_add([part for log in read for part in log.sums]), interval, None)]
    for job, log in zip(names[1:], read, strict=False):
        series += _series(_add(log.sums), interval, job)
    return Measurements(metric_frame(_values(latencies, names)), pl.concat(series), _histograms(latencies, names))


def longest_gap(logs: Iterable[Path], threshold: float, interval: float = 0.0, duration: float | None = None) -> Gaps:
    """The longest time without a completion in any job, and the sum of those longer than ``threshold`` s.

    ``logs`` are of single operations, of any kind; or averaged over ``interval`` s (bandwidth or IOPS),
    where a line says only that something completed within the interval, and gaps are known to that
    precision, never overstated. The time from the start (0) to the first completion counts, and that from
    the last to ``duration``. Raises ``ParseError`` with file and line.
    """
    times = [times for path in logs for times in map_chunks(path, lambda lines: lines["time"].unique())]
    # Distinct milliseconds only: their number is bounded by the length of the run.
    ended = pl.concat([pl.Series("time", [], pl.Int64), *times]).unique().sort().to_numpy() / 1000
    edges = np.concatenate([[0.0], ended, [] if duration is None else [max(duration + interval, 0.0)]])
    gaps = np.maximum(np.diff(edges) - interval, 0.0)
    if not gaps.size:
        return Gaps(0.0, 0.0, 0.0, 0)
    at = int(gaps.argmax())
    long = gaps[gaps > threshold]
    return Gaps(float(gaps[at]), float(edges[at]), float(long.sum()), int(long.size))


_WAYS = len(DIRECTIONS)
_OF = (*(f"{name}." for name in DIRECTIONS), "")  # what a latency is of; the last: of all directions
_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Log:
    """What is kept of a log: counts by direction and bin; extremes and totals by direction; sums by cell."""

    counts: Ints
    least: Ints
    most: Ints
    totals: Floats
    sums: list[pl.DataFrame]


def _reduce(path: Path, interval: float) -> _Log:
    log = _nothing()
    for part in map_chunks(path, lambda lines: _reduce_chunk(lines, interval)):
        np.add(log.counts, part.counts, out=log.counts)
        np.minimum(log.least, part.least, out=log.least)
        np.maximum(log.most, part.most, out=log.most)
        np.add(log.totals, part.totals, out=log.totals)
        log.sums.extend(part.sums)
    return log


def _nothing() -> _Log:
    counts = np.zeros((_WAYS, histogram.BINS), dtype=np.int64)
    return _Log(counts, np.full(_WAYS, _MOST), np.zeros(_WAYS, dtype=np.int64), np.zeros(_WAYS), [])


def _reduce_chunk(lines: pl.DataFrame, interval: float) -> _Log:
    part = _nothing()
    time, value, direction, size = (column.to_numpy() for column in lines)
    cell = (time / (interval * 1000)).astype(np.int64)
    for way in range(_WAYS):
        # compress and reduceat: a boolean index, where=, and group_by take several times as long.
        mine = direction == way
        if not mine.any():
            continue
        values, sizes, cells = (np.compress(mine, column) for column in (value, size, cell))
        part.counts[way] = np.bincount(histogram.bin_index(values), minlength=histogram.BINS)
        part.least[way], part.most[way] = values.min(), values.max()
        starts = np.flatnonzero(np.diff(cells, prepend=-1))  # of runs of lines in one cell
        # As floats, sums are exact up to 2^53: a hundred days of ns in one chunk and cell.
        sums = {
            "cell": cells[starts],
            "direction": np.full(starts.size, way),
            "ios": np.diff(starts, append=cells.size),
            "value": np.add.reduceat(values, starts, dtype=np.float64),
            "size": np.add.reduceat(sizes, starts, dtype=np.float64),
        }
        part.totals[way] = sums["value"].sum()
        part.sums.append(pl.DataFrame(sums, schema=_SUMS))
    return part


_SUMS = {"cell": pl.Int64(), "direction": pl.Int64(), "ios": pl.Int64(), "value": pl.Float64(), "size": pl.Float64()}


def _add(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Sums by cell and direction."""
    sums = (pl.col(name).sum() for name in ("ios", "value", "size"))
    together = pl.concat([pl.DataFrame(schema=_SUMS), *parts])
    return together.group_by("cell", "direction").agg(sums).sort("direction", "cell")


def _latencies(read: Sequence[_Log], owners: int) -> Latencies:
    """A row for each owner (all together, then each log, if ``owners`` are more than one) and each of ``_OF``."""
    counts = np.array([log.counts for log in read], dtype=np.int64).reshape(-1, histogram.BINS)
    n = counts.sum(axis=1)
    rows, bins = np.nonzero(counts)
    single = Latencies(
        n=n,
        minimum=np.array([log.least for log in read], dtype=np.int64).ravel(),
        maximum=np.array([log.most for log in read], dtype=np.int64).ravel(),
        mean=np.array([log.totals for log in read], dtype=np.float64).ravel() / np.maximum(n, 1),
        percentiles=np.full((n.size, len(histogram.PERCENTILES)), np.nan),
        rows=rows,
        bins=bins,
        counts=counts[rows, bins],
    )
    part = np.arange(n.size)
    log, way = np.divmod(part, _WAYS)
    of = [np.zeros_like(log)] if owners == 1 else [np.zeros_like(log), log + 1]
    into = [owner * len(_OF) + slot for owner in of for slot in (way, np.full_like(way, _WAYS))]
    return single.merged(np.tile(part, len(into)), np.concatenate(into), owners * len(_OF))


def _values(latencies: Latencies, names: Sequence[str | None]) -> Iterator[Value]:
    across: dict[str, Across] = {"min": "min", "max": "max"}
    for row, statistics in enumerate(latencies.statistics().tolist()):
        job, prefix = names[row // len(_OF)], _OF[row % len(_OF)]
        if latencies.n[row] or not prefix:
            yield Value(f"{prefix}ios", int(latencies.n[row]), "1", job=job)
        if latencies.n[row]:
            for name, value in zip(STATISTICS, statistics, strict=True):
                yield Value(f"{prefix}latency.{name}", value, "s", "lower", across.get(name, "merge"), job)


def _histograms(latencies: Latencies, names: Sequence[str | None]) -> pl.DataFrame:
    owner, of = np.divmod(latencies.rows, len(_OF))
    return pl.DataFrame(
        [
            pl.Series("job", names, pl.String).gather(owner),
            pl.Series("metric", [f"{prefix}latency" for prefix in _OF]).gather(of),
            pl.Series("lower", histogram.LOWER[latencies.bins]),
            pl.Series("upper", histogram.UPPER[latencies.bins]),
            pl.Series("count", latencies.counts),
        ],
        schema=HISTOGRAM_COLUMNS,
    )


def _series(intervals: pl.DataFrame, interval: float, job: str | None) -> Iterator[pl.DataFrame]:
    """Series of one job, with a 0 for every interval in which nothing completed (and no latency)."""
    if not intervals.height:
        return
    last = intervals.select(pl.col("cell").max()).item()
    grid = pl.DataFrame({"cell": np.arange(last + 1)})
    for key in sorted(intervals["direction"].unique()):
        mine = grid.join(intervals.filter(pl.col("direction") == key), on="cell", how="left", maintain_order="left")
        for name, unit, value in (
            ("bandwidth", "B/s", pl.col("size").fill_null(0) / interval),
            ("iops", "1/s", pl.col("ios").fill_null(0) / interval),
            ("latency", "s", pl.col("value") / pl.col("ios") / 1e9),
        ):
            yield mine.select(
                pl.lit(job, pl.String).alias("job"),
                pl.lit(f"{DIRECTIONS[key]}.{name}").alias("metric"),
                ((pl.col("cell") + 1) * interval).alias("t"),
                value.alias("value"),
                pl.lit(unit).alias("unit"),
            ).drop_nulls("value")
