"""The metrics of commits."""

from __future__ import annotations

from storlab.metrics import MetricSpec, latencies

COMMITS = (
    MetricSpec("commit.count", "1", quantity="operations"),
    MetricSpec("commit.rate", "1/s", "higher", quantity="throughput", by_job=False),
    *latencies("commit.latency", "commit.count"),
)
