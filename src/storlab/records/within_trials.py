"""What the series of throughput say of their trials: variability as metrics, and findings for warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from storlab.measurements import Value, metric_frame
from storlab.records.columns import PLACES
from storlab.records.examined import ExaminedSeries
from storlab.records.tables import TrialTables, placed
from storlab.timeseries.findings import FEWEST, findings, spacing
from storlab.timeseries.variability import Floats, Variability, variability

_THROUGHPUT = re.compile(
    r"((read|write|trim)\.)?(?P<rate>iops|bandwidth)|tps|eps|(mkdir|create|read|stat|delete|rmdir)\.rate"
)
_LEADING = ("tps", "eps", "iops", "bandwidth")
"""A trial's warnings are about the first of these that it has, and its phases: the others rise and fall with it."""
_SQUARED = {"1/s": "1/s²", "B/s": "B²/s²"}
_PROBE = "probe:"


class _Series(NamedTuple):
    metric: str
    unit: str
    t: Floats
    values: Floats


def add_within_trials(tables: TrialTables) -> None:
    """Add to ``tables`` the metrics of variability of its trials' series, of each node and of all nodes together, and
    what was found in those of all nodes. Series of fewer than ``FEWEST`` samples have neither.
    """
    series = [frame for frame in tables.series if frame.height]
    if not series:
        return
    rows = pl.concat(series).filter(
        pl.col("job").is_null(),
        pl.col("unit").is_in(list(_SQUARED)),
        ~pl.col("source").str.starts_with(_PROBE),
        pl.col("value").is_finite() & pl.col("t").is_finite(),
    )
    if rows.is_empty():
        return
    for _, group in rows.group_by("trial", "source", maintain_order=True):
        place = {**group.select(list(PLACES)).row(0, named=True), "node": None}
        by_node = {node: list(_chosen(part)) for (node,), part in group.group_by("node", maintain_order=True)}
        together = _together(list(by_node.values()))
        for node, those in [*by_node.items(), (None, together)]:
            metrics = metric_frame(value for each in those for value in _values(each))
            if metrics.height:
                tables.metrics.append(placed(metrics, "metrics", {**place, "node": node}))
        for each in _leading(together):
            found = findings(each.t, each.values)
            if found is not None:
                tables.examined.append(ExaminedSeries(place, each.metric, each.unit, found))


def _chosen(rows: pl.DataFrame) -> Iterator[_Series]:
    """The series of throughput among ``rows``, of one node; a total over directions only where there are several."""
    frames = {name: part for (name,), part in rows.group_by("metric", maintain_order=True)}
    matched = {str(name): match for name in frames if (match := _THROUGHPUT.fullmatch(str(name)))}
    ways = [match["rate"] for name, match in matched.items() if match["rate"] not in (None, name)]
    for name in matched:
        if ways.count(name) != 1:
            part = frames[name].sort("t", maintain_order=True)
            yield _Series(name, str(part["unit"][0]), part["t"].to_numpy(), part["value"].to_numpy())


def _together(nodes: Sequence[Sequence[_Series]]) -> list[_Series]:
    """Sums over nodes of the series that all of them have, for the intervals that all of them have."""
    first, *others = nodes
    if not others:
        return list(first)
    summed = []
    for mine in first:
        same = [mine, *(each for node in others for each in node if each.metric == mine.metric)]
        interval = spacing(mine.t)
        if len(same) < len(nodes) or not interval > 0:
            continue
        slots = [np.rint(each.t / interval).astype(np.int64) for each in same]
        values = [
            dict(zip(slot.tolist(), each.values.tolist(), strict=True)) for slot, each in zip(slots, same, strict=True)
        ]
        common = sorted(set.intersection(*(set(each) for each in values)))
        t = np.array(common, dtype=np.float64) * interval
        summed.append(_Series(mine.metric, mine.unit, t, np.array([sum(each[at] for each in values) for at in common])))
    return summed


def _leading(those: Iterable[_Series]) -> list[_Series]:
    by_name = {each.metric: each for each in those}
    phases = [each for name, each in by_name.items() if name.endswith(".rate")]
    for last in _LEADING:
        if last in by_name:
            return [by_name[last], *phases]
        alone = [each for name, each in by_name.items() if name.endswith(f".{last}")]
        if alone:
            return [*alone, *phases]
    return phases


def _values(series: _Series) -> Iterator[Value]:
    interval = spacing(series.t)
    if len(series.values) < FEWEST or not interval > 0:
        return
    found = variability(series.values, interval)
    yield from _of(series.metric, series.unit, found)


def _of(name: str, unit: str, found: Variability) -> Iterator[Value]:
    yield Value(f"{name}.variance", found.variance, _SQUARED[unit], "lower", "none")
    yield Value(f"{name}.sigma", found.sigma, unit, "lower", "none")
    if found.cv is not None:
        yield Value(f"{name}.cv", found.cv, "1", "lower", "none")
    yield Value(f"{name}.outliers", found.outliers, "1", "lower", "none")
    yield Value(f"{name}.longest_stall", found.longest_stall, "s", "lower", "none")
