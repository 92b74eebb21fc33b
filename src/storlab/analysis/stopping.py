"""Whether a run has measured enough, and how much is still to do.

The intervals are anytime-valid, so asking after every round costs no correctness.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from storlab.analysis.stats.forecast import rounds_to_tell, tellable
from storlab.analysis.summary import Comparison, Summary
from storlab.analysis.sweeps.precision import open_points, points, rounds_left
from storlab.analysis.verdict import is_endless
from storlab.findings import AnyFinding, NotYet, Stopped
from storlab.findings.runs import (
    Answered,
    PointsKnown,
    PointsMoving,
    PointsOpen,
    PointsSteady,
    RoundsDone,
    Unanswered,
)

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
    if not answerable:
        return Decision(True, Stopped(done, "nothing to compare"))
    open_ones = [c for c in answerable if not is_satisfied(c, rule)]
    if not open_ones:
        return Decision(True, Stopped(done, "reached", _answered(rule, answerable)))
    missing = Unanswered(rule.until, len(open_ones), len(answerable), rule.precision)
    expected = _expected(open_ones, rule, at_least=1) if left > 0 else None
    return _going_on(summary, rule, missing, expected)


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


def _answered(rule: Rule, done: Sequence[Comparison]) -> Answered:
    never = 0
    if rule.until == "gates":
        never = sum(any(r.outcome in ("undecided", "missing") for r in c.gates) for c in done)
    elif rule.until == "decided":
        never = sum(c.verdict == "undecided" for c in done)
    return Answered(rule.until, len(done) - never, never, rule.precision)


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
    """The standard deviation of the log ratio that an interval of this width shows; ``None`` without one."""
    if comparison.low is None or comparison.high is None or is_endless(comparison.low) or is_endless(comparison.high):
        return None
    return math.log(comparison.high / comparison.low) / 2 / tellable(comparison.rounds, 1 - comparison.confidence)
