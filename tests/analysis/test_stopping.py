"""When a run stops (decided, precise, steady, out of rounds), and what a study can decide, said before it runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storlab.analysis.compare import Question, compare
from storlab.analysis.design import ClaimSpec, Design
from storlab.analysis.estimates import Recorded
from storlab.analysis.foresight import (
    EFFECTS,
    ROUNDS,
    Foresight,
    TypicalNoise,
    foresee,
    noise_of,
    rounds_to_see,
    visible,
    warnings_of,
)
from storlab.analysis.judging import Gate
from storlab.analysis.questions import Planned
from storlab.analysis.runs.across_runs import compare_runs
from storlab.analysis.runs.merged_runs import RunData
from storlab.analysis.stats.anytime import mean_interval
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import fewest_rounds
from storlab.analysis.stopping import (
    Decision,
    Rule,
    SteadyState,
    decide,
    open_points,
    precision_of,
    relative_width,
    steady_state,
    to_rest,
)
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, Estimate, SteadyWindow, Summary
from storlab.analysis.verdict import Rules
from storlab.findings import Stopped
from storlab.findings.rounds import Unsupported
from storlab.findings.runs import Answered
from storlab.report.language.methods import earliest, forecast, too_few
from storlab.report.language.say import say
from storlab.report.language.words import lacking
from storlab.report.model.input import ReportInput
from storlab.timeseries.steady import snia_steady, window_of

from .simulate import Factors, Values, design, first_difference, log_ratios, tables
from .test_summarise import rates


def comparison(effect: float, rounds: int, sd: float = 0.05, seed: int = 3) -> Comparison:
    """Of the first ``rounds`` rounds of one long series."""
    series = effect + sd * np.random.default_rng(seed).normal(size=500)
    pairs = Pairs(np.arange(1, rounds + 1), series[:rounds])
    asked = Question("fs", "xfs", "ext4", {}, False, "load", "bandwidth", "B/s", "higher")
    return compare(asked, pairs, 0.05)


def summary(rounds: int, *comparisons: Comparison) -> Summary:
    return Summary("A study", "bandwidth", 0.95, rounds, None, comparisons=comparisons)


def told(found: Decision) -> tuple[bool, str, int | None]:
    return found.stop, say(found.why), found.remaining


def test_a_run_stops_once_every_comparison_is_decided_but_for_those_that_no_rounds_can_decide() -> None:
    rule, clear, unclear = Rule("decided"), comparison(0.4, 10), comparison(0.06, 10)
    assert decide(summary(10, clear), rule) == Decision(True, Stopped(10, "reached", Answered("decided", 1, 0, 0.05)))
    found = decide(summary(10, clear, unclear), rule)
    assert not found.stop
    assert say(found.why).startswith("After 10 rounds: 1 of 2 comparisons is undecided; about ")
    assert found.remaining == unclear.rounds_to_decide
    differs = replace(clear, verdict="undecided", better="neither", settled=True)
    ended = "Stopped after 10 rounds: 1 comparison decided, 1 that no rounds can decide."
    assert told(decide(summary(10, clear, differs), rule)) == (True, ended, None)


def test_a_run_stops_once_intervals_are_narrow_enough_decided_or_not() -> None:
    rule = Rule("precision", precision=0.05)
    assert not decide(summary(8, comparison(0.0, 8)), rule).stop
    found = decide(summary(25, comparison(0.0, 25)), rule)
    assert told(found) == (True, "Stopped after 25 rounds: 1 comparison known to ±5 % or better.", None)
    found = decide(summary(10, comparison(0.0, 10)), Rule("precision", precision=0.01, max_rounds=12))
    assert not found.stop and say(found.why).endswith("of which the study allows 2.")
    half = replace(comparison(0.0, 10), low=1 / 1.05, high=1.05)
    assert precision_of(half) == pytest.approx(0.05)
    assert precision_of(replace(half, low=None)) is None


def test_no_run_stops_before_the_least_rounds_and_the_most_end_it_undecided() -> None:
    found = decide(summary(30, comparison(0.06, 10)), Rule("decided", max_rounds=30))
    reason = "Stopped after 30 rounds, the most that the study allows: 1 of 1 comparison is undecided."
    assert told(found) == (True, reason, None)
    found = decide(summary(4, comparison(0.4, 9)), Rule("decided", min_rounds=7))
    assert told(found) == (False, "4 of at least 7 rounds done.", 3)
    rule = Rule("rounds", max_rounds=12)
    assert told(decide(summary(5), rule)) == (False, "5 of 12 planned rounds done.", 7)
    assert told(decide(summary(12), rule)) == (True, "All 12 planned rounds are done.", None)


@pytest.mark.parametrize("rule", [Rule("decided", precision=0.2), Rule("precision", precision=0.2)])
def test_comparisons_without_an_answer_keep_no_run_going_and_those_that_wait_for_a_round_do(rule: Rule) -> None:
    none = replace(comparison(0.4, 10), ratio=None, low=None, high=None, verdict="undecided", rounds_to_decide=None)
    hopeless, waiting = replace(none, settled=True), replace(none, settled=False)
    assert decide(summary(10, hopeless, comparison(0.4, 10)), rule).stop
    assert decide(summary(10, hopeless), rule) == Decision(True, Stopped(10, "nothing to compare"))
    found = decide(summary(10, waiting), rule)
    assert not found.stop and found.remaining is None and "not yet estimable" in say(found.why)


def test_the_forecast_of_precision_is_about_right() -> None:
    off = []
    for seed in range(20):
        found = decide(summary(15, comparison(0.1, 15, seed=seed)), Rule("precision", precision=0.02, max_rounds=500))
        assert not found.stop and found.remaining is not None
        reached = ((n, precision_of(comparison(0.1, n, seed=seed)) or 1) for n in range(15, 300, 3))
        off.append(next(n for n, precision in reached if precision <= 0.02) / (15 + found.remaining))
    assert 0.7 < np.median(off) < 1.4


@pytest.mark.parametrize(
    "arguments", [{"min_rounds": 0}, {"min_rounds": 9, "max_rounds": 8}, {"precision": 0.0}, {"precision": -1.0}]
)
def test_rules_that_can_not_be_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"rounds|precision"):
        Rule("precision", **arguments)  # type: ignore[arg-type]


def window(cell: int, *, steady: bool) -> SteadyWindow:
    return SteadyWindow(cell, {}, "load", "bandwidth", "B/s", 4, 8, 1e6, 0.1, 0.05, steady)


def test_steady_state_is_waited_for_at_every_point_and_at_most_for_all_rounds() -> None:
    steady, moving = window(1, steady=True), window(2, steady=False)
    both = replace(summary(8), steady=(steady, moving))
    some = "1 of 2 points of bandwidth not in steady state (over 5 rounds, range ≤ 20 %"
    for asked, stops, reason in (
        (both, False, f"After 8 rounds: {some}"),
        (replace(both, steady=(steady, steady)), True, "Stopped after 8 rounds: 2 points of bandwidth in steady state"),
        (replace(both, rounds_done=25), True, "Stopped after 25 rounds, the most that the study allows: 1 of 2 points"),
    ):
        found = decide(asked, Rule("steady", max_rounds=25))
        assert found.stop is stops and say(found.why).startswith(reason)


def point(cell: int, rounds: int, cv: float, mean: float = 100.0, metric: str = "iops") -> Estimate:
    """Rounds of exactly this spread."""
    values = np.linspace(-1, 1, rounds)
    known = mean_interval(mean + cv * mean * values / values.std(ddof=1), 0.05)
    of = (cell, {"qd": str(cell)}, "load", metric, "1/s", "higher", rounds, mean, mean, cv * mean, cv)
    return Estimate(*of, known.low, known.high, 0.95)


def of_points(rounds: int, *points: Estimate) -> Summary:
    return Summary("A sweep", "iops", 0.95, rounds, None, estimates=points)


RULE = Rule("points", min_rounds=5, max_rounds=30, precision=0.10)


def test_a_sweep_stops_once_every_point_of_its_metric_is_known_or_rounds_are_out() -> None:
    found = decide(of_points(6, point(1, 6, 0.01), point(2, 6, 0.02)), RULE)
    assert told(found) == (True, "Stopped after 6 rounds: 2 points of iops known to ±10 % or better.", None)
    found = decide(of_points(6, point(1, 6, 0.01), point(1, 6, 0.5, metric="latency.p99")), RULE)
    assert found.stop
    found = decide(of_points(30, point(1, 30, 0.9)), RULE)
    most = "Stopped after 30 rounds, the most that the study allows: 1 of 1 point not yet known to ±10 %."
    assert told(found) == (True, most, None)
    zero = Estimate(1, {}, "load", "iops", "1/s", "higher", 5, 0.0, 0.0, 0.0, None, 0.0, 0.0, 0.95)
    assert relative_width(zero) is None and not open_points(of_points(5, zero), 0.1)


def test_a_point_that_is_not_known_well_keeps_it_going_with_a_forecast_that_comes_true() -> None:
    found = decide(of_points(6, point(1, 6, 0.01), point(2, 6, 0.10)), RULE)
    assert not found.stop and found.remaining is not None
    assert say(found.why).startswith("After 6 rounds: 1 of 2 points not yet known to ±10 %; about ")
    then = 6 + found.remaining
    assert not open_points(of_points(then, point(2, then, 0.10)), 0.10)
    assert open_points(of_points(then - 1, point(2, then - 1, 0.10)), 0.10)


def state(*series: Sequence[float | None], steady: bool = True) -> SteadyState:
    """Of a point for each series, a cell each."""
    cells = ((1, {"bs": "4k"}), (2, {"bs": "1M"}))
    design = Design("A study", "write.iops", {"bs": ("4k", "1M")}, cells, comparisons=(), steady=steady)
    known = {"source": "load", "metric": "write.iops", "unit": "1/s", "better": "higher"}
    rows = [{"series": at, "cell": at + 1, **known} for at in range(len(series))]
    values = [(at, number, value) for at, one in enumerate(series) for number, value in enumerate(one, start=1)]
    schema = {"series": pl.Int64, "round": pl.Int64, "value": pl.Float64}
    return steady_state(Recorded(pl.DataFrame(rows), pl.DataFrame(values, schema, orient="row")), design)


def windows(*series: Sequence[float | None], **options: bool) -> list[tuple[int, int, bool]]:
    """First and last round, and whether it is steady, of each."""
    return [(each.first, each.last, each.steady) for each in state(*series, **options).windows]


def test_only_the_last_five_rounds_with_a_value_count_and_their_slope_and_range() -> None:
    falling_then_level = [900.0, 500.0, 300.0, 101.0, 99.0, 100.0, 102.0, 98.0]
    assert windows(falling_then_level, falling_then_level[:6]) == [(4, 8, True), (2, 6, False)]
    assert windows([100.0, 104.0, 108.0, 112.0, 116.0]) == [(1, 5, False)]
    assert windows([100.0, 116.0, 100.0, 116.0, 100.0]) == [(1, 5, True)]
    assert windows([100.0, 100.0, None, 100.0, 100.0, 100.0]) == [(1, 6, True)]
    assert windows([100.0] * 5, steady=False) == []
    for few in ([100.0] * 4, [100.0] * 4 + [None], [0.0] * 5, [100.0] * 4 + [math.nan]):  # too few, or no numbers
        assert not windows(few)[0][2]


def test_reported_are_the_rounds_since_all_points_were_steady_or_the_last_five() -> None:
    falls, level = [400.0] * 3 + [100.0] * 9, [100.0] * 12
    assert [state(*of).since for of in ([falls[:8]], [falls], [level], [falls, level])] == [4, 4, 1, 4]
    assert (state(falls[:6], level[:6]).since, state(falls[:2]).since, state(falls, steady=False).since) == (2, 1, 1)
    assert state([100.0, 400.0, 100.0, 400.0, 100.0, 400.0, *level]).since == 7
    factors: Factors = {"bs": ("4k", "1M")}
    trials, metrics, cells = tables({("4k",): [*falls[:3], *rates(100, 9)], ("1M",): rates(50, 12)}, factors)
    found = summarise(trials, metrics, replace(design(factors, cells), steady=True))
    ((comparison,), (high, low)) = found.comparisons, found.estimates
    assert (found.rounds_done, found.reported_since, found.cells[0].rounds, high.rounds) == (12, 4, 9, 9)
    assert comparison.ratio == pytest.approx(high.mean / low.mean, 0.1) == pytest.approx(2, 0.1)
    assert comparison.verdict == "better"


def test_nothing_is_judged_before_steady_state_whatever_gates_and_claims_ask() -> None:
    factors: Factors = {"bs": ("4k", "1M")}
    trials, metrics, cells = tables({("4k",): [9e3 * 2**at for at in range(12)], ("1M",): [1.0] * 12}, factors)
    claim = ClaimSpec("4k is faster", None, {"bs": "4k"}, {"bs": "1M"})
    asked = replace(design(factors, cells), gates=("better>1%", "undecided"), claims=(claim,))
    for steady, verdict, outcomes, holds in (
        (False, "better", ["hit", "passed"], "holds"),
        (True, "undecided", ["missing", "missing"], "undecided"),
    ):
        found = summarise(trials, metrics, replace(asked, steady=steady))
        ((c,), (answer,)) = found.comparisons, found.claims
        assert (c.verdict, [gate.outcome for gate in c.gates], answer.verdict) == (verdict, outcomes, holds)
    assert not decide(found, Rule("gates", max_rounds=25)).stop and not c.settled
    assert all(gate.fails(allow_undecided=True) and not gate.settled for gate in c.gates), "for want of evidence"
    assert found.unsteady is not None and c.reason == answer.reason == found.unsteady
    unsteady = say(found.unsteady)
    assert lacking(c) == unsteady == "1 of 2 points of write.bandwidth is not in steady state."
    assert ReportInput(found).cautions[0].startswith(unsteady) and found.effects == ()
    never = pl.lit(None, pl.Datetime("us", "UTC"))
    trials = trials.with_columns(started=never, duration=pl.lit(1.0), machine=pl.lit("boot-1"))
    run = RunData("r", replace(asked, steady=True), trials, metrics)
    compared = compare_runs([run], by="bs", gates=[Gate("better")], allow_undecided=True)
    assert (say(compared.cautions[0]), compared.failed) == (f"r: {unsteady} Nothing is judged by it.", True)
    assert compared.comparisons[0].comparison.verdict == "undecided"


@pytest.mark.parametrize("limit", [120.0, "40"])
def test_a_claim_about_a_value_keeps_a_run_going_until_its_rounds_are_enough_to_be_sure(limit: float | str) -> None:
    """Without a factor there is nothing to compare, and 6 rounds don't show that one tells of the next."""
    rng = np.random.default_rng(3)
    factors: Factors = {}
    values: Values = {(): (100 * np.exp(0.02 * rng.normal(size=12))).tolist()}
    claim = ClaimSpec("below", None, {}, word="between", between=(-math.inf, limit))
    seen = []
    for rounds in range(1, 13):
        trials, metrics, cells = tables({at: each[:rounds] for at, each in values.items()}, factors)
        found = summarise(trials, metrics, replace(design(factors, cells, ()), claims=(claim,)))
        (answer,) = found.claims
        seen.append((decide(found, Rule("decided")).stop, answer.verdict, answer.settled))
    verdict = "holds" if limit == 120 else "does not hold"
    assert seen == [*[(False, "undecided", False)] * 5, *[(False, verdict, False)] * 4, *[(True, verdict, True)] * 3]
    assert decide(found, Rule("decided")).why == Stopped(12, "reached", Answered("decided", 0, 0, 0.05, 1))
    assert decide(replace(found, claims=()), Rule("decided")).why == Stopped(12, "nothing to compare")


def test_a_cell_that_a_claim_is_open_about_does_not_rest_though_its_comparison_is_decided() -> None:
    factors: Factors = {"bs": ("4k", "1M")}
    trials, metrics, cells = tables({("4k",): rates(100, 12), ("1M",): rates(50, 12)}, factors)
    claim = ClaimSpec("about 100", None, {"bs": "4k"}, word="between", between=(100.0, 200.0))
    found = summarise(trials, metrics, replace(design(factors, cells), claims=(claim,)))
    assert found.claims[0].verdict == "undecided" and found.comparisons[0].settled
    assert [*to_rest(found, Rule("decided"))] == [2] and not decide(found, Rule("decided")).stop


def test_a_window_alone_is_judged_as_the_last_of_a_series() -> None:
    rng = np.random.default_rng(1)
    for scale in (0.02, 0.05, 0.08, 0.2):
        for _ in range(50):
            values = 100 * (1 + scale * rng.normal(size=5))
            assert window_of(values).steady is (snia_steady(values) == 5)


NOISE = TypicalNoise(0.05, "(an assumption)")


def planned(count: int, margin: float = 0.05) -> list[Planned]:
    """Comparisons that are no relatives."""
    questions = (Question("fs", "a", "b", {}, False, "load", f"m{i}", "s", "lower", margin) for i in range(count))
    return [Planned(question, ((1, 2),)) for question in questions]


def foreseen(count: int, most: int = 30, margin: float = 0.05) -> Foresight:
    found = foresee(planned(count, margin), 0.95, 5, most, NOISE)
    assert found is not None
    return found


@pytest.mark.parametrize("count", [1, 3, 10, 30])
def test_no_verdict_is_possible_before_the_round_that_is_named(count: int) -> None:
    fewest = foreseen(count).alone
    question = planned(1)[0].question
    for logs in (np.linspace(1, 2, fewest), np.zeros(fewest)):  # the most evidence of a difference, and of none
        sooner = compare(question, Pairs(np.arange(1, fewest), logs[:-1]), 0.05, family=count)
        assert sooner.verdict == "undecided"


def test_one_comparison_needs_nobody_else_and_of_several_the_earliest_depends_on_the_others() -> None:
    assert earliest(foreseen(1)) == "after 5 rounds at the earliest", "of equal numbers"
    found = foreseen(1, margin=0.0)
    assert found.fewest == found.alone == 6
    found = foreseen(10, margin=0.0)
    assert (found.fewest, found.alone) == (6, 10)
    assert earliest(found) == (
        "after 6 rounds at the earliest, where all 10 comparisons are clear; "
        "after 10 where one is clear and the others show nothing"
    )


def test_it_warns_exactly_where_rounds_are_too_few_and_what_cant_be_compared_is_not_counted() -> None:
    assert "can't decide anything: it stops after 5 rounds" in too_few(foreseen(12, most=5))
    assert too_few(foreseen(1, most=5)) == "" and "at least 6" in too_few(foreseen(1, most=5, margin=0.0))
    assert "there is only 1 round" in too_few(foreseen(1, most=1))
    alone = foreseen(12).alone
    assert alone > 6
    for most in (6, alone - 1):
        assert f"on one of 12 comparisons takes at least {alone}" in too_few(foreseen(12, most=most))
    assert too_few(foreseen(12, most=alone)) == ""
    assert too_few(foreseen(1, most=6)) == ""
    never = Planned(planned(1)[0].question, ((1, 2),), problem=Unsupported((("b", "no"),)), counted=False)
    assert foresee([never], 0.95, 5, 30, NOISE) is None
    found = foresee([*planned(1), never], 0.95, 5, 30, NOISE)
    assert found is not None and found.comparisons == 1


def test_differences_are_forecast_for_the_margin_and_for_ten_percent() -> None:
    found = foreseen(1, most=10)
    assert [by for by, _ in found.rounds] == [0.05, 0.10]
    (_, five), (_, ten) = found.rounds
    assert five is not None and ten is not None and 6 <= ten < five
    assert forecast(found) == (
        f"a difference of 5 % in about {five} rounds, of 10 % in about {ten} rounds (it stops after 10), "
        "if ratios vary by 5 % (an assumption)"
    )
    noisy = foresee(planned(1, 0.001), 0.95, 5, 30, TypicalNoise(1.0, "much"))
    assert noisy is not None and "of 0.1 % in more rounds than is practical" in forecast(noisy)


def trials(sd: float, count: int, seed: int = 1) -> list[float]:
    return list(100 * np.exp(sd * np.random.default_rng(seed).normal(size=count)))


def test_the_noise_of_two_trials_is_that_of_one_times_the_root_of_two_and_averages_out_where_it_is_short() -> None:
    assert noise_of(trials(0.05, 4000))[0].sd == pytest.approx(0.05 * math.sqrt(2), rel=0.05)
    once, twice, *_ = noise_of(trials(0.05, 4000))
    assert (once.length, twice.length) == (1, 2)
    assert twice.sd == pytest.approx(once.sd / math.sqrt(2), rel=0.1)
    slow = np.repeat(trials(0.05, 500), 8)
    aligned = {each.length: each.sd for each in noise_of(list(np.roll(slow, 4)))}
    assert aligned[4] == pytest.approx(0.05 * math.sqrt(2), rel=0.2)
    assert [each.length for each in noise_of(trials(0.05, 20))] == [1, 2]


@pytest.mark.parametrize("values", [[], [1.0] * 9, [1.0] * 20 + [0.0], [math.nan] * 20, [-1.0] * 20])
def test_what_has_no_noise_to_tell_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="trial"):
        noise_of(values)


def test_a_load_that_never_varies_sees_everything_soon_and_a_trial_far_out_is_named() -> None:
    (noise, *_) = noise_of([5.0] * 40)
    assert noise.sd == 0
    assert visible(noise.sd, fewest_rounds(0.05) + 1, 0.05) == 0
    assert rounds_to_see(0.01, noise.sd, 0.05) in (fewest_rounds(0.05), fewest_rounds(0.05) + 1)
    assert visible(0.01, fewest_rounds(0.05) - 1, 0.05) is None
    (warning,) = warnings_of([*trials(0.01, 20), 50.0, *trials(0.01, 3, seed=2)])
    assert say(warning).startswith("Trial 21 is an outlier")


@given(st.floats(1e-6, 3.0), st.sampled_from([0.05, 0.005, 0.01]))
def test_more_rounds_see_less_and_less_takes_more_rounds(sd: float, alpha: float) -> None:
    seen = [each for each in (visible(sd, n, alpha) for n in ROUNDS) if each is not None]
    assert seen == sorted(seen, reverse=True)
    needed = [math.inf if n is None else n for n in (rounds_to_see(effect, sd, alpha) for effect in EFFECTS)]
    assert needed == sorted(needed, reverse=True)


@pytest.mark.parametrize("effect", [0.05, 0.1, 0.2])
def test_the_forecast_is_about_what_studies_take(effect: float) -> None:
    forecast = rounds_to_see(effect, 0.05 * math.sqrt(2), 0.05)
    values = log_ratios("normal", 300, 120, np.random.default_rng(2), effect=math.log1p(effect))
    found = first_difference(values, Rules(0.05, 0.0, "higher", 5))
    assert forecast == pytest.approx(np.median(np.where(found > 0, found, 120)), rel=0.3)
