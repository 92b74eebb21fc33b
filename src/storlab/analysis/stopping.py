"""Whether a run has measured enough, and how much is still to do, in words for its user.

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
from storlab.analysis.wording import endless, percent, plural
from storlab.timeseries.steady import SNIA_RANGE, SNIA_SLOPE, SNIA_WINDOW

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
class Stop:
    """Enough was measured; ``reason`` is one sentence."""

    reason: str


@dataclass(frozen=True)
class Continue:
    """More rounds are needed; ``remaining`` is how many are expected, ``None`` where that can't be told."""

    reason: str
    remaining: int | None


def decide(summary: Summary, rule: Rule) -> Stop | Continue:
    """Whether to stop after the rounds of ``summary``."""
    done, left = summary.rounds_done, rule.max_rounds - summary.rounds_done
    if rule.until == "rounds":
        if left <= 0:
            one = rule.max_rounds == 1
            return Stop("The one planned round is done." if one else f"All {rule.max_rounds} planned rounds are done.")
        return Continue(f"{done} of {plural(rule.max_rounds, 'planned round')} done.", left)
    if done < rule.min_rounds:
        reason = f"{done} of at least {plural(rule.min_rounds, 'round')} done."
        return Continue(reason, _expected(summary.comparisons, rule, at_least=rule.min_rounds - done))
    if rule.until == "points":
        return _of_points(summary, rule)
    if rule.until == "steady":
        return _of_windows(summary, rule)
    answerable = [c for c in summary.comparisons if not c.described and not (c.settled and c.ratio is None)]
    if not answerable:
        return Stop(f"Stopped after {plural(done, 'round')}: there is nothing to compare.")
    open_ones = [c for c in answerable if not is_satisfied(c, rule)]
    if not open_ones:
        return Stop(f"Stopped after {plural(done, 'round')}: {_goal(rule, answerable)}.")
    missing = f"{len(open_ones)} of {plural(len(answerable), 'comparison')} {_lack(rule, len(open_ones))}"
    if left <= 0:
        return Stop(f"Stopped after {plural(done, 'round')}, the most that the study allows: {missing}.")
    expected = _expected(open_ones, rule, at_least=1)
    if expected is None:
        forecast = "the number of rounds still needed is not yet estimable"
    elif expected > left:
        forecast = f"about {plural(expected, 'more round')} expected, of which the study allows {left}"
    else:
        forecast = f"about {plural(expected, 'more round')} expected"
    return Continue(f"After {plural(done, 'round')}: {missing}; {forecast}.", expected)


def _of_points(summary: Summary, rule: Rule) -> Stop | Continue:
    every, lacking = points(summary), open_points(summary, rule.precision)
    after, known = plural(summary.rounds_done, "round"), f"known to ±{percent(rule.precision)}"
    unsettled = sum(not objective.settled for objective in summary.objectives)
    if not lacking and not unsettled:
        what = f"{plural(len(every), 'point')} of {summary.primary} {known} or better" if every else "no point to know"
        return Stop(f"Stopped after {after}: {what}.")
    of_points = f"{len(lacking)} of {plural(len(every), 'point')} not yet {known}" if lacking else ""
    objectives = plural(len(summary.objectives), "objective")
    of_objectives = f"{unsettled} of {objectives} not settled between two steps" if unsettled else ""
    missing = ", ".join(filter(None, (of_points, of_objectives)))
    left, expected = rule.max_rounds - summary.rounds_done, rounds_left(lacking, rule.precision)
    if left <= 0:
        return Stop(f"Stopped after {after}, the most that the study allows: {missing}.")
    if expected is None or unsettled:
        return Continue(f"After {after}: {missing}.", None)
    allowed = f", of which the study allows {left}" if expected > left else ""
    return Continue(f"After {after}: {missing}; about {plural(expected, 'more round')} expected{allowed}.", expected)


STEADY = f"over {SNIA_WINDOW} rounds, range ≤ {percent(SNIA_RANGE)} and slope ≤ {percent(SNIA_SLOPE)} of the mean"
"""SNIA's rule in a clause."""


def _of_windows(summary: Summary, rule: Rule) -> Stop | Continue:
    every, after = summary.steady, plural(summary.rounds_done, "round")
    moving = sum(not window.steady for window in every)
    points = f"{plural(len(every), 'point')} of {summary.primary}"
    if not moving:
        reported = f"{points} in steady state ({STEADY}), reported from round {summary.reported_since} on"
        what = reported if every else "no point could be measured"
        return Stop(f"Stopped after {after}: {what}.")
    missing = f"{moving} of {points} not in steady state ({STEADY})"
    if summary.rounds_done >= rule.max_rounds:
        return Stop(f"Stopped after {after}, the most that the study allows: {missing}.")
    return Continue(f"After {after}: {missing}.", None)


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


def _goal(rule: Rule, done: Sequence[Comparison]) -> str:
    if rule.until == "gates":
        never = sum(any(r.outcome in ("undecided", "missing") for r in c.gates) for c in done)
        more = f", {never} that no rounds can answer" if never else ""
        return f"every gate is answered for {plural(len(done) - never, 'comparison')}{more}"
    if rule.until != "decided":
        return f"{plural(len(done), 'comparison')} known to ±{percent(rule.precision)} or better"
    never = sum(c.verdict == "undecided" for c in done)
    return f"{plural(len(done) - never, 'comparison')} decided{f', {never} that no rounds can decide' if never else ''}"


def _lack(rule: Rule, count: int) -> str:
    verb = "is" if count == 1 else "are"
    if rule.until == "decided":
        return f"{verb} undecided"
    if rule.until == "gates":
        return "have a gate without an answer" if count > 1 else "has a gate without an answer"
    return f"{verb} not yet known to ±{percent(rule.precision)}"


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
    """More rounds until the interval is narrow enough, if the spread stays what the interval shows."""
    sd = spread_of(comparison)
    if sd is None:
        return None
    total = rounds_to_tell(math.log1p(rule.precision) / sd if sd > 0 else math.inf, 1 - comparison.confidence)
    return None if total is None else max(1, total - comparison.rounds)


def spread_of(comparison: Comparison) -> float | None:
    """The standard deviation of the log ratio that an interval of this width shows; ``None`` without one."""
    if comparison.low is None or comparison.high is None or endless(comparison.low) or endless(comparison.high):
        return None
    return math.log(comparison.high / comparison.low) / 2 / tellable(comparison.rounds, 1 - comparison.confidence)
