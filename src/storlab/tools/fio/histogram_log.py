"""fio's histogram logs (``--write_hist_log`` with ``log_hist_msec``): latencies over time, and not only their means.

A line is ``time ms, direction, block size, count, count, …``: of how many operations of this direction, since its line
before, the completion latency lay in which bin (HOWTO, "Log File Formats"; fio 3.33, ``iolog.c``,
``flush_hist_samples``). ``log_hist_coarseness=C`` adds up 2^C neighbouring bins of ``formats.fio.histogram``, so
the number of counts says it. What ended after a job's last line is in none: up to an interval's operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from storlab.errors import ParseError
from storlab.measurements import HISTOGRAM_COLUMNS, SERIES_COLUMNS, Measurements, empty, merge_histograms
from storlab.metrics import percentile_name
from storlab.percentiles import Ints, edges_at
from storlab.tools.fio.histogram import BINS, LOWER, UPPER
from storlab.tools.fio.log_lines import DIRECTIONS, LONGEST, lines_before, table, texts
from storlab.tools.fio.phases import AT_ONCE, Phases

OVER_TIME = (50.0, 99.0)
"""The percentiles of which there are series."""

PACKED_HISTOGRAMS = "hold addresses in place of counts, as fio writes them with log_store_compressed (run it without)"
"""Source: fio, ``iolog.c`` (``gz_work``), which packs samples as they are in memory."""

_CHUNK = 1 << 19  # bytes: about 90 lines of all bins
_BEFORE = 3  # fields ahead of the counts
_COARSEST = 6
_WIDTHS = {_BEFORE + (BINS >> coarseness): coarseness for coarseness in range(_COARSEST + 1)}
_MOST_CELLS = LONGEST + 1
_MOST = 1 << 48  # of a count: what is more is a difference of counters that started again
_LINE = re.compile(rb" ?(?P<time>\d{1,18}), ?[012], ?\d{1,18}(, ?\d{1,15})+")


def read_histogram_logs(
    logs: Mapping[int, Path], interval: float, jobs: Sequence[str] = (), phases: Phases = AT_ONCE
) -> Measurements:
    """Series and histograms from logs by number of their job, with lines every ``interval`` s (``log_hist_msec``).

    Series: ``d.latency.p50`` and ``d.latency.p99``, ``t`` the end of the interval, none where nothing completed;
    ``phases`` that ran one after another do so in ``t``, too.
    Histograms: ``d.latency`` and ``latency``, over all of the time. Of all jobs together, and of each where ``jobs``
    names them all. A warning says how exact they are where bins were added up.

    Raises ``ParseError`` with file and line.
    """
    lengths = phases.intervals(interval)
    begins = (np.cumsum(lengths) - lengths).tolist()
    read = [_read(path, interval, begins[phases.of_log(number)]) for number, path in logs.items()]
    named = dict(zip(jobs, read, strict=True)) if len(jobs) == len(read) else {}
    owners: list[tuple[str | None, pl.DataFrame]] = [(None, pl.concat([_NOTHING, *(counts for counts, _ in read)]))]
    owners += [(job, counts) for job, (counts, _) in named.items() if len(read) > 1]
    series, histograms = [empty(SERIES_COLUMNS)], [empty(HISTOGRAM_COLUMNS)]
    for job, counts in owners:
        series += _series(counts, interval, job)
        histograms += _histograms(counts, job)
    if len(read) == 1:  # what is of all jobs is of this one
        for frames in (series, histograms):
            frames += [frame.with_columns(job=pl.lit(job)) for job in named for frame in list(frames)]
    coarsest = max((coarseness for _, coarseness in read), default=0)
    return Measurements(series=pl.concat(series), histograms=pl.concat(histograms), warnings=_warnings(coarsest))


def with_histogram_logs(measured: Measurements, logs: Measurements) -> Measurements:
    """``measured`` with what its histogram logs add: series; and histograms, where it has none."""
    histograms, warnings = measured.histograms, [*measured.warnings, *logs.warnings]
    if histograms.is_empty() and not logs.histograms.is_empty():
        histograms = logs.histograms
        counted = int(histograms.filter(pl.col("job").is_null(), metric="latency")["count"].sum())
        ios = int(measured.metrics.filter(pl.col("job").is_null(), metric="ios")["value"].sum())
        if counted < ios:
            warnings.append(
                f"its histogram of latencies lacks {ios - counted} of {ios} operations, "
                "which ended after the last line of its histogram log"
            )
    series = pl.concat([measured.series, logs.series])
    return replace(measured, series=series, histograms=histograms, warnings=tuple(warnings))


_NOTHING = pl.DataFrame(
    schema={"direction": pl.Int64, "cell": pl.Int64, "lower": pl.Float64, "upper": pl.Float64, "count": pl.Int64}
)


def _warnings(coarseness: int) -> tuple[str, ...]:
    if not coarseness:
        return ()
    error = 100 * min(2**coarseness / 128, 0.5)
    return (f"percentiles over time are known to within {error:.2g} % (log_hist_coarseness={coarseness})",)


def _read(path: Path, interval: float, begin: int) -> tuple[pl.DataFrame, int]:
    """What is not 0 in a log, a row for each: ``direction, cell, lower, upper, count``; and how coarse its bins are.

    ``begin``: the cell at which it begins.
    """
    frames, coarseness = [pl.DataFrame(schema={"key": pl.Int64, "count": pl.Int64})], 0
    for text, offset in texts(path, _CHUNK):
        numbers = table(text)
        if numbers is None or not _fits(numbers):
            raise _first_wrong(text, path, offset)
        if offset and _WIDTHS[numbers.shape[1]] != coarseness:
            line = lines_before(path, offset) + 1
            raise ParseError("has another number of counts than the lines before", str(path), line)
        coarseness = _WIDTHS[numbers.shape[1]]
        frames.append(_counts(numbers, coarseness, interval))
    # By one number: with the edges as keys this would take most of the time.
    summed = pl.concat(frames).group_by("key").agg(pl.col("count").sum()).sort("key")
    place, first = np.divmod(summed["key"].to_numpy(), BINS)
    direction, cell = np.divmod(place, _MOST_CELLS)
    last = first + (1 << coarseness) - 1
    columns = {"direction": direction, "cell": cell + begin, "lower": LOWER[first], "upper": UPPER[last]}
    return pl.DataFrame({**columns, "count": summed["count"]}), coarseness


def _fits(numbers: Ints) -> bool:
    if numbers.shape[1] not in _WIDTHS or numbers[:, 0].max() > LONGEST:
        return False
    return bool(numbers[:, 1].max() < len(DIRECTIONS) and numbers[:, _BEFORE:].max() < _MOST)


def _counts(numbers: Ints, coarseness: int, interval: float) -> pl.DataFrame:
    line, bins = np.nonzero(numbers[:, _BEFORE:])
    # A line comes with the first completion after its interval, however late: rounded down, as other logs of latency.
    cell = np.maximum((numbers[:, 0] / (1000 * interval) + 0.1).astype(np.int64), 1)
    key = (numbers[line, 1] * _MOST_CELLS + cell[line]) * BINS + (bins << coarseness)
    return pl.DataFrame({"key": key, "count": numbers[line, _BEFORE + bins]})


def _series(counts: pl.DataFrame, interval: float, job: str | None) -> Iterator[pl.DataFrame]:
    for direction in sorted(counts["direction"].unique()):
        mine = counts.filter(pl.col("direction") == direction)
        rows, lower, upper, count = (mine[name].to_numpy() for name in ("cell", "lower", "upper", "count"))
        cells, low, high = edges_at(rows, lower, upper, count, OVER_TIME)
        for at, percentile in enumerate(OVER_TIME):
            width = high[:, at] - low[:, at]
            value = np.where(width < 1.5e-9, low[:, at], low[:, at] + width / 2)
            metric = f"{DIRECTIONS[direction]}.latency.{percentile_name(percentile)}"
            same = {"job": pl.lit(job, pl.String), "metric": pl.lit(metric), "unit": pl.lit("s")}
            yield pl.DataFrame({"t": cells * interval, "value": value}).with_columns(**same).select(*SERIES_COLUMNS)


def _histograms(counts: pl.DataFrame, job: str | None) -> Iterator[pl.DataFrame]:
    names = pl.col("direction").replace_strict(dict(enumerate(DIRECTIONS)), return_dtype=pl.String)
    ways = counts.with_columns(metric=names + ".latency")
    for each in (ways, ways.with_columns(metric=pl.lit("latency"))):
        merged = merge_histograms(each)
        yield merged.select(pl.lit(job, pl.String).alias("job"), *list(HISTOGRAM_COLUMNS)[1:])


def _first_wrong(text: bytes, path: Path, offset: int) -> ParseError:
    before = lines_before(path, offset)
    lines = text.splitlines()
    for number, line in enumerate(lines, start=before + 1):
        shown = line[:60].decode(errors="replace")
        found = _LINE.fullmatch(line)
        if found is None or line.count(b",") != lines[0].count(b","):
            return ParseError(f"not a line of a histogram log of fio: {shown!r}", str(path), number)
        if line.count(b",") + 1 not in _WIDTHS:
            counts = max(line.count(b",") + 1 - _BEFORE, 0)
            return ParseError(f"has {counts} counts, and no histogram log of fio 3 has so many", str(path), number)
        if int(found["time"]) > LONGEST:
            return ParseError("times are Unix time: run fio without log_unix_epoch", str(path), number)
    return ParseError("not a histogram log of fio", str(path), before + 1)
