"""The metrics of a run of pgbench."""

from __future__ import annotations

from storlab.metrics import MetricSpec, by_name, latencies

METRICS = by_name(
    [
        MetricSpec("tps", "1/s", "higher", quantity="throughput", series=True),
        MetricSpec("transactions", "1", quantity="operations"),
        MetricSpec("errors", "1", "lower"),
        *latencies("latency", "transactions"),
        MetricSpec("lag.mean", "s", "lower", "mean"),
    ]
)
"""``lag``: by how much transactions began later than ``rate`` asks for."""
