"""Several nodes' measurements of one trial as one: sums, extremes, latencies from merged histograms, and fairness."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from storlab.blockio.ratios import ratios
from storlab.measurements import METRIC_COLUMNS, Measurements, Value, merge_histograms, metric_frame
from storlab.percentiles import percentiles
from storlab.records.fairness import SHARED, fairness, of_jobs

_PERCENTILE = re.compile(r"(?P<histogram>.+)\.p(?P<percentile>\d+(\.\d+)?)")
_MEAN = re.compile(r"(?P<prefix>.*?)\.?latency\.mean")


def across_nodes(measured: Sequence[Measurements]) -> pl.DataFrame:
    """Metrics (``METRIC_COLUMNS``, ``job`` null) of all nodes together, by each metric's ``across``.

    ``merge``: percentiles come from the nodes' merged histograms, a mean from the nodes' means weighted by their
    numbers of operations, a ratio of block requests from the requests of all nodes. A metric that can't be combined
    soundly is left out, never averaged. ``bandwidth``, ``iops`` and the rates of files of several nodes, or jobs, come
    with their ``fairness`` and ``imbalance``.
    """
    metrics = pl.concat([m.metrics.filter(pl.col("job").is_null()) for m in measured])
    among_jobs = metric_frame(_among_jobs(measured))
    if len(measured) == 1:
        return pl.concat([metrics.filter(pl.col("across") != "none"), among_jobs])
    order = metrics["metric"].unique(maintain_order=True)
    keys = ["job", "metric", "unit", "better", "across"]
    frames = [metrics.filter(pl.col("across") == "merge").clear()]
    for across, combined in (("sum", "sum"), ("max", "max"), ("min", "min"), ("mean", "mean")):
        rows = metrics.filter(pl.col("across") == across)
        frames.append(rows.group_by(keys).agg(getattr(pl.col("value"), combined)()).select(list(METRIC_COLUMNS)))
    frames.append(_merged(metrics, measured))
    place = {name: index for index, name in enumerate(order)}
    together = pl.concat(frames).sort(pl.col("metric").replace_strict(place, return_dtype=pl.Int64))
    return pl.concat([together, metric_frame(_fairness(metrics, len(measured))), among_jobs])


def _fairness(metrics: pl.DataFrame, nodes: int) -> Iterator[Value]:
    """``bandwidth.fairness`` and so on, of the metrics that every one of the nodes has."""
    values: dict[str, list[float]] = {}
    for metric, value in metrics.select("metric", "value").iter_rows():
        if SHARED.fullmatch(metric):
            values.setdefault(metric, []).append(value)
    for name, each in values.items():
        if len(each) == nodes:
            yield from fairness(name, each)


def _among_jobs(measured: Sequence[Measurements]) -> Iterator[Value]:
    nodes = (m.metrics.with_columns(node=pl.lit(str(number))) for number, m in enumerate(measured))
    return (value for _, value in of_jobs(pl.concat(nodes)))


def _merged(metrics: pl.DataFrame, measured: Sequence[Measurements]) -> pl.DataFrame:
    rows = metrics.filter(pl.col("across") == "merge")
    if rows.is_empty():
        return rows
    each_node = [m.histograms.filter(pl.col("job").is_null()) for m in measured]
    histograms = merge_histograms(pl.concat(each_node), by=("metric",))
    nodes = Counter(name for histogram in each_node for name in histogram["metric"].unique())
    anew = {each.metric: each.value for each in ratios(pl.concat([m.requests for m in measured]))}
    kept = []
    for row in rows.unique("metric", keep="first", maintain_order=True).iter_rows(named=True):
        value = anew.get(row["metric"])
        if value is None:
            value = _percentile(row["metric"], metrics, histograms, nodes)
        if value is None:
            value = _weighted_mean(row["metric"], metrics)
        if value is not None:
            kept.append({**row, "value": value})
    return pl.DataFrame(kept, schema=METRIC_COLUMNS)


def _percentile(metric: str, metrics: pl.DataFrame, histograms: pl.DataFrame, nodes: Mapping[str, int]) -> float | None:
    """Of all nodes together; none where one that tells it has no histogram. ``nodes``: how many have one, by name."""
    match = _PERCENTILE.fullmatch(metric)
    if match is None or not 0 < nodes.get(match["histogram"], 0) >= (metrics["metric"] == metric).sum():
        return None
    histogram = histograms.filter(pl.col("metric") == match["histogram"])
    wanted = float(match["percentile"])
    return percentiles(histogram, [wanted])[wanted]


def _weighted_mean(metric: str, metrics: pl.DataFrame) -> float | None:
    """The mean over all operations: each node's mean counts as often as it had operations."""
    match = _MEAN.fullmatch(metric)
    if match is None:
        return None
    # What is done once for each file is counted in files.
    counters = [f"{match['prefix']}.{each}" if match["prefix"] else each for each in ("ios", "files")]
    means = metrics.filter(pl.col("metric") == metric)["value"].to_list()
    counts = metrics.filter(pl.col("metric").is_in(counters))["value"].to_list()
    if len(means) != len(counts) or not sum(counts):
        return None
    return math.fsum(mean * count for mean, count in zip(means, counts, strict=True)) / math.fsum(counts)
