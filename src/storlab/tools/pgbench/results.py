"""A run of pgbench, as measurements: its summary, its progress, and its logs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import polars as pl

from storlab.errors import ParseError
from storlab.measurements import SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.metrics import Value
from storlab.tools.pgbench.declared import METRICS
from storlab.tools.pgbench.log import Log, read_log
from storlab.tools.pgbench.summary import Summary, read_summaries

FACT = "transactions in the log"
"""The fact of a run of which there is no summary."""

_CUT = "it has no summary at its end: it was cut short, and figures are the means of its progress lines"


def read_pgbench(text: str, logs: Iterable[bytes], source: str) -> Measurements:
    """One run: its summary and, where there are logs, the latency of each transaction and how many ended each second.

    Raises ``ParseError``.
    """
    run = read_summaries(text, source)[-1]
    if not run.whole:
        raise ParseError("is no summary of pgbench: it lacks its transactions or its tps", source)
    return measured(run, read_log(logs))


def measured(run: Summary, log: Log | None = None) -> Measurements:
    """All of a run. Where there is a log, it knows latencies and rates better than the summary."""
    warnings = (*run.warnings, *(() if run.whole else (_CUT,)))
    values = run.values() if run.whole else _of_progress(run)
    if log is None:
        return Measurements(
            metric_frame(values), _progress(run), warnings=warnings, facts=dict(run.facts), declared=_DECLARED
        )
    better = frozenset(value.metric for value in log.values)
    return Measurements(
        metric_frame([*(value for value in values if value.job or value.metric not in better), *log.values]),
        log.series,
        log.histogram,
        (*warnings, *log.warnings),
        dict(run.facts),
        declared=_DECLARED,
    )


def measured_by_log(log: Log) -> Measurements:
    """A run of which there are only logs: how many transactions there were in the time from first to last."""
    count = log.sampled or log.count
    values = [METRICS["transactions"].value(count), *log.values]
    if log.seconds > 0:
        values.insert(0, METRICS["tps"].value(count / log.seconds))
    warnings = list(log.warnings)
    series = log.series
    if log.sampled:
        series = empty(SERIES_COLUMNS)
        warnings.append(
            f"its log is a sample, of {log.count} of {count} transactions by their own numbers: latencies are of these"
        )
    facts: dict[str, object] = {FACT: str(log.count)}
    return Measurements(metric_frame(values), series, log.histogram, tuple(warnings), facts, declared=_DECLARED)


_DECLARED = tuple(METRICS.values())


def _of_progress(run: Summary) -> list[Value]:
    """Means over time, and of latencies over transactions."""
    intervals = run.intervals() or [(1.0, tps, latency) for _, tps, latency in run.progress]
    lengths = [time - before for (time, *_), before in zip(intervals, _before(intervals), strict=True)]
    done = [tps * length for (_, tps, _), length in zip(intervals, lengths, strict=True)]
    lasted = math.fsum(lengths)
    values = [METRICS["tps"].value(math.fsum(done) / lasted)] if lasted > 0 else []
    latencies = [(latency, count) for (*_, latency), count in zip(intervals, done, strict=True) if latency is not None]
    if total := math.fsum(count for _, count in latencies):
        mean = math.fsum(latency * count for latency, count in latencies) / total
        values.append(METRICS["latency.mean"].value(mean))
    return values


def _before(intervals: Sequence[tuple[float, float, float | None]]) -> list[float]:
    return [0.0, *(time for time, *_ in intervals[:-1])]


def _progress(run: Summary) -> pl.DataFrame:
    """``SERIES_COLUMNS``: tps, then latencies."""
    intervals = run.intervals()
    if not intervals:
        return empty(SERIES_COLUMNS)
    rows: list[tuple[None, str, float, float, str]] = [(None, "tps", time, tps, "1/s") for time, tps, _ in intervals]
    rows += [(None, "latency.mean", time, latency, "s") for time, _, latency in intervals if latency is not None]
    return pl.DataFrame(rows, schema=SERIES_COLUMNS, orient="row")
