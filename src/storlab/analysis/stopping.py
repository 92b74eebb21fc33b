"""Whether a run has measured enough, and how much is still to do.

The intervals are anytime-valid, so asking after every round costs no correctness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from storlab.analysis.design import Design, Levels
from storlab.analysis.estimates import Recorded
from storlab.analysis.stats.anytime import FORESEEABLE, width_factor
from storlab.analysis.stats.forecast import rounds_to_tell, tellable
from storlab.analysis.summary import CellState, Comparison, Estimate, SteadyWindow, Summary
from storlab.analysis.verdict import is_endless
from storlab.base.text import grouped
from storlab.findings import AnyFinding, NotYet, Stopped
from storlab.findings.answers import NotSteady
from storlab.findings.runs import (
    Answered,
    PointsKnown,
    PointsMoving,
    PointsOpen,
    PointsSteady,
    Rested,
    RoundsDone,
    Unanswered,
)
from storlab.metrics import named
from storlab.timeseries.steady import SNIA_WINDOW, snia_since, window_of

# When enough is known of a curve: once the interval of each of its points is narrow enough.
#
# The intervals are anytime-valid (``stats.anytime``), so looking at them after every round costs no correctness.

CURVE_PRECISION = 0.10
"""Half-width of a point's interval as a share of its mean, where the study names none: what a curve shows as a line."""


def points(summary: Summary) -> list[Estimate]:
    keys = set(named(summary.primary, dict.fromkeys((e.source, e.metric) for e in summary.estimates)))
    return [e for e in summary.estimates if (e.source, e.metric) in keys]


def relative_width(point: Estimate) -> float | None:
    """Half-width of its interval as a share of its mean; ``None`` without an interval, or for a mean of 0."""
    if point.high is None or not point.mean:
        return None
    return abs((point.high - point.mean) / point.mean)  # the lower end may have been cut off at 0


def open_points(summary: Summary, precision: float) -> list[Estimate]:
    """The points that are not yet known to ± ``precision``. A point that is 0 in every round is known."""
    return [point for point in points(summary) if not _is_known(point, precision)]


def _is_known(point: Estimate, precision: float) -> bool:
    width = relative_width(point)
    return width <= precision if width is not None else point.mean == 0 and point.sd == 0


def rounds_left(points: list[Estimate], precision: float) -> int | None:
    """More rounds until all are known to ± ``precision``, if they vary as they did; ``None`` where that is unknown."""
    return max(_each(points, precision), default=None) if all(point.cv is not None for point in points) else None


def _each(points: list[Estimate], precision: float) -> Iterator[int]:
    for point in points:
        needed = next(
            (n for n in range(2, FORESEEABLE) if width_factor(n, 1 - point.confidence) * (point.cv or 0) <= precision),
            FORESEEABLE,
        )
        yield max(1, needed - point.rounds)


Until = Literal["precision", "decided", "gates", "rounds", "points", "steady"]


@dataclass(frozen=True)
class Rule:
    """When to stop: after ``min_rounds``, as soon as ``until`` holds, and after ``max_rounds`` in any case.

    ``precision``: every comparison's interval is within ± ``precision`` (0.05 for ±5 %) of its ratio, as √(high ÷ low)
    − 1. ``decided``: every comparison has its verdict. ``gates``: every gate is hit or passed.
    ``points``: the interval of every point of the primary metric is within ± ``precision`` of its mean, of a study with
    nothing but sweeps, and each of its objectives is settled. ``steady``: the last five rounds of every point of the
    primary metric are steady, as SNIA defines it. ``rounds``: ``max_rounds``, no sooner. Comparisons that
    can't have an answer don't keep a run going. Raises ``ValueError`` for rules that can't be.
    """

    until: Until
    min_rounds: int = 5
    max_rounds: int = 30
    precision: float = 0.05

    def __post_init__(self) -> None:
        if not 1 <= self.min_rounds <= self.max_rounds:
            raise ValueError(f"min_rounds is {self.min_rounds}, max_rounds {self.max_rounds}; 1 ≤ min ≤ max")
        if not 0 < self.precision < math.inf:
            raise ValueError(f"precision is {self.precision}; it must be above 0, such as 0.05")


@dataclass(frozen=True)
class Decision:
    """Whether to stop, and why; ``remaining``: how many rounds are still expected, ``None`` if that can't be told."""

    stop: bool
    why: AnyFinding
    remaining: int | None = None


def decide(summary: Summary, rule: Rule) -> Decision:
    """Whether to stop after the rounds of ``summary``."""
    done, left = summary.rounds_done, rule.max_rounds - summary.rounds_done
    if rule.until == "rounds":
        return Decision(left <= 0, RoundsDone(min(done, rule.max_rounds), rule.max_rounds), left if left > 0 else None)
    if done < rule.min_rounds:
        expected = _expected(summary.comparisons, rule, at_least=rule.min_rounds - done)
        return Decision(False, RoundsDone(done, rule.min_rounds, least=True), expected)
    if rule.until == "points":
        return _of_points(summary, rule)
    if rule.until == "steady":
        return _of_windows(summary, rule)
    answerable = [c for c in summary.comparisons if not c.described and not (c.settled and c.ratio is None)]
    # Claims that compare levels are settled with their comparisons.
    claims = [c for c in summary.claims if not c.right and c.verdict != "missing"] if rule.until == "decided" else []
    if not answerable and not claims:
        return Decision(True, Stopped(done, "nothing to compare"))
    open_ones, unsettled = [c for c in answerable if not is_satisfied(c, rule)], sum(not c.settled for c in claims)
    if not open_ones and not unsettled:
        return Decision(True, Stopped(done, "reached", _answered(rule, answerable, len(claims))))
    missing = Unanswered(rule.until, len(open_ones), len(answerable), rule.precision, unsettled)
    expected = _expected(open_ones, rule, at_least=1) if left > 0 and not unsettled else None
    return _going_on(summary, rule, missing, expected, forecast=not unsettled)


def _going_on(
    summary: Summary, rule: Rule, missing: AnyFinding, expected: int | None, *, forecast: bool = True
) -> Decision:
    """Stop at the most rounds that the study allows, and else continue. ``forecast``: as of ``NotYet``."""
    done, left = summary.rounds_done, rule.max_rounds - summary.rounds_done
    if left <= 0:
        return Decision(True, Stopped(done, "most", missing))
    return Decision(False, NotYet(done, missing, expected, left, forecast), expected)


def _of_points(summary: Summary, rule: Rule) -> Decision:
    every, lacking = points(summary), open_points(summary, rule.precision)
    unsettled = sum(not objective.settled for objective in summary.objectives)
    if not lacking and not unsettled:
        known = PointsKnown(len(every), summary.primary, rule.precision)
        return Decision(True, Stopped(summary.rounds_done, "reached", known))
    missing = PointsOpen(len(lacking), len(every), rule.precision, unsettled, len(summary.objectives))
    expected = None if unsettled else rounds_left(lacking, rule.precision)
    return _going_on(summary, rule, missing, expected, forecast=False)


def _of_windows(summary: Summary, rule: Rule) -> Decision:
    every = summary.steady
    moving = sum(not window.steady for window in every)
    if not moving:
        steady = PointsSteady(len(every), summary.primary, summary.reported_since)
        return Decision(True, Stopped(summary.rounds_done, "reached", steady))
    missing = PointsMoving(moving, len(every), summary.primary)
    return _going_on(summary, rule, missing, None, forecast=False)


def precision_of(comparison: Comparison) -> float | None:
    """Half-width of the interval as a share of the ratio: √(high ÷ low) − 1; ``None`` without an interval."""
    if comparison.low is None or comparison.high is None:
        return None
    return math.sqrt(comparison.high / comparison.low) - 1


def is_satisfied(comparison: Comparison, rule: Rule) -> bool:
    """Whether the rule asks for no more rounds of this comparison."""
    if rule.until == "decided":
        return comparison.settled
    if rule.until == "gates":
        return all(result.settled or result.outcome in ("hit", "passed") for result in comparison.gates)
    reached = precision_of(comparison)
    return reached is not None and reached <= rule.precision


def _answered(rule: Rule, done: Sequence[Comparison], claims: int) -> Answered:
    never = 0
    if rule.until == "gates":
        never = sum(any(r.outcome in ("undecided", "missing") for r in c.gates) for c in done)
    elif rule.until == "decided":
        never = sum(c.verdict == "undecided" for c in done)
    return Answered(rule.until, len(done) - never, never, rule.precision, claims)


def _expected(comparisons: Iterable[Comparison], rule: Rule, at_least: int) -> int | None:
    """Rounds that the slowest of ``comparisons`` is expected to need; ``None`` if any can't be told."""
    most = at_least
    for comparison in comparisons:
        if is_satisfied(comparison, rule) or (comparison.settled and comparison.ratio is None):
            continue
        needed = (
            comparison.rounds_to_decide
            if rule.until in ("decided", "gates")
            else _rounds_to_precision(comparison, rule)
        )
        if needed is None:
            return None
        most = max(most, needed)
    return most


def _rounds_to_precision(comparison: Comparison, rule: Rule) -> int | None:
    sd = spread_of(comparison)
    if sd is None:
        return None
    total = rounds_to_tell(math.log1p(rule.precision) / sd if sd > 0 else math.inf, 1 - comparison.confidence)
    return None if total is None else max(1, total - comparison.rounds)


def spread_of(comparison: Comparison) -> float | None:
    """The standard deviation of the log ratio; ``None`` without an interval.

    Summaries of older versions don't have it: of those it is what the width of the interval shows.
    """
    if comparison.low is None or comparison.high is None or is_endless(comparison.low) or is_endless(comparison.high):
        return None
    if comparison.spread is not None:
        return comparison.spread
    return math.log(comparison.high / comparison.low) / 2 / tellable(comparison.rounds, 1 - comparison.confidence)


# Which cells a run need not run again: those that no open comparison is about.
#
# A comparison whose cells rest gets no further rounds, so its evidence stays what it is. The decision to let it rest
# is made after a round, by what is known then, and evidence that is stopped in such a way is as valid as if it went
# on (a martingale that is stopped is one). So it takes part in closed testing with what it had, and is judged as it
# was when it came to rest (``judging``): what was decided stays decided, whatever later rounds bring elsewhere.
#
# Cells that no comparison is about go on: nothing says when enough is known of them. Nor do those of a study with
# nothing but sweeps rest: what is said of a whole curve, such as where it bends, compares its points round by round.
# And what waits for steady state waits for all cells together, since each of them wears the same device.


def to_rest(summary: Summary, rule: Rule) -> dict[int, Rested]:
    """Cells that are due no longer after the rounds of ``summary``, and of each why."""
    if rule.until in ("rounds", "points", "steady") or summary.rounds_done < rule.min_rounds:
        return {}
    about = grouped((cell, c) for c in summary.comparisons for cell in cells_of(c, summary.cells))
    claimed = [c.left.items() for c in summary.claims if not c.settled]
    due = {cell.cell for cell in summary.cells if any(levels <= cell.levels.items() for levels in claimed)}
    return {
        cell: _why(those, rule)
        for cell, those in about.items()
        if cell not in due and not any(_is_open(c, rule) for c in those)
    }


def cells_of(comparison: Comparison, cells: Sequence[CellState]) -> Iterator[int]:
    sides = grouped(
        (tuple(each for each in cell.levels.items() if each[0] != comparison.factor), cell) for cell in cells
    )
    for levels, those in sides.items():
        found = {cell.levels.get(comparison.factor, ""): cell.cell for cell in those}
        if comparison.within.items() <= dict(levels).items():
            both = comparison.a in found and comparison.b in found
            yield from (found[comparison.a], found[comparison.b]) if both else ()


def _is_open(comparison: Comparison, rule: Rule) -> bool:
    if comparison.described or (comparison.settled and comparison.ratio is None):  # there never can be an answer
        return False
    if rule.until == "gates" and not comparison.settled:  # as long as it may yet be decided
        return not is_satisfied(comparison, rule) or any(gate.gate == "undecided" for gate in comparison.gates)
    return not is_satisfied(comparison, rule)


def _why(comparisons: Sequence[Comparison], rule: Rule) -> Rested:
    having = [c.ratio is not None for c in comparisons]
    if not any(having):
        return Rested("no answer")
    if rule.until == "gates":
        return Rested("gates")
    if rule.until == "precision":
        return Rested("precision", not all(having), rule.precision)
    return Rested("decided", not all(having))


# Whether each point of the primary metric has become steady over the rounds, by SNIA's definition, and since when.
#
# A round of a study is what SNIA's *Solid State Storage Performance Test Specification* 2.0 calls one: a pass over
# all cells. Looked at are the last five: range and slope as in ``timeseries.steady``.
#
# A study that stops at steady state asks what set-ups do in it, so only its rounds are reported: those from which on
# every five in a row were steady at every point, since all points wear the same device. Until then nothing is judged.


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
