"""Latency over time: which charts there are of it, and what they show."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from storlab.report.charts import all_panels
from storlab.report.charts.panel import Panel
from storlab.report.model.input import ReportInput

from ..declared import declared
from ..series_sample import LEVELS, series_sample


def sample(nodes: int = 1, n: int = 100) -> ReportInput:
    """Of reads and writes the median and the 99th percentile; those of the second node are twice those of the first."""
    plain = series_sample(LEVELS, n)
    factors = {"read.latency.p50": 1e-4, "read.latency.p99": 2e-3, "write.latency.p50": 1e-3, "write.latency.p99": 0.03}
    series = pl.concat(
        plain.series.with_columns(
            node=pl.lit(f"vm-{node}"),
            metric=pl.lit(metric),
            unit=pl.lit("s"),
            value=factor * node * (1 + pl.col("t") / pl.col("t").max()),
        )
        for metric, factor in factors.items()
        for node in range(1, nodes + 1)
    )
    return replace(plain, series=pl.concat([plain.series, series]), declared=declared("sysbench"))  # with directions


def percentiles(given: ReportInput) -> list[Panel]:
    return [panel for panel in all_panels(given) if panel.title.startswith("Percentiles")]


def test_each_direction_has_a_chart_of_its_latency_with_all_levels() -> None:
    panels = percentiles(sample())
    assert [panel.group for panel in panels] == ["read.latency: sysbench", "write.latency: sysbench"]
    assert panels[0].title == "Percentiles of each interval: p99 and p50 (dashed)"
    assert panels[0].alt == "p99 and p50 of read.latency over the time of a trial, of off and on."
    for text in (">off<", ">on<", ">200 µs<", ">2 ms<", "latency (log scale)"):
        assert text in panels[0].svg, text


def test_of_several_nodes_the_slowest_is_shown() -> None:
    alone, slow = (percentiles(sample(nodes))[1].chart.to_dict(validate=False) for nodes in (1, 3))

    def highest(spec: dict[str, object]) -> float:
        (rows, *_) = spec["datasets"].values()  # type: ignore[attr-defined]
        return float(max(row["high"] for row in rows))

    assert highest(slow) == pytest.approx(3 * highest(alone))


def test_where_one_percentile_is_kept_there_is_one_line() -> None:
    given = sample()
    given = replace(given, series=given.series.filter(pl.col("metric") != "read.latency.p50"))
    assert percentiles(given)[0].title == "Percentiles of each interval: p99"


@pytest.mark.parametrize("n", [1, 2])
def test_two_instants_are_no_course(n: int) -> None:
    assert percentiles(sample(n=n)) == []


def test_latencies_of_0_are_left_out_and_not_fatal() -> None:
    given = sample()
    reads = pl.col("metric").str.starts_with("read.latency")
    given = replace(given, series=given.series.with_columns(value=pl.when(reads).then(0.0).otherwise("value")))
    assert [panel.group for panel in percentiles(given)] == ["write.latency: sysbench"]
