"""How far checkpoints slow a load down: what the probe ``server`` saw, held against the series of the load."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from storlab.measurements import Measurements
from storlab.metrics import CHECKPOINT, Value
from storlab.probes.server.counters import SPECS
from storlab.timeseries.dips import Event, dips

_RATE = "tps"


def checkpoint_dips(loads: Iterable[Measurements], seen: Iterable[Measurements]) -> list[Value]:
    """Median and worst of a trial's checkpoints; none where there was no checkpoint, or nothing to hold it against.

    Several loads, or several servers, would say nothing of each other: of these there is none either.
    """
    rates = [each.series.filter(pl.col("job").is_null(), metric=_RATE).sort("t") for each in loads]
    marks = [each.series.filter(metric=CHECKPOINT[1]).sort("t") for each in seen]
    if len(rates) != 1 or len(marks) != 1:
        return []
    (rate,), (mark,) = rates, marks
    events = [Event(begin, begin + took) for begin, took in mark.select("t", "value").iter_rows()]
    found = [each for each in dips(rate["t"].to_numpy(), rate["value"].to_numpy(), events) if each is not None]
    if not found:
        return []
    columns = {"depth": [each.depth for each in found], "length": [each.length for each in found]}
    return [
        SPECS[f"checkpoint.dip.{of}.{which}"].value(float(fold(column)))
        for of, column in columns.items()
        for which, fold in (("median", np.median), ("max", np.max))
    ]
