"""Whether each point of the primary metric has become steady over the rounds, by SNIA's definition.

A round of a study is what SNIA's *Solid State Storage Performance Test Specification* 2.0 calls one: a pass over all
cells. Looked at are the last five: range and slope as in ``timeseries.steady``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from storlab.analysis.design import Design, Levels
from storlab.analysis.estimates import Recorded
from storlab.analysis.summary import SteadyWindow
from storlab.metrics import named
from storlab.timeseries.steady import SNIA_WINDOW, window_of


def steady_windows(recorded: Recorded, design: Design) -> tuple[SteadyWindow, ...]:
    """The last rounds of each point, in the order of the cells; none where the study does not ask."""
    if not design.steady:
        return ()
    known = dict.fromkeys(recorded.series.select("source", "metric").iter_rows())
    keys = set(named(design.primary, known))
    cells = dict(design.cells)
    found = []
    for row in recorded.series.iter_rows(named=True):
        if (row["source"], row["metric"]) in keys:
            values = recorded.values.filter(pl.col("series") == row["series"]).drop_nulls("value")
            about = (row["cell"], cells[row["cell"]], row["source"], row["metric"], row["unit"])
            found.append(_judged(about, values["round"].to_list(), values["value"].to_list()))
    return tuple(found)


def _judged(about: tuple[int, Levels, str, str, str], rounds: Sequence[int], values: Sequence[float]) -> SteadyWindow:
    """Too few rounds, and values that are no numbers, are not steady."""
    last = values[-SNIA_WINDOW:]
    span = (rounds[-len(last)], rounds[-1]) if last else (0, 0)
    if len(last) < SNIA_WINDOW or not np.isfinite(last).all():
        return SteadyWindow(*about, *span, mean=None, range=None, slope=None, steady=False)
    found = window_of(np.array(last, dtype=float))
    return SteadyWindow(*about, *span, mean=found.mean, range=found.range, slope=found.slope, steady=found.steady)
