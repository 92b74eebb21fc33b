"""Tests of ``storlab.analysis.stopping``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from storlab.analysis.compare import Question, compare
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stopping import Continue, Rule, Stop, decide, precision_of
from storlab.analysis.summary import Comparison, SteadyWindow, Summary


def comparison(effect: float, rounds: int, sd: float = 0.05, seed: int = 3) -> Comparison:
    """Of the first ``rounds`` rounds of one long series."""
    series = effect + sd * np.random.default_rng(seed).normal(size=500)
    pairs = Pairs(np.arange(1, rounds + 1), series[:rounds])
    asked = Question("fs", "xfs", "ext4", {}, False, "load", "bandwidth", "B/s", "higher")
    return compare(asked, pairs, 0.05)


def summary(rounds: int, *comparisons: Comparison) -> Summary:
    return Summary("A study", "bandwidth", 0.95, rounds, "", comparisons=comparisons)


def test_a_run_stops_once_every_comparison_is_decided() -> None:
    rule = Rule("decided")
    clear, unclear = comparison(0.4, 10), comparison(0.06, 10)
    assert decide(summary(10, clear), rule) == Stop("Stopped after 10 rounds: 1 comparison decided.")
    found = decide(summary(10, clear, unclear), rule)
    assert isinstance(found, Continue)
    assert found.reason.startswith("After 10 rounds: 1 of 2 comparisons is undecided; about ")
    assert found.remaining == unclear.rounds_to_decide


def test_what_no_rounds_can_decide_keeps_no_run_going_and_is_not_called_decided() -> None:
    differs = replace(comparison(0.4, 10), verdict="undecided", better="neither", settled=True)
    said = "Stopped after 10 rounds: 1 comparison decided, 1 that no rounds can decide."
    assert decide(summary(10, comparison(0.4, 10), differs), Rule("decided")) == Stop(said)


def test_a_run_stops_once_every_interval_is_narrow_enough_decided_or_not() -> None:
    rule = Rule("precision", precision=0.05)
    assert isinstance(decide(summary(8, comparison(0.0, 8)), rule), Continue)
    found = decide(summary(25, comparison(0.0, 25)), rule)
    assert found == Stop("Stopped after 25 rounds: 1 comparison known to ±5 % or better.")


def test_the_most_rounds_end_a_run_undecided_in_so_many_words() -> None:
    found = decide(summary(30, comparison(0.06, 10)), Rule("decided", max_rounds=30))
    reason = "Stopped after 30 rounds, the most that the study allows: 1 of 1 comparison is undecided."
    assert found == Stop(reason)


def test_no_run_stops_before_the_least_rounds() -> None:
    found = decide(summary(4, comparison(0.4, 9)), Rule("decided", min_rounds=7))
    assert found == Continue("4 of at least 7 rounds done.", 3)


def test_a_fixed_number_of_rounds_is_just_that() -> None:
    rule = Rule("rounds", max_rounds=12)
    assert decide(summary(5), rule) == Continue("5 of 12 planned rounds done.", 7)
    assert decide(summary(12), rule) == Stop("All 12 planned rounds are done.")


@pytest.mark.parametrize("until", ["decided", "precision"])
def test_comparisons_without_an_answer_do_not_keep_a_run_going(until: str) -> None:
    hopeless = replace(comparison(0.4, 10), ratio=None, low=None, high=None, settled=True, verdict="undecided")
    rule = Rule(until, precision=0.2)  # type: ignore[arg-type]
    assert isinstance(decide(summary(10, hopeless, comparison(0.4, 10)), rule), Stop)
    assert decide(summary(10, hopeless), rule) == Stop("Stopped after 10 rounds: there is nothing to compare.")


def test_comparisons_still_waiting_for_a_round_do_keep_it_going() -> None:
    waiting = replace(comparison(0.4, 10), ratio=None, low=None, high=None, settled=False, rounds_to_decide=None)
    for rule in (Rule("decided"), Rule("precision")):
        found = decide(summary(10, waiting), rule)
        assert isinstance(found, Continue) and found.remaining is None
        assert "not yet estimable" in found.reason


def test_a_forecast_beyond_what_the_study_allows_says_so() -> None:
    found = decide(summary(10, comparison(0.0, 10)), Rule("precision", precision=0.01, max_rounds=12))
    assert isinstance(found, Continue)
    assert found.reason.endswith("of which the study allows 2.")


def test_the_forecast_of_precision_is_about_right() -> None:
    off = []
    for seed in range(20):
        found = decide(summary(15, comparison(0.1, 15, seed=seed)), Rule("precision", precision=0.02, max_rounds=500))
        assert isinstance(found, Continue) and found.remaining is not None
        reached = ((n, precision_of(comparison(0.1, n, seed=seed)) or 1) for n in range(15, 300))
        off.append(next(n for n, precision in reached if precision <= 0.02) / (15 + found.remaining))
    assert 0.7 < np.median(off) < 1.4


def test_precision_is_half_of_the_interval_as_a_ratio() -> None:
    found = replace(comparison(0.0, 10), low=1 / 1.05, high=1.05)
    assert precision_of(found) == pytest.approx(0.05)
    assert precision_of(replace(found, low=None)) is None


@pytest.mark.parametrize(
    "arguments", [{"min_rounds": 0}, {"min_rounds": 9, "max_rounds": 8}, {"precision": 0.0}, {"precision": -1.0}]
)
def test_rules_that_can_not_be_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"rounds|precision"):
        Rule("precision", **arguments)  # type: ignore[arg-type]


def window(cell: int, *, steady: bool) -> SteadyWindow:
    return SteadyWindow(cell, {}, "load", "bandwidth", "B/s", 4, 8, 1e6, 0.1, 0.05, steady)


def test_steady_state_is_waited_for_at_every_point_and_at_most_for_all_rounds() -> None:
    rule = Rule("steady", max_rounds=25)
    steady, moving = window(1, steady=True), window(2, steady=False)
    both = replace(summary(8), steady=(steady, moving))
    found = decide(both, rule)
    assert isinstance(found, Continue)
    assert found.reason.startswith(
        "After 8 rounds: 1 of 2 points of bandwidth not in steady state (over 5 rounds, range ≤ 20 %"
    )
    ended = decide(replace(both, steady=(steady, steady)), rule)
    assert isinstance(ended, Stop)
    assert ended.reason.startswith("Stopped after 8 rounds: 2 points of bandwidth in steady state")
    late = decide(replace(both, rounds_done=25), rule)
    assert isinstance(late, Stop)
    assert late.reason.startswith("Stopped after 25 rounds, the most that the study allows: 1 of 2 points")
