"""What was found in the series of trials: one row a series in ``findings.parquet``, and the sentences made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from storlab.records.columns import COLUMNS
from storlab.timeseries.findings import SeriesFindings
from storlab.timeseries.wording import Examined, warnings


@dataclass(frozen=True)
class ExaminedSeries:
    """One series of one trial, of all nodes together. ``place`` has the columns of ``PLACES``."""

    place: Mapping[str, object]
    metric: str
    unit: str
    found: SeriesFindings


def findings_frame(examined: Iterable[ExaminedSeries]) -> pl.DataFrame:
    """``findings.parquet``."""
    rows = [
        {**each.place, "metric": each.metric, "unit": each.unit, **vars(each.found), "changes": _changes(each.found)}
        for each in examined
    ]
    return pl.DataFrame(rows, schema=COLUMNS["findings"])


def _changes(found: SeriesFindings) -> list[dict[str, float]]:
    return [vars(change) for change in found.changes]


def said_of(examined: Iterable[ExaminedSeries], levels: Mapping[int, str]) -> list[str]:
    """What a reader must know of these, over all trials. ``levels``: trial → the levels that it was of, in words."""
    return warnings(_named(each, int(str(each.place["trial"])), levels) for each in examined)


def _named(each: ExaminedSeries, trial: int, levels: Mapping[int, str]) -> Examined:
    return Examined(f"{each.place['source']}, {each.metric}", each.found, trial, levels.get(trial, ""))
