"""Whether each point of the primary metric has become steady over the rounds, by SNIA's definition, and since when.

A round of a study is what SNIA's *Solid State Storage Performance Test Specification* 2.0 calls one: a pass over all
cells. Looked at are the last five: range and slope as in ``timeseries.steady``.

A study that stops at steady state asks what set-ups do in it, so only its rounds are reported: those from which on
every five in a row were steady at every point, since all points wear the same device. Until then nothing is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storlab.analysis.design import Design, Levels
from storlab.analysis.estimates import Recorded
from storlab.analysis.summary import SteadyWindow
from storlab.findings.answers import NotSteady
from storlab.metrics import named
from storlab.timeseries.steady import SNIA_WINDOW, snia_since, window_of


@dataclass(frozen=True)
class SteadyState:
    """``windows``: the last rounds of each point, in the order of the cells.

    ``since``: the first round to report; where a point is not steady, the first of its last five. ``lacking``: why
    nothing can be judged yet; ``None`` once all points are steady.
    """

    windows: tuple[SteadyWindow, ...] = ()
    since: int = 1
    lacking: NotSteady | None = None


def steady_state(recorded: Recorded, design: Design) -> SteadyState:
    """Of all points of the primary metric; no windows, and all rounds, where the study does not ask."""
    if not design.steady:
        return SteadyState()
    known = dict.fromkeys(recorded.series.select("source", "metric").iter_rows())
    keys = set(named(design.primary, known))
    cells = dict(design.cells)
    windows, since = [], 1
    for row in recorded.series.iter_rows(named=True):
        if (row["source"], row["metric"]) in keys:
            of_point = recorded.values.filter(pl.col("series") == row["series"]).drop_nulls("value")
            rounds, values = of_point["round"].to_list(), of_point["value"].to_list()
            about = (row["cell"], cells[row["cell"]], row["source"], row["metric"], row["unit"])
            windows.append(_judged(about, rounds, values))
            if rounds:
                begin = snia_since(np.array(values, dtype=float))
                since = max(since, rounds[max(len(rounds) - SNIA_WINDOW, 0) if begin is None else begin])
    return SteadyState(tuple(windows), since, _lacking(windows, design.primary))


def _lacking(windows: Sequence[SteadyWindow], primary: str) -> NotSteady | None:
    moving = sum(not window.steady for window in windows)
    if windows and not moving:
        return None
    return NotSteady(moving, len(windows), windows[0].metric if windows else primary)


def _judged(about: tuple[int, Levels, str, str, str], rounds: Sequence[int], values: Sequence[float]) -> SteadyWindow:
    last = values[-SNIA_WINDOW:]
    span = (rounds[-len(last)], rounds[-1]) if last else (0, 0)
    if len(last) < SNIA_WINDOW or not np.isfinite(last).all():
        return SteadyWindow(*about, *span, mean=None, range=None, slope=None, steady=False)
    found = window_of(np.array(last, dtype=float))
    return SteadyWindow(*about, *span, mean=found.mean, range=found.range, slope=found.slope, steady=found.steady)
