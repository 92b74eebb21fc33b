"""sysbench's text: OLTP, fileio, and tests that count events, with their intervals as series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import polars as pl

from storlab.measurements import SERIES_COLUMNS, Across, Better, Measurements, Value, empty, metric_frame
from storlab.records.importers.base import Importer, Part
from storlab.records.importers.sysbench_intervals import Test
from storlab.records.importers.sysbench_text import SysbenchRun, read_sysbench

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
"""The rate that is a count by time, where it isn't printed; of queries up to 0.5."""

_PRIMARY: dict[Test, str] = {"oltp": "tps", "fileio": "bandwidth", "events": "eps"}

_METRICS: dict[str, tuple[float, str, Better, Across]] = {
    "tps": (1, "1/s", "higher", "sum"),
    "qps": (1, "1/s", "higher", "sum"),
    "eps": (1, "1/s", "higher", "sum"),
    "bandwidth": (_MIB, "B/s", "higher", "sum"),
    "read.bandwidth": (_MIB, "B/s", "higher", "sum"),
    "write.bandwidth": (_MIB, "B/s", "higher", "sum"),
    "iops": (1, "1/s", "higher", "sum"),
    "read.iops": (1, "1/s", "higher", "sum"),
    "write.iops": (1, "1/s", "higher", "sum"),
    "fsync.rate": (1, "1/s", "higher", "sum"),
    "transactions": (1, "1", "neither", "sum"),
    "queries": (1, "1", "neither", "sum"),
    "queries.read": (1, "1", "neither", "sum"),
    "queries.write": (1, "1", "neither", "sum"),
    "queries.other": (1, "1", "neither", "sum"),
    "events": (1, "1", "neither", "sum"),
    "errors": (1, "1", "lower", "sum"),
    "reconnects": (1, "1", "lower", "sum"),
    "latency.mean": (_MS, "s", "lower", "merge"),
    "latency.min": (_MS, "s", "lower", "min"),
    "latency.max": (_MS, "s", "lower", "max"),
    "latency.percentile": (_MS, "s", "lower", "merge"),
    "latency.sum": (_MS, "s", "neither", "sum"),
    "time": (1, "s", "neither", "max"),
    "threads.events.mean": (1, "1", "neither", "mean"),
    "threads.events.stddev": (1, "1", "lower", "mean"),
    "threads.time.mean": (1, "s", "neither", "mean"),
    "threads.time.stddev": (1, "s", "lower", "mean"),
}
"""Metric → what one of it is in base units, its unit, its direction, how it combines."""


_TRAITS = (
    *("test", "threads", "rate", "mode", "files", "total size", "block size", "open flags", "read/write ratio"),
    *("fsync", "fsync at the end", "I/O mode", "primes up to", "memory operation", "memory block"),
)
"""The facts that tell runs in one file apart: all but those that change nothing measured."""


class SysbenchImporter(Importer):
    """Text of sysbench 0.4 to 1.1, of any report interval. Several runs alike in one file are rounds."""

    kind: ClassVar[str] = "sysbench"
    raw_name: ClassVar[str] = "sysbench.txt"
    primary: ClassVar[str] = "tps"
    unknown: ClassVar[str] = (
        "on which machine and storage it ran, with which settings of the database, nor what ran beside"
    )

    def read(self, text: bytes, source: str, options: Mapping[str, Any]) -> Sequence[Part]:
        return [_part(run) for run in read_sysbench(text, source)]

    def primary_of(self, parts: Sequence[Part], options: Mapping[str, Any]) -> str:
        tests = {part.measured.facts["test"] for part in parts}
        return next((name for test, name in _PRIMARY.items() if test in tests), self.primary)


def _part(run: SysbenchRun) -> Part:
    """A trial. One that counted no event failed: sysbench prints zeros of it, and up to 0.5 a minimum of 2**64 ns."""
    if run.closed.get("events") == 0:
        reason = "; ".join(run.warnings) or "sysbench counted no event"
        return Part(Measurements(facts=run.facts), traits=_traits(run), status="failed", reason=reason)
    return Part(_measured(run), traits=_traits(run))


def _measured(run: SysbenchRun) -> Measurements:
    return Measurements(
        metrics=metric_frame(value for value in _values(run) if math.isfinite(value.value)),
        series=_series(run),
        histograms=run.histogram,
        warnings=run.warnings,
        facts=run.facts,
    )


def _traits(run: SysbenchRun) -> dict[str, str]:
    """What it was told; and which kinds of queries it made, as sysbench doesn't name its script."""
    traits = {name: str(run.facts[name]) for name in _TRAITS if name in run.facts}
    kinds = [kind for kind in ("read", "write", "other") if run.test == "oltp" and _made(run, kind)]
    return {**traits, **({"queries": " + ".join(kinds)} if kinds else {})}


def _made(run: SysbenchRun, kind: str) -> bool:
    counted = run.closed.get(f"queries.{kind}")
    if counted is None and kind in run.intervals.columns:
        return bool((run.intervals[kind] > 0).any())
    return bool(counted)


def _series(run: SysbenchRun) -> pl.DataFrame:
    """``SERIES_COLUMNS``, metric after metric. Reads, writes or fsyncs of which there are none at all are left out."""
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
    return pl.concat(
        rows.select(
            pl.lit(None, pl.String).alias("job"),
            pl.lit(metric).alias("metric"),
            "t",
            (pl.col(column) * factor if factor != 1 else pl.col(column)).alias("value"),
            pl.lit(unit).alias("unit"),
        )
        for column, (metric, factor, unit) in columns.items()
    )


def _values(run: SysbenchRun) -> Iterator[Value]:
    numbers = _numbers(run)
    for metric, (factor, unit, better, across) in _METRICS.items():
        if metric in numbers:
            name = f"latency.p{run.percentile}" if metric == "latency.percentile" else metric
            yield Value(name, numbers[metric] * factor, unit, better, across)


def _numbers(run: SysbenchRun) -> dict[str, float]:
    """Metric → number in sysbench's units: of the closing block; rates that it lacks are means of the intervals.

    Reads, writes and fsyncs that the test didn't do are absent: they are not rates of 0.
    """
    numbers = dict(run.closed)
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
        if parts and total not in numbers:
            numbers[total] = sum(parts)
    idle = ("read.bandwidth", "read.iops", "write.bandwidth", "write.iops", "fsync.rate")
    return {metric: number for metric, number in numbers.items() if number or metric not in idle}
