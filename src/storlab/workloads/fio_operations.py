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

from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Measurements, Value, empty, metric_frame
from storlab.workloads import histogram
from storlab.workloads.fio_latency import Latency, latency_values, merge
from storlab.workloads.fio_log_lines import DIRECTIONS, map_chunks
from storlab.workloads.histogram import Ints


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
    everyone: list[tuple[str | None, _Reduced]] = [(None, _together(read))]
    if len(jobs) == len(read):
        everyone += zip(jobs, read, strict=True)
    values: list[Value] = []
    histograms, series = [empty(HISTOGRAM_COLUMNS)], [empty(SERIES_COLUMNS)]
    for job, reduced in everyone:
        latencies = {f"{DIRECTIONS[key]}.": latency for key, latency in reduced.latencies.items() if latency.n}
        for prefix, latency in [*latencies.items(), ("", merge(latencies.values()))]:
            metric = f"{prefix}latency"
            values.append(Value(f"{prefix}ios", latency.n, "1", job=job))
            values += latency_values(latency, metric, job)
            histograms.append(_histogram(latency, job, metric))
        series += _series(reduced.intervals, interval, job)
    return Measurements(metric_frame(values), pl.concat(series), pl.concat(histograms))


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
_MOST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Reduced:
    """One job's log: latencies by direction, and sums (``ios``, ``value``, ``size``) by ``cell`` and ``direction``."""

    latencies: dict[int, Latency]
    intervals: pl.DataFrame


@dataclass(frozen=True)
class _Part:
    """What is kept of a chunk: counts by direction and bin, extremes by direction, sums by cell and direction."""

    counts: Ints
    least: Ints
    most: Ints
    sums: pl.DataFrame


def _reduce(path: Path, interval: float) -> _Reduced:
    counts = np.zeros((_WAYS, histogram.BINS), dtype=np.int64)
    least, most = np.full(_WAYS, _MOST), np.zeros(_WAYS, dtype=np.int64)
    sums = []
    for part in map_chunks(path, lambda lines: _reduce_chunk(lines, interval)):
        counts += part.counts
        np.minimum(least, part.least, out=least)
        np.maximum(most, part.most, out=most)
        sums.append(part.sums)
    intervals = _add(sums)
    totals = dict(intervals.group_by("direction").agg(pl.col("value").sum()).iter_rows())
    latencies = {}
    for way, total in totals.items():
        bins = np.flatnonzero(counts[way])
        n = int(counts[way].sum())
        latencies[way] = Latency(n, int(least[way]), int(most[way]), total / n, bins, counts[way][bins])
    return _Reduced(latencies, intervals)


def _reduce_chunk(lines: pl.DataFrame, interval: float) -> _Part:
    direction = lines["direction"].to_numpy().astype(np.int64)
    value = lines["value"].to_numpy()
    bins = histogram.bin_index(value)
    bins += direction * histogram.BINS
    counts = np.bincount(bins, minlength=_WAYS * histogram.BINS).reshape(_WAYS, histogram.BINS)
    least, most = np.full(_WAYS, _MOST), np.zeros(_WAYS, dtype=np.int64)
    for way in range(_WAYS):
        mine = direction == way
        least[way] = value.min(initial=_MOST, where=mine)
        most[way] = value.max(initial=0, where=mine)
    return _Part(counts, least, most, _sums(lines, direction, interval))


def _sums(lines: pl.DataFrame, direction: Ints, interval: float) -> pl.DataFrame:
    """Sums of one chunk. Not ``group_by``: cells are few and dense, so counting by index takes a third of the time."""
    cell = (lines["time"].to_numpy() / (interval * 1000)).astype(np.int64)
    first = int(cell.min())
    key = (cell - first) * _WAYS + direction
    ios = np.bincount(key)
    used = np.flatnonzero(ios)
    # Sums as floats are exact up to 2^53: a hundred days of ns in one chunk and cell.
    value, size = (np.bincount(key, lines[name].to_numpy())[used] for name in ("value", "size"))
    return pl.DataFrame(
        {"cell": first + used // _WAYS, "direction": used % _WAYS, "ios": ios[used], "value": value, "size": size},
        schema=_INTERVALS,
    )


_INTERVALS = {
    "cell": pl.Int64(),
    "direction": pl.Int64(),
    "ios": pl.Int64(),
    "value": pl.Float64(),
    "size": pl.Float64(),
}


def _add(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    sums = (pl.col(name).sum() for name in ("ios", "value", "size"))
    together = pl.concat([pl.DataFrame(schema=_INTERVALS), *parts])
    return together.group_by("cell", "direction").agg(sums).sort("direction", "cell")


def _together(read: Sequence[_Reduced]) -> _Reduced:
    keys = sorted({key for reduced in read for key in reduced.latencies})
    return _Reduced(
        {key: merge(reduced.latencies.get(key, Latency.none()) for reduced in read) for key in keys},
        _add([reduced.intervals for reduced in read]),
    )


def _histogram(latency: Latency, job: str | None, metric: str) -> pl.DataFrame:
    return pl.select(pl.lit(job, pl.String).alias("job"), pl.lit(metric).alias("metric")).join(
        pl.DataFrame(
            {
                "lower": histogram.LOWER[latency.bins],
                "upper": histogram.UPPER[latency.bins],
                "count": latency.counts,
            }
        ),
        how="cross",
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
