"""Several nodes' measurements of one trial as one: sums, extremes, latencies from merged histograms, and fairness.

Fairness among nodes is Jain's index: R. Jain, D. Chiu, W. Hawe, "A quantitative measure of fairness and discrimination
for resource allocation in shared computer systems", DEC Research Report TR-301, 1984.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import polars as pl

from storlab.blockio.ratios import ratios
from storlab.measurements import METRIC_COLUMNS, Measurements, Value, merge_histograms, metric_frame
from storlab.percentiles import percentiles

_PERCENTILE = re.compile(r"(?P<histogram>.+)\.p(?P<percentile>\d+(\.\d+)?)")
_SHARED = re.compile(
    r"((read|write|trim)\.)?(bandwidth|iops)|(create|read|stat|delete)\.rate"
)  # what nodes may get unequal shares of
_MEAN = re.compile(r"(?P<prefix>.*?)\.?latency\.mean")


def across_nodes(measured: Sequence[Measurements]) -> pl.DataFrame:
    """Metrics (``METRIC_COLUMNS``, ``job`` null) of all nodes together, by each metric's ``across``.

    ``merge``: percentiles come from the nodes' merged histograms, a mean from the nodes' means weighted by their
    numbers of operations, a ratio of block requests from the requests of all nodes. A metric that can't be combined
    soundly is left out, never averaged. ``bandwidth``, ``iops`` and the rates of files of several nodes come with
    their ``fairness``.
    """
    metrics = pl.concat([m.metrics.filter(pl.col("job").is_null()) for m in measured])
    if len(measured) == 1:
        return metrics.filter(pl.col("across") != "none")
    order = metrics["metric"].unique(maintain_order=True)
    keys = ["job", "metric", "unit", "better", "across"]
    frames = [metrics.filter(pl.col("across") == "merge").clear()]
    for across, combined in (("sum", "sum"), ("max", "max"), ("min", "min"), ("mean", "mean")):
        rows = metrics.filter(pl.col("across") == across)
        frames.append(rows.group_by(keys).agg(getattr(pl.col("value"), combined)()).select(list(METRIC_COLUMNS)))
    frames.append(_merged(metrics, measured))
    place = {name: index for index, name in enumerate(order)}
    together = pl.concat(frames).sort(pl.col("metric").replace_strict(place, return_dtype=pl.Int64))
    return pl.concat([together, _fairness(metrics, len(measured))])


def jain(values: Sequence[float]) -> float | None:
    """(Σx)² ÷ (n·Σx²): 1 where all are equal, 1/n where one has everything; ``None`` where nothing is shared."""
    most = max(values, default=0.0)
    if not math.isfinite(most) or most <= 0 or not all(value >= 0 for value in values):
        return None
    shares = [value / most for value in values]  # squares of huge and of tiny values would leave the floats' range
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(share * share for share in shares))


def _fairness(metrics: pl.DataFrame, nodes: int) -> pl.DataFrame:
    """``bandwidth.fairness`` and so on, of the metrics that every one of the nodes has."""
    values: dict[str, list[float]] = {}
    for metric, value in metrics.select("metric", "value").iter_rows():
        if _SHARED.fullmatch(metric):
            values.setdefault(metric, []).append(value)
    indices = ((name, jain(each)) for name, each in values.items() if len(each) == nodes)
    return metric_frame(
        Value(f"{name}.fairness", index, "1", "higher", "none") for name, index in indices if index is not None
    )


def _merged(metrics: pl.DataFrame, measured: Sequence[Measurements]) -> pl.DataFrame:
    rows = metrics.filter(pl.col("across") == "merge")
    if rows.is_empty():
        return rows
    histograms = merge_histograms(
        pl.concat([m.histograms.filter(pl.col("job").is_null()) for m in measured]), by=("metric",)
    )
    anew = {each.metric: each.value for each in ratios(pl.concat([m.requests for m in measured]))}
    kept = []
    for row in rows.unique("metric", keep="first", maintain_order=True).iter_rows(named=True):
        value = anew.get(row["metric"])
        if value is None:
            value = _percentile(row["metric"], histograms)
        if value is None:
            value = _weighted_mean(row["metric"], metrics)
        if value is not None:
            kept.append({**row, "value": value})
    return pl.DataFrame(kept, schema=METRIC_COLUMNS)


def _percentile(metric: str, histograms: pl.DataFrame) -> float | None:
    match = _PERCENTILE.fullmatch(metric)
    if match is None:
        return None
    histogram = histograms.filter(pl.col("metric") == match["histogram"])
    wanted = float(match["percentile"])
    return None if histogram.is_empty() else percentiles(histogram, [wanted])[wanted]


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
