"""What many trials measured as rows of the tables, all at once: trial by trial takes five times as long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storlab.measurements import Measurements, Value, metric_frame
from storlab.metrics import Declarations
from storlab.records.across_nodes import across_nodes
from storlab.records.columns import COLUMNS, PLACES
from storlab.records.fairness import of_jobs
from storlab.records.tables import TrialTables
from storlab.records.trial_record import TrialRecord

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
    declarations = {(source, id(one.declared)): (source, one.declared) for _, _, source, _, one in each}
    tables = TrialTables(declared=list(declarations.values()))
    for table in ("series", "histograms", "requests"):
        rows = _placed(places, [getattr(one, table) for one in measured])
        if rows is not None:
            getattr(tables, table).append(rows.select(list(COLUMNS[table])))
    metrics = _placed(places, [one.metrics for one in measured])
    told = _told(groups)
    declared = Declarations.union(tables.declared)
    parts = [told] if metrics is None else [metrics, *_together(metrics, groups, declared), told]
    tables.metrics.append(pl.concat(parts).sort(_GROUP, maintain_order=True).select(list(COLUMNS["metrics"])))
    return tables


def _together(metrics: pl.DataFrame, groups: Sequence[Group], declared: Declarations) -> list[pl.DataFrame]:
    """What ``across_nodes`` makes of each group; of all that have one node at once."""
    several = {
        number: group for number, group in enumerate(groups) if isinstance(group, Measured) and len(group.by_node) > 1
    }
    alone = metrics.filter(~pl.col(_GROUP).is_in(list(several))) if several else metrics
    parts = [alone.filter(pl.col("job").is_null(), pl.col("across") != "none")]
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
    return [part.with_columns(pl.lit(None, pl.String).alias("node")) for part in parts]


def _of_all(rows: pl.DataFrame, numbers: Sequence[int], groups: Sequence[Group]) -> pl.DataFrame:
    """``rows`` of metrics, each of all nodes together of the group of its number."""
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
