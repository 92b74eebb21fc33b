"""What many trials measured as rows of the tables, all at once: trial by trial takes five times as long. And several
nodes' measurements as one: sums, extremes, latencies from merged histograms, and fairness.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storlab.base.text import grouped
from storlab.blockio.requests import ratios
from storlab.findings.runs import NotMerged
from storlab.measurements import METRIC_COLUMNS, Measurements, merge_histograms, metric_frame
from storlab.metrics import Declarations, MetricSpec, Specs, Value, is_underneath, specs_of
from storlab.percentiles import percentiles
from storlab.records.derived import fairness, of_jobs
from storlab.records.run_folder import TrialRecord
from storlab.records.tables import COLUMNS, PLACES, Notes, TrialTables

_GROUP = "group"  # number of the group that a row is of: by this they are put in order


@dataclass(frozen=True)
class Measured:
    """What one source measured in one trial, by node."""

    record: TrialRecord
    source: str
    by_node: Mapping[str, Measurements]


@dataclass(frozen=True)
class Told:
    """A number of one trial that follows from others; ``node`` is ``None`` for one of all nodes together."""

    record: TrialRecord
    source: str
    node: str | None
    value: Value


Group = Measured | Told


def stacked(measured: Sequence[tuple[TrialRecord, Measurements]], source: str, node: str) -> TrialTables:
    """What each trial's only node measured, as that node's and as that of all nodes together. Without warnings."""
    return rows_of([Measured(record, source, {node: each}) for record, each in measured])


def rows_of(groups: Sequence[Group]) -> TrialTables:
    """The rows of all of these, in their order: of each node, then of all nodes together. Without warnings."""
    each = [
        (number, group.record, group.source, node, measured)
        for number, group in enumerate(groups)
        if isinstance(group, Measured)
        for node, measured in group.by_node.items()
    ]
    places = _places((number, record, source, node) for number, record, source, node, _ in each)
    measured = [measured for *_, measured in each]
    tables = TrialTables()
    for _, record, source, _, one in each:
        notes = tables.notes.setdefault(record.trial, Notes())
        notes.declared.append((source, one.declared))
        if one.facts and not is_underneath(source):
            notes.loads.append((record.cell, source, one.facts))
    for table in ("series", "histograms", "requests", "checks"):
        rows = _placed(places, [getattr(one, table) for one in measured])
        if rows is not None:
            getattr(tables, table).append(rows.select(list(COLUMNS[table])))
    metrics = _placed(places, [one.metrics for one in measured])
    told = _told(groups)
    declared = Declarations.union(tables.declared())
    parts = [told] if metrics is None else [metrics, *_together(metrics, groups, declared, tables), told]
    tables.metrics.append(pl.concat(parts).sort(_GROUP, maintain_order=True).select(list(COLUMNS["metrics"])))
    return tables


def _together(
    metrics: pl.DataFrame, groups: Sequence[Group], declared: Declarations, tables: TrialTables
) -> list[pl.DataFrame]:
    """What ``across_nodes`` makes of each group; of all that have one node at once. Adds notes on what it can't."""
    several = {
        number: group for number, group in enumerate(groups) if isinstance(group, Measured) and len(group.by_node) > 1
    }
    alone = metrics.filter(~pl.col(_GROUP).is_in(list(several))) if several else metrics
    parts = [alone.filter(pl.col("job").is_null())]
    shared = [
        found
        for source, specs in declared.items()
        for found in of_jobs(alone.filter(source=source), specs.throughputs(), [_GROUP])
    ]
    numbers: list[int] = [number for (number,), _ in shared]  # type: ignore[misc]
    parts.append(_of_all(metric_frame(value for _, value in shared), numbers, groups))
    for number, group in several.items():
        rows = across_nodes(list(group.by_node.values()))
        parts.append(_of_all(rows, [number] * rows.height, groups))
        lost = {name for each in group.by_node.values() for name in each.totals()} - {*rows["metric"]}
        if any(declared[group.source].find(name).percentile is not None for name in lost):
            tables.notes[group.record.trial].warnings.append(NotMerged(group.source))
    return [part.with_columns(pl.lit(None, pl.String).alias("node")) for part in parts]


def _of_all(rows: pl.DataFrame, numbers: Sequence[int], groups: Sequence[Group]) -> pl.DataFrame:
    return rows.hstack(_places((number, groups[number].record, groups[number].source, None) for number in numbers))


def _told(groups: Sequence[Group]) -> pl.DataFrame:
    found = [(number, group) for number, group in enumerate(groups) if isinstance(group, Told)]
    places = _places((number, group.record, group.source, group.node) for number, group in found)
    return metric_frame(group.value for _, group in found).hstack(places)


def _places(of: Iterable[tuple[int, TrialRecord, str, str | None]]) -> pl.DataFrame:
    rows = [(record.trial, record.round, record.cell, node, source, number) for number, record, source, node in of]
    return pl.DataFrame(rows, schema={**PLACES, _GROUP: pl.Int64()}, orient="row")


def _placed(places: pl.DataFrame, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
    """All rows of ``frames``, each with the place of its frame; ``None`` where there are none."""
    of = np.repeat(np.arange(len(frames)), [frame.height for frame in frames])
    filled = [frame for frame in frames if frame.height]
    return pl.concat(filled).hstack(places[of]) if filled else None


def across_nodes(measured: Sequence[Measurements]) -> pl.DataFrame:
    """Metrics (``METRIC_COLUMNS``, ``job`` null) of all nodes together, by each metric's ``across``.

    ``merge``: percentiles come from the nodes' merged histograms, a mean from the nodes' means weighted by their
    numbers of operations, a ratio of block requests from the requests of all nodes. What can't be combined soundly is
    left out, never averaged; of a single node, everything is what it is. Throughputs of several nodes, or jobs, come
    with their ``fairness`` and ``imbalance``.
    """
    metrics = pl.concat([m.metrics.filter(pl.col("job").is_null()) for m in measured])
    specs = specs_of(measured[0].declared)
    each = (m.metrics.with_columns(node=pl.lit(str(number))) for number, m in enumerate(measured))
    among_jobs = metric_frame(value for _, value in of_jobs(pl.concat(each), specs.throughputs()))
    if len(measured) == 1:
        return pl.concat([metrics, among_jobs])
    order = metrics["metric"].unique(maintain_order=True)
    keys = ["job", "metric", "unit", "better", "across"]
    frames = [metrics.filter(pl.col("across") == "merge").clear()]
    for across in ("sum", "max", "min", "mean"):
        rows = metrics.filter(pl.col("across") == across)
        frames.append(rows.group_by(keys).agg(getattr(pl.col("value"), across)()).select(list(METRIC_COLUMNS)))
    frames.append(_merged(metrics, measured, specs))
    place = {name: index for index, name in enumerate(order)}
    together = pl.concat(frames).sort(pl.col("metric").replace_strict(place, return_dtype=pl.Int64))
    return pl.concat([together, metric_frame(_fairness(metrics, len(measured), specs)), among_jobs])


def _fairness(metrics: pl.DataFrame, nodes: int, specs: Specs) -> Iterator[Value]:
    """``bandwidth.fairness`` and so on, of the metrics that every one of the nodes has."""
    by_metric: dict[str, list[float]] = grouped(metrics.select("metric", "value").iter_rows())
    for name, values in by_metric.items():
        if specs.find(name).quantity == "throughput" and len(values) == nodes:
            yield from fairness(name, values)


def _merged(metrics: pl.DataFrame, measured: Sequence[Measurements], specs: Specs) -> pl.DataFrame:
    rows = metrics.filter(pl.col("across") == "merge")
    if rows.is_empty():
        return rows
    each_node = [m.histograms.filter(pl.col("job").is_null()) for m in measured]
    histograms = merge_histograms(pl.concat(each_node), by=("metric",))
    nodes = Counter(name for histogram in each_node for name in histogram["metric"].unique())
    merged = {each.metric: each.value for each in ratios(pl.concat([m.requests for m in measured]))}
    kept = []
    for row in rows.unique("metric", keep="first", maintain_order=True).iter_rows(named=True):
        value, spec = merged.get(row["metric"]), specs.find(row["metric"])
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
    means = metrics.filter(pl.col("metric") == spec.name)["value"].to_list()
    counts = metrics.filter(pl.col("metric") == spec.weight)["value"].to_list()
    if len(means) != len(counts) or not sum(counts):
        return None
    return math.fsum(mean * count for mean, count in zip(means, counts, strict=True)) / math.fsum(counts)
