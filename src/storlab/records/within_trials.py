"""What the series of throughput say of their trials: variability as metrics, and findings for warnings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from storlab.metrics import WHISKERS, Declarations, MetricSpec, Value
from storlab.records.tables import COLUMNS, PLACES, ExaminedSeries, TrialTables
from storlab.timeseries.findings import FEWEST, Level, findings, spacing
from storlab.timeseries.variability import STATISTICS, Floats, declares, variability


class _Series(NamedTuple):
    spec: MetricSpec
    t: Floats
    values: Floats


class _Group(NamedTuple):
    """One source of one trial. ``place``: the columns of ``PLACES`` but ``node``; ``nodes``: metric → its series."""

    place: dict[str, object]
    nodes: dict[str, dict[str, _Series]]


def add_within_trials(tables: TrialTables, whiskers: float = WHISKERS) -> None:
    """Add to ``tables`` the metrics of variability of their trials' series, of each node and of all nodes together, and
    what was found in those of all nodes. Series of fewer than ``FEWEST`` samples have neither.

    Many trials at once take a third of the time that they take one by one.
    """
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS["metrics"]}
    for group in _groups([frame for frame in tables.series if frame.height], Declarations.union(tables.declared())):
        by_node = {node: _chosen(series) for node, series in group.nodes.items()}
        together = _together(list(by_node.values()))
        _add_metrics(columns, group.place, [*by_node.items(), (None, together)], whiskers)
        for each in _leading(together):
            found = findings(each.t, each.values, whiskers)
            if found is not None:
                found = replace(found, changes=tuple(_moved(change, each, together) for change in found.changes))
                place = {**group.place, "node": None}
                tables.examined.append(ExaminedSeries(place, each.spec.name, each.spec.unit, found))
    if columns["metric"]:
        tables.metrics.append(pl.DataFrame(columns, schema=COLUMNS["metrics"]))


def _moved(change: Level, of: _Series, series: Sequence[_Series]) -> Level:
    """With the bytes until then, by the bandwidth of the same direction."""
    name = of.spec.name.replace("iops", "bandwidth")
    same = next((each for each in series if each.spec.name == name and each.spec.unit == "B/s"), None)
    if same is None:
        return change
    # A sample is the mean of the time before it, and the first of the new level begins at ``t``.
    return replace(change, moved=float(same.values[same.t <= change.t].sum()) * spacing(same.t))


def _add_metrics(
    columns: Mapping[str, list[object]],
    place: Mapping[str, object],
    nodes: Iterable[tuple[str | None, Sequence[_Series]]],
    whiskers: float,
) -> None:
    """Add the variability of these series of each node to the rows that ``columns`` are."""
    known: dict[int, list[Value]] = {}  # where there is one node, its series are those of all nodes together
    for node, series in nodes:
        for each in series:
            if id(each) not in known:
                known[id(each)] = list(_values(each, whiskers))
            for value in known[id(each)]:
                row = {**place, "node": node, **vars(value)}
                for name, column in columns.items():
                    column.append(row[name])


def _groups(frames: Sequence[pl.DataFrame], declared: Declarations) -> list[_Group]:
    sampled = {source: [spec.name for spec in specs if spec.series] for source, specs in declared.items()}
    wanted = [(pl.col("source") == of) & pl.col("metric").is_in(names) for of, names in sampled.items() if names]
    if not frames or not wanted:
        return []
    keys = ("trial", "source", "node", "metric")
    rows = (
        pl.concat(frames)
        .lazy()
        .filter(
            pl.any_horizontal(wanted), pl.col("job").is_null(), pl.col("value").is_finite() & pl.col("t").is_finite()
        )
        .group_by(*keys, maintain_order=True)
        .agg(pl.col("round", "cell").first(), pl.col("t", "value").sort_by("t", maintain_order=True))
        .collect()
    )
    t, values = (rows[name].explode().to_numpy() for name in ("t", "value"))
    ends = np.cumsum(rows["t"].list.len().to_numpy()).tolist()
    groups: dict[tuple[int, str], _Group] = {}
    begin = 0
    for row, end in zip(rows.drop("t", "value").iter_rows(named=True), ends, strict=True):
        place = {name: row[name] for name in PLACES if name != "node"}
        group = groups.setdefault((row["trial"], row["source"]), _Group(place, {}))
        found = _Series(declared[row["source"]].find(row["metric"]), t[begin:end], values[begin:end])
        group.nodes.setdefault(row["node"], {})[row["metric"]] = found
        begin = end
    return list(groups.values())


def _chosen(series: Mapping[str, _Series]) -> list[_Series]:
    """The series of one node, but for a total over directions where there is only one."""
    totals = [each.spec.total for each in series.values() if each.spec.total]
    return [each for name, each in series.items() if totals.count(name) != 1]


def _together(nodes: Sequence[Sequence[_Series]]) -> list[_Series]:
    """Sums over nodes of the series that all of them have, for the intervals that all of them have."""
    first, *others = nodes
    if not others:
        return list(first)
    summed = []
    for mine in first:
        same = [mine, *(each for node in others for each in node if each.spec.name == mine.spec.name)]
        interval = spacing(mine.t)
        if len(same) < len(nodes) or not interval > 0:
            continue
        slots = [np.rint(each.t / interval).astype(np.int64) for each in same]
        values = [
            dict(zip(slot.tolist(), each.values.tolist(), strict=True)) for slot, each in zip(slots, same, strict=True)
        ]
        common = sorted(set.intersection(*(set(each) for each in values)))
        t = np.array(common, dtype=np.float64) * interval
        summed.append(_Series(mine.spec, t, np.array([sum(each[at] for each in values) for at in common])))
    return summed


def _leading(those: Sequence[_Series]) -> list[_Series]:
    names = {name for each in those for name in (each.spec.name, each.spec.total)}
    alone = [each for each in those if each.spec.follows not in names - {""}]
    return [each for each in alone if each.spec.total not in {other.spec.name for other in alone}]


def _values(series: _Series, whiskers: float) -> Iterator[Value]:
    interval = spacing(series.t)
    if len(series.values) < FEWEST or not interval > 0:
        return
    found = variability(series.values, interval, whiskers)
    for spec, name in zip(declares(series.spec, whiskers), STATISTICS, strict=True):
        value = getattr(found, name)
        if value is not None:
            yield spec.value(value)
