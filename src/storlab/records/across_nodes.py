"""Several nodes' measurements of one trial as one: sums, extremes, latencies from merged histograms, and fairness."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from storlab.blockio.ratios import ratios
from storlab.measurements import METRIC_COLUMNS, Measurements, Value, merge_histograms, metric_frame
from storlab.metrics import MetricSpec, Specs, specs_of
from storlab.percentiles import percentiles
from storlab.records.fairness import fairness, of_jobs


def across_nodes(measured: Sequence[Measurements]) -> pl.DataFrame:
    """Metrics (``METRIC_COLUMNS``, ``job`` null) of all nodes together, by each metric's ``across``.

    ``merge``: percentiles come from the nodes' merged histograms, a mean from the nodes' means weighted by their
    numbers of operations, a ratio of block requests from the requests of all nodes. A metric that can't be combined
    soundly is left out, never averaged. Throughputs of several nodes, or jobs, come with their ``fairness`` and
    ``imbalance``.
    """
    metrics = pl.concat([m.metrics.filter(pl.col("job").is_null()) for m in measured])
    specs = specs_of(measured[0].declared)
    among_jobs = metric_frame(_among_jobs(measured, specs))
    if len(measured) == 1:
        return pl.concat([metrics.filter(pl.col("across") != "none"), among_jobs])
    order = metrics["metric"].unique(maintain_order=True)
    keys = ["job", "metric", "unit", "better", "across"]
    frames = [metrics.filter(pl.col("across") == "merge").clear()]
    for across, combined in (("sum", "sum"), ("max", "max"), ("min", "min"), ("mean", "mean")):
        rows = metrics.filter(pl.col("across") == across)
        frames.append(rows.group_by(keys).agg(getattr(pl.col("value"), combined)()).select(list(METRIC_COLUMNS)))
    frames.append(_merged(metrics, measured, specs))
    place = {name: index for index, name in enumerate(order)}
    together = pl.concat(frames).sort(pl.col("metric").replace_strict(place, return_dtype=pl.Int64))
    return pl.concat([together, metric_frame(_fairness(metrics, len(measured), specs)), among_jobs])


def _fairness(metrics: pl.DataFrame, nodes: int, specs: Specs) -> Iterator[Value]:
    """``bandwidth.fairness`` and so on, of the metrics that every one of the nodes has."""
    values: dict[str, list[float]] = {}
    for metric, value in metrics.select("metric", "value").iter_rows():
        if specs.find(metric).quantity == "throughput":
            values.setdefault(metric, []).append(value)
    for name, each in values.items():
        if len(each) == nodes:
            yield from fairness(name, each)


def _among_jobs(measured: Sequence[Measurements], specs: Specs) -> Iterator[Value]:
    nodes = (m.metrics.with_columns(node=pl.lit(str(number))) for number, m in enumerate(measured))
    return (value for _, value in of_jobs(pl.concat(nodes), specs.throughputs()))


def _merged(metrics: pl.DataFrame, measured: Sequence[Measurements], specs: Specs) -> pl.DataFrame:
    rows = metrics.filter(pl.col("across") == "merge")
    if rows.is_empty():
        return rows
    each_node = [m.histograms.filter(pl.col("job").is_null()) for m in measured]
    histograms = merge_histograms(pl.concat(each_node), by=("metric",))
    nodes = Counter(name for histogram in each_node for name in histogram["metric"].unique())
    anew = {each.metric: each.value for each in ratios(pl.concat([m.requests for m in measured]))}
    kept = []
    for row in rows.unique("metric", keep="first", maintain_order=True).iter_rows(named=True):
        value, spec = anew.get(row["metric"]), specs.find(row["metric"])
        if value is None and spec.percentile is not None:
            told = metrics.filter(pl.col("metric") == spec.name).height
            value = _percentile(spec.of, spec.percentile, told, histograms, nodes)
        if value is None and spec.weight:
            value = _weighted_mean(spec, metrics)
        if value is not None:
            kept.append({**row, "value": value})
    return pl.DataFrame(kept, schema=METRIC_COLUMNS)


def _percentile(of: str, wanted: float, told: int, histograms: pl.DataFrame, nodes: Mapping[str, int]) -> float | None:
    """Of all nodes together; none where not all that ``told`` it have a histogram. ``nodes``: how many have one."""
    if not 0 < nodes.get(of, 0) >= told:
        return None
    return percentiles(histograms.filter(pl.col("metric") == of), [wanted])[wanted]


def _weighted_mean(spec: MetricSpec, metrics: pl.DataFrame) -> float | None:
    """The mean over all operations: each node's mean counts as often as it had operations."""
    means = metrics.filter(pl.col("metric") == spec.name)["value"].to_list()
    counts = metrics.filter(pl.col("metric") == spec.weight)["value"].to_list()
    if len(means) != len(counts) or not sum(counts):
        return None
    return math.fsum(mean * count for mean, count in zip(means, counts, strict=True)) / math.fsum(counts)
