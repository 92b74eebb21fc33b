"""What a workload or a probe measured: a few small frames with fixed columns, in base units.

Workloads and probes turn raw output into ``Measurements`` by pure functions. ``records`` adds the columns that
say where it was measured (trial, node, workload) and stacks the frames into the run's tables.

All values are in base units: seconds, bytes, operations, ratios. ``better`` is the direction of a metric,
``across`` says how its values on several jobs or nodes combine into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import polars as pl

from storlab.findings.base import Finding
from storlab.metrics import MetricSpec, Value

METRIC_COLUMNS: dict[str, pl.DataType] = {
    "job": pl.String(),  # name of the job within the workload; null: all jobs together
    "metric": pl.String(),  # "write.bandwidth"
    "value": pl.Float64(),
    "unit": pl.String(),  # "B/s", "1/s", "s", "B", "1" (a count or a ratio)
    "better": pl.String(),  # Better
    "across": pl.String(),  # Across
}

SERIES_COLUMNS: dict[str, pl.DataType] = {
    "job": pl.String(),
    "metric": pl.String(),
    "t": pl.Float64(),  # s since the workload's start
    "value": pl.Float64(),
    "unit": pl.String(),
}

HISTOGRAM_COLUMNS: dict[str, pl.DataType] = {
    "job": pl.String(),
    "metric": pl.String(),  # "write.latency", "write.granularity"
    "lower": pl.Float64(),  # in the metric's unit (s, B), inclusive
    "upper": pl.Float64(),  # in the metric's unit, exclusive
    "count": pl.Int64(),
}

REQUEST_COLUMNS: dict[str, pl.DataType] = {
    "disk": pl.String(),  # the kernel's name
    "operation": pl.String(),  # "write"
    "flags": pl.String(),  # "sync+meta"; "" for none
    "length": pl.Int64(),  # B; a flush has 0
    "offset_alignment": pl.Int64(),  # B: the largest power of two that divides the offset; 0: the offset is 0
    "comm": pl.String(),  # the command's name; null where it was not asked for
    "count": pl.Int64(),
    "units_4k": pl.Int64(),  # units of 4 KiB of the disk that these requests touch, all together; null: unknown
    "units_8k": pl.Int64(),
    "units_16k": pl.Int64(),
    "units_32k": pl.Int64(),
    "units_64k": pl.Int64(),
}
"""Block requests, counted by what they were. ``storlab.blockio`` computes from them."""

CHECK_COLUMNS: dict[str, pl.DataType] = {
    "check": pl.String(),  # "rename-over-open"
    "outcome": pl.String(),  # "pass", "fail", "unsupported"
    "reason": pl.String(),  # "mmap: EINVAL"; of one that passed a remark, or ""
}
"""What was looked at beside what was measured."""


def metric_frame(values: Iterable[Value]) -> pl.DataFrame:
    """``values`` as a frame of ``METRIC_COLUMNS``."""
    rows = [(v.job, v.metric, float(v.value), v.unit, v.better, v.across) for v in values]
    return pl.DataFrame(rows, schema=METRIC_COLUMNS, orient="row")


def empty(columns: dict[str, pl.DataType]) -> pl.DataFrame:
    """A frame of these columns and no row."""
    return pl.DataFrame(schema=columns)


_NO_METRICS, _NO_SERIES, _NO_HISTOGRAMS, _NO_REQUESTS, _NO_CHECKS = map(
    empty, (METRIC_COLUMNS, SERIES_COLUMNS, HISTOGRAM_COLUMNS, REQUEST_COLUMNS, CHECK_COLUMNS)
)


@dataclass(frozen=True)
class Measurements:
    """All that one workload (or probe) measured on one node in one trial.

    ``warnings`` are what only a tool's own output says, in its parser's words; ``found`` are findings that others share
    or decide on. Both travel with every result derived from these numbers.
    ``facts`` are what the tool says of itself (version, engine, options really used). ``declared``: what the metrics
    and histograms are, by who yielded them.
    """

    metrics: pl.DataFrame = field(default_factory=lambda: _NO_METRICS)
    series: pl.DataFrame = field(default_factory=lambda: _NO_SERIES)
    histograms: pl.DataFrame = field(default_factory=lambda: _NO_HISTOGRAMS)
    warnings: tuple[str, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)
    requests: pl.DataFrame = field(default_factory=lambda: _NO_REQUESTS)
    declared: tuple[MetricSpec, ...] = ()
    checks: pl.DataFrame = field(default_factory=lambda: _NO_CHECKS)
    found: tuple[Finding, ...] = ()

    def totals(self) -> dict[str, float]:
        """Metric → value of all jobs together. Not by Polars' expressions: each takes longer than so few rows."""
        columns = (self.metrics[name].to_list() for name in ("job", "metric", "value"))
        return {metric: value for job, metric, value in zip(*columns, strict=True) if job is None}


def merge_histograms(histograms: pl.DataFrame, by: Sequence[str] = ("metric",)) -> pl.DataFrame:
    """Add up the counts of equal bins. Nothing is lost: bins of other widths stay beside each other, as they are, and
    ``storlab.percentiles`` says between which edges a percentile of all of them lies.

    ``histograms`` has at least ``by`` and ``lower``, ``upper``, ``count``; the result has just these columns,
    ordered by ``by``, ``lower`` and ``upper``.
    """
    keys = [*by, "lower", "upper"]
    return histograms.group_by(keys).agg(pl.col("count").sum()).sort(keys)
