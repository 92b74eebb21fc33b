"""The metrics of a run of pgbench."""

from __future__ import annotations

from storlab.metrics import MetricSpec, by_name, latencies

METRICS = by_name(
    [
        MetricSpec("tps", "1/s", "higher", quantity="throughput", series=True),
        MetricSpec("transactions", "1", quantity="operations"),
        MetricSpec("errors", "1", "lower"),
        *latencies("latency", "transactions"),
        MetricSpec("latency.stddev", "s", "lower", "mean", of="latency", statistic="stddev"),
        MetricSpec("lag.mean", "s", "lower", "mean"),
        MetricSpec("lag.max", "s", "lower", "max"),
        MetricSpec("skipped", "1", "lower"),
        MetricSpec("late", "1", "lower"),
        MetricSpec("retries", "1", "lower"),
    ]
)
"""``lag``: by how much transactions began later than ``rate`` asks for. ``skipped``: those that would have begun so
late that they could not end within the latency limit; ``late``: those that ended beyond it.
"""
