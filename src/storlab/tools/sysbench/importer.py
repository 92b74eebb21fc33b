"""sysbench's text: OLTP, fileio, and tests that count events, with their intervals as series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import polars as pl

from storlab.base.text import printable
from storlab.measurements import SERIES_COLUMNS, Measurements, empty, metric_frame
from storlab.metrics import MetricSpec, Value, by_name, latencies
from storlab.tools.importer import Part, TextImporter
from storlab.tools.sysbench.blocks import Test
from storlab.tools.sysbench.text import LINES_BEGIN, SysbenchRun, read_sysbench

# What a run of sysbench measured, in base units: metrics, intervals as series, and its histogram.

_MIB = 2.0**20
_MS = 1e-3

_SERIES: dict[Test, dict[str, tuple[str, float, str]]] = {
    "oltp": {
        "tps": ("tps", 1, "1/s"),
        "qps": ("qps", 1, "1/s"),
        "read": ("read.qps", 1, "1/s"),
        "write": ("write.qps", 1, "1/s"),
        "other": ("other.qps", 1, "1/s"),
        "errors": ("errors.rate", 1, "1/s"),
        "reconnects": ("reconnects.rate", 1, "1/s"),
    },
    "fileio": {
        "bandwidth": ("bandwidth", _MIB, "B/s"),
        "read": ("read.bandwidth", _MIB, "B/s"),
        "write": ("write.bandwidth", _MIB, "B/s"),
        "fsync": ("fsync.rate", 1, "1/s"),
    },
    "events": {"eps": ("eps", 1, "1/s")},
}
"""Column of the intervals → metric, what one of it is in base units, and the unit."""

_COUNTED: dict[Test, tuple[str, str]] = {"oltp": ("qps", "queries"), "events": ("eps", "events")}
"""The rate that is a count by time, where it isn't printed."""

_PERCENTILE = MetricSpec("latency.p{percentile}", "s", "lower", "merge", of="latency", statistic="percentile")
_QUERIES = ("read", "write", "other")
_METRICS = by_name(
    [
        MetricSpec("tps", "1/s", "higher", quantity="throughput", series=True),
        MetricSpec("qps", "1/s", "higher"),
        MetricSpec("eps", "1/s", "higher", quantity="throughput", series=True),
        MetricSpec("bandwidth", "B/s", "higher", quantity="throughput", series=True),
        MetricSpec("read.bandwidth", "B/s", "higher", quantity="throughput", series=True, total="bandwidth"),
        MetricSpec("write.bandwidth", "B/s", "higher", quantity="throughput", series=True, total="bandwidth"),
        MetricSpec("iops", "1/s", "higher", quantity="throughput"),
        MetricSpec("read.iops", "1/s", "higher", quantity="throughput", total="iops"),
        MetricSpec("write.iops", "1/s", "higher", quantity="throughput", total="iops"),
        MetricSpec("fsync.rate", "1/s", "higher"),
        *(MetricSpec(name, "1") for name in ("transactions", "queries", *(f"queries.{kind}" for kind in _QUERIES))),
        MetricSpec("events", "1", quantity="operations"),
        MetricSpec("errors", "1", "lower"),
        MetricSpec("reconnects", "1", "lower"),
        *latencies("latency", "events", ()),
        _PERCENTILE,
        MetricSpec("latency.sum", "s"),
        MetricSpec("time", "s", across="max"),
        MetricSpec("threads.events.mean", "1", across="mean"),
        MetricSpec("threads.events.stddev", "1", "lower", "mean"),
        MetricSpec("threads.time.mean", "s", across="mean"),
        MetricSpec("threads.time.stddev", "s", "lower", "mean"),
    ]
)
DECLARED = tuple(_METRICS.values())
IGNORED = MetricSpec("errors.ignored", "1", "lower")
"""What ``errors`` are live, where any other error ends the trial."""
LIVE = (
    *(_METRICS[name] for name in ("tps", "qps", "transactions", "queries", *(f"queries.{kind}" for kind in _QUERIES))),
    *(_METRICS[name] for name in ("events", "reconnects", "latency.sum", "time")),
    IGNORED,
    *(spec for name, spec in _METRICS.items() if name.startswith("threads.")),
    *latencies("latency", "events"),
)
"""What the workload yields: of databases alone, and percentiles of its histogram."""
_SCALES = {
    **dict.fromkeys(("bandwidth", "read.bandwidth", "write.bandwidth"), _MIB),
    **dict.fromkeys(("latency.mean", "latency.min", "latency.max", "latency.sum", _PERCENTILE.name), _MS),
}
"""What one of sysbench's is in base units, where it isn't 1."""


def measured(run: SysbenchRun) -> Measurements:
    return Measurements(
        metrics=metric_frame(value for value in _values(run) if math.isfinite(value.value)),
        series=_series(run),
        histograms=run.histogram,
        warnings=run.warnings,
        facts=run.facts,
        declared=DECLARED,
    )


def _series(run: SysbenchRun) -> pl.DataFrame:
    rows = run.intervals
    if rows.is_empty():
        return empty(SERIES_COLUMNS)
    columns = {column: each for column, each in _SERIES[run.test].items() if column in (*rows.columns, "bandwidth")}
    if run.test == "fileio":
        idle = [name for name in ("read", "write", "fsync") if not (rows[name] > 0).any()]
        rows = rows.with_columns(bandwidth=pl.col("read") + pl.col("write"))
        columns = {column: each for column, each in columns.items() if column not in idle}
    if run.percentile is not None:
        columns["latency"] = (f"latency.p{run.percentile}", _MS, "s")
    which = pl.Series(np.repeat(np.arange(len(columns), dtype=np.uint32), rows.height))
    metrics, factors, units = zip(*columns.values(), strict=True)
    return pl.DataFrame(
        {
            "job": pl.Series([None], dtype=pl.String).new_from_index(0, len(which)),
            "metric": pl.Series(metrics)[which],
            "t": pl.concat([rows["t"]] * len(columns)),
            "value": pl.concat(rows[column] * factor for column, factor in zip(columns, factors, strict=True)),
            "unit": pl.Series(units)[which],
        }
    )


def _values(run: SysbenchRun) -> Iterator[Value]:
    numbers = _numbers(run)
    percentile = {"percentile": str(run.percentile)}
    for name, spec in _METRICS.items():
        if name in numbers:
            yield spec.value(numbers[name] * _SCALES.get(name, 1), **(percentile if spec is _PERCENTILE else {}))


def _numbers(run: SysbenchRun) -> dict[str, float]:
    """Metric → number in sysbench's units: of the closing block; rates that it lacks are means of the intervals.

    Reads, writes and fsyncs that the test didn't do are absent: they are not rates of 0.
    """
    numbers = dict(run.closed)
    if "latency.percentile" in numbers:
        numbers[_PERCENTILE.name] = numbers.pop("latency.percentile")
    if "latency.mean" in numbers and numbers.get("events") and numbers.get("latency.sum"):
        numbers["latency.mean"] = numbers["latency.sum"] / numbers["events"]  # it is printed with two decimals alone
    for way in ("read", "write"):
        if f"{way}.mib" in numbers:
            numbers[f"{way}.bandwidth"] = numbers.pop(f"{way}.mib")
    rate, count = _COUNTED.get(run.test, ("", ""))
    if rate not in numbers and numbers.get("time") and count in numbers:
        numbers[rate] = numbers[count] / numbers["time"]
    if run.intervals.height:
        lacking = {
            metric: pl.col(column).mean()
            for column, (metric, _, _) in _SERIES[run.test].items()
            if column in run.intervals.columns and metric in _METRICS and metric not in numbers
        }
        numbers |= run.intervals.select(**lacking).row(0, named=True) if lacking else {}
    for total in ("bandwidth", "iops"):
        parts = [numbers[name] for name in (f"read.{total}", f"write.{total}") if name in numbers]
        if len(parts) == len(("read", "write")) and total not in numbers:
            numbers[total] = sum(parts)
    idle = ("read.bandwidth", "read.iops", "write.bandwidth", "write.iops", "fsync.rate")
    return {metric: number for metric, number in numbers.items() if number or metric not in idle}


_TRAITS = (
    *("test", "threads", "rate", "mode", "files", "total size", "block size", "open flags", "read/write ratio"),
    *("fsync", "fsync at the end", "I/O mode", "primes up to", "memory operation", "memory block"),
    *("OLTP mode", "distribution", "transactions", "tables", "requests"),
)
"""The facts that tell runs in one file apart: all but those that change nothing measured."""


class SysbenchImporter(TextImporter):
    """Text of sysbench 0.4 to 1.1, of any report interval. Several runs alike in one file are rounds."""

    kind: ClassVar[str] = "sysbench"
    raw_name: ClassVar[str] = "sysbench.txt"
    primary: ClassVar[tuple[str, ...]] = ("tps", "bandwidth", "eps")
    unknown: ClassVar[str] = (
        "on which machine and storage it ran, with which settings of the database, nor what ran beside"
    )

    begin: ClassVar[bytes] = LINES_BEGIN

    def parts(self, text: bytes, source: str) -> Sequence[tuple[int, Part]]:
        return [(run.line, _part(run)) for run in read_sysbench(text, source)]


def _part(run: SysbenchRun) -> Part:
    """A trial. One that counted no event failed: sysbench prints zeros of it."""
    if not run.measured or run.closed.get("events") == 0:
        nothing = "sysbench counted no event" if run.measured else f"line {run.line}: it ended before it measured"
        reason = "; ".join(run.warnings) or nothing
        return Part(Measurements(facts=run.facts), traits=_traits(run), status="failed", reason=reason)
    return Part(measured(run), traits=_traits(run))


def _traits(run: SysbenchRun) -> dict[str, str]:
    traits = {name: printable(str(run.facts[name])) for name in _TRAITS if name in run.facts}
    kinds = [kind for kind in ("read", "write", "other") if run.test == "oltp" and _made(run, kind)]
    return {**traits, **({"queries": " + ".join(kinds)} if kinds else {})}


def _made(run: SysbenchRun, kind: str) -> bool:
    counted = run.closed.get(f"queries.{kind}")
    if counted is None and kind in run.intervals.columns:
        return bool((run.intervals[kind] > 0).any())
    return bool(counted)
