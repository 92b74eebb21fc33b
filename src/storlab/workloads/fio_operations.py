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
from storlab.workloads.fio_log_lines import DIRECTIONS, chunks
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
    times = [lines["time"].unique() for path in logs for lines in chunks(path)]
    # Distinct milliseconds only: their number is bounded by the length of the run.
    ended = pl.concat([pl.Series("time", [], pl.Int64), *times]).unique().sort().to_numpy() / 1000
    edges = np.concatenate([[0.0], ended, [] if duration is None else [max(duration + interval, 0.0)]])
    gaps = np.maximum(np.diff(edges) - interval, 0.0)
    if not gaps.size:
        return Gaps(0.0, 0.0, 0.0, 0)
    at = int(gaps.argmax())
    long = gaps[gaps > threshold]
    return Gaps(float(gaps[at]), float(edges[at]), float(long.sum()), int(long.size))


_FIRST = {
    "ios": pl.len().cast(pl.Int64),
    "value": pl.col("value").sum(),
    "size": pl.col("size").sum(),
    "minimum": pl.col("value").min(),
    "maximum": pl.col("value").max(),
}
_AGAIN = {
    **{name: pl.col(name).sum() for name in ("ios", "value", "size")},
    "minimum": pl.col("minimum").min(),
    "maximum": pl.col("maximum").max(),
}
_NO_INTERVALS = pl.DataFrame(schema={"cell": pl.Int64(), "direction": pl.Int8(), **dict.fromkeys(_FIRST, pl.Int64())})


@dataclass(frozen=True)
class _Reduced:
    """One job's log: latencies by direction, and sums by ``cell`` and ``direction``."""

    latencies: dict[int, Latency]
    intervals: pl.DataFrame


def _reduce(path: Path, interval: float) -> _Reduced:
    counts = np.zeros((len(DIRECTIONS), histogram.BINS), dtype=np.int64)
    cell = (pl.col("time") / (interval * 1000)).floor().cast(pl.Int64).alias("cell")
    parts = [_NO_INTERVALS]
    for lines in chunks(path):
        counts += _count(lines)
        parts.append(lines.group_by(cell, "direction").agg(**_FIRST))
    intervals = _add(parts)
    latencies = {}
    for key, row in enumerate(counts):
        mine = intervals.filter(pl.col("direction") == key)
        if mine.height:
            latencies[key] = _latency(row, mine)
    return _Reduced(latencies, intervals)


def _count(lines: pl.DataFrame) -> Ints:
    """Operations by direction and bin."""
    key = histogram.bin_index(lines["value"].to_numpy())
    key += lines["direction"].to_numpy().astype(np.int64) * histogram.BINS
    counts = np.bincount(key, minlength=len(DIRECTIONS) * histogram.BINS)
    return counts.astype(np.int64).reshape(len(DIRECTIONS), histogram.BINS)


def _add(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(parts).group_by("cell", "direction").agg(**_AGAIN).sort("direction", "cell")


def _latency(counts: Ints, intervals: pl.DataFrame) -> Latency:
    bins = np.flatnonzero(counts)
    n = int(intervals["ios"].sum())
    return Latency(
        n=n,
        minimum=intervals.select(pl.col("minimum").min()).item(),
        maximum=intervals.select(pl.col("maximum").max()).item(),
        mean=int(intervals["value"].sum()) / n,
        bins=bins,
        counts=counts[bins],
    )


def _together(read: Sequence[_Reduced]) -> _Reduced:
    keys = sorted({key for reduced in read for key in reduced.latencies})
    return _Reduced(
        {key: merge(reduced.latencies.get(key, Latency.none()) for reduced in read) for key in keys},
        _add([_NO_INTERVALS, *(reduced.intervals for reduced in read)]),
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
