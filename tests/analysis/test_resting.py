"""Tests of ``storlab.analysis.stopping``, and of what comes of comparisons whose cells rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from storlab.analysis.design import CompareSpec, Design, Rest
from storlab.analysis.stopping import Rule, to_rest
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison, Summary
from storlab.findings.rounds import LeftOut
from storlab.findings.runs import Rested
from storlab.report.language.methods import method
from storlab.report.language.of_runs import rested
from storlab.report.language.say import said

from .simulate import Factors, Values, design, tables

FACTORS: Factors = {"fs": ("a", "b"), "load": ("seq", "rand")}
SEQ, RAND = (1, 3), (2, 4)
DECIDED = Rule("decided", min_rounds=5, max_rounds=30)
WITHIN = (CompareSpec("fs", pooled=False, margin=0.05),)
Tables = tuple[pl.DataFrame, pl.DataFrame, Design]


def noisy(mean: float, rounds: int, seed: int, sd: float = 0.03) -> list[float | None]:
    noise = np.random.default_rng([seed, int(mean)]).normal(size=rounds)
    return [float(value) for value in mean * np.exp(sd * noise)]


def study(rounds: int = 12, rests: tuple[Rest, ...] = (), **changes: Any) -> Tables:
    """With load seq a is twice as fast as b; with rand they differ by about the margin. What rests has no trials."""
    values: Values = {
        ("a", "seq"): noisy(200, rounds, 1), ("a", "rand"): noisy(105, rounds, 2, 0.05),
        ("b", "seq"): noisy(100, rounds, 3), ("b", "rand"): noisy(100, rounds, 4, 0.05),
    }  # fmt: skip
    trials, metrics, cells = tables(values, FACTORS)
    asked = design(FACTORS, cells, changes.pop("comparisons", WITHIN))
    return until(rounds, (trials, metrics, replace(asked, **changes)), rests)


def until(last: int, given: Tables, rests: tuple[Rest, ...] = ()) -> Tables:
    """A study of so many rounds: what rests is not run again."""
    known = pl.col("round") <= last
    for rest in rests:
        known &= (pl.col("cell") != rest.cell) | (pl.col("round") <= rest.after)
    trials, metrics, asked = given
    return trials.filter(known), metrics.filter(known), replace(asked, rests=rests)


def resting(after: int, *cells: int) -> tuple[Rest, ...]:
    return tuple(Rest(cell, after, Rested("decided")) for cell in cells)


def test_why_a_cell_rests_is_said_of_one_or_of_several() -> None:
    assert rested(Rested("decided")) == "all its comparisons were decided"
    assert rested(Rested("decided", with_answer=True)) == "all its comparisons with an answer were decided"
    assert rested(Rested("precision", precision=0.03), several=True) == (
        "all their comparisons were known to ±3 % or better"
    )
    assert rested(Rested("no answer")) == "none of its comparisons can have an answer"


def test_cells_rest_once_no_open_comparison_is_about_them() -> None:
    summary = summarise(*study())
    assert [c.settled for c in summary.comparisons] == [True, False]
    assert to_rest(summary, DECIDED) == dict.fromkeys(SEQ, Rested("decided"))
    summary = summarise(*study(comparisons=(CompareSpec("fs"),)))
    seq, rand, pooled = summary.comparisons
    assert pooled.pooled and seq.settled and not rand.settled
    assert to_rest(replace(summary, comparisons=(seq, rand, replace(pooled, settled=False))), DECIDED) == {}
    assert set(to_rest(replace(summary, comparisons=(seq, rand, replace(pooled, settled=True))), DECIDED)) == {*SEQ}


def test_a_cell_rests_with_the_last_of_its_comparisons_whose_evidence_counts_for_the_others() -> None:
    factors: Factors = {"fs": ("a", "b", "c")}
    values: Values = {("a",): noisy(200, 12, 1), ("b",): noisy(105, 12, 2, 0.05), ("c",): noisy(100, 12, 4, 0.05)}
    trials, metrics, cells = tables(values, factors)
    summary = summarise(trials, metrics, design(factors, cells))
    assert [c.settled for c in summary.comparisons] == [True, True, False]
    assert set(to_rest(summary, DECIDED)) == {1}
    clear = summarise(*study(24, rests=resting(12, *SEQ))).comparisons
    never = summarise(*study(24, rests=resting(5, *SEQ))).comparisons
    assert clear[1].confidence == pytest.approx(0.95) and never[1].confidence > 0.96


@pytest.mark.parametrize("rule", [Rule("rounds", 5, 30), Rule("decided", 13, 30), Rule("precision", 13, 30)])
def test_nothing_rests_where_all_rounds_are_wanted_nor_before_the_least_number(rule: Rule) -> None:
    assert to_rest(summarise(*study()), rule) == {}


def test_until_a_precision_or_gates_cells_rest_when_theirs_are_reached_or_answered() -> None:
    summary = summarise(*study(60))
    found = to_rest(summary, Rule("precision", 5, 80, 0.03))
    assert set(found.values()) == {Rested("precision", precision=0.03)}
    assert to_rest(summary, Rule("precision", 5, 80, 0.0001)) == {}
    rule = Rule("gates", 5, 30)
    summary = summarise(*study(gates=("worse>20%",)))
    assert [c.gates[0].outcome for c in summary.comparisons] == ["passed", "passed"]
    assert set(to_rest(summary, rule)) == {*SEQ, *RAND}
    both = summarise(*study(gates=("worse>20%", "undecided")))
    assert set(to_rest(both, rule)) == set(SEQ), "the other may still be decided"


def test_cells_that_nothing_is_asked_about_go_on_and_those_that_cant_be_answered_do_not() -> None:
    factors: Factors = {"fs": ("a", "b", "c", "d")}
    values: Values = {(name,): noisy(100, 12, at) for at, name in enumerate("abcd")}
    trials, metrics, cells = tables({**values, ("a",): [0.0] * 12}, factors)
    asked = design(factors, cells, (CompareSpec("fs", pairs=(("a", "b"),)),))
    assert to_rest(summarise(trials, metrics, asked), DECIDED) == {
        1: Rested("no answer"),
        2: Rested("no answer"),
    }


def test_what_rests_is_not_missing() -> None:
    summary = summarise(*study(rests=resting(8, *SEQ)))
    seq, rand = summary.comparisons
    assert (seq.rounds, rand.rounds, summary.rounds_done) == (8, 12, 12)
    assert (seq.rests_after, rand.rests_after) == (8, None)
    assert [state.status for state in summary.cells] == ["measured"] * 4
    assert [state.rests_after for state in summary.cells] == [8, None, 8, None]
    assert not any("Left out" in warning for c in summary.comparisons for warning in said(c.warnings))
    assert summary.method is not None and "were not run again" in method(summary.method)


def test_what_goes_on_alone_or_fails_after_the_other_rests_counts_for_nobody() -> None:
    one_side = summarise(*study(rests=resting(8, SEQ[0])))
    assert one_side.comparisons[0] == summarise(*study(rests=resting(8, *SEQ))).comparisons[0]
    trials, metrics, asked = study(rests=resting(8, SEQ[0]))
    late = (pl.col("cell") == SEQ[1]) & (pl.col("round") > 8)
    trials = trials.with_columns(status=pl.when(late).then(pl.lit("failed")).otherwise("status"))
    found = summarise(trials, metrics.filter(~late), asked).comparisons[0]
    assert found == summarise(*study(rests=resting(8, *SEQ))).comparisons[0]
    trials, metrics, asked = study(rests=resting(8, *SEQ))
    failed = (pl.col("cell") == SEQ[0]) & (pl.col("round") == 3)
    trials = trials.with_columns(status=pl.when(failed).then(pl.lit("failed")).otherwise("status"))
    found = summarise(trials, metrics.filter(~failed), asked).comparisons[0]
    assert found.verdict == "undecided" and LeftOut("failed", (3,), side="a") in found.warnings


def test_what_was_decided_stays_decided_though_later_rounds_take_evidence_from_the_others() -> None:
    """Six rounds decide a comparison only where the others are as clear, and these turn round afterwards."""
    same: list[float | None] = [100.0] * 16
    turning: list[float | None] = [*([200.0] * 6), *([20.0] * 10)]
    values: Values = {("a", "seq"): [200.0] * 16, ("a", "rand"): turning, ("b", "seq"): same, ("b", "rand"): same}
    trials, metrics, cells = tables(values, FACTORS)
    given = trials, metrics, design(FACTORS, cells, WITHIN)
    then, later = summarise(*until(6, given)), summarise(*until(16, given, resting(6, *SEQ)))
    assert [c.verdict for c in then.comparisons] == ["better", "better"]
    assert later.comparisons[1].verdict == "undecided", "it has lost its evidence"
    assert later.comparisons[0] == replace(then.comparisons[0], rests_after=6)
    known = pl.col("cell").is_in(SEQ) & (pl.col("round") <= 6)
    alone = summarise(trials.filter(known), metrics.filter(known), given[2])
    assert alone.comparisons[0].verdict == "undecided", "by itself it would never have been decided"


def test_comparisons_come_to_rest_one_after_the_other_each_as_it_was() -> None:
    factors: Factors = {"fs": ("a", "b"), "load": ("x", "y", "z")}
    means = {"x": (2.0, 0.03), "y": (1.4, 0.15), "z": (1.05, 0.05)}
    values: Values = {("a", load): noisy(100 * by, 20, at, sd) for at, (load, (by, sd)) in enumerate(means.items())}
    values |= {("b", load): noisy(100, 20, 9 + at, sd) for at, (load, (_, sd)) in enumerate(means.items())}
    trials, metrics, cells = tables(values, factors)
    rests: tuple[Rest, ...] = ()
    found: dict[str, Comparison] = {}
    for last in range(5, 21):
        summary: Summary = summarise(*until(last, (trials, metrics, design(factors, cells, WITHIN)), rests))
        for c in summary.comparisons:
            if c.rests_after is not None:
                assert c == replace(found[c.within["load"]], rests_after=c.rests_after)
            found[c.within["load"]] = c
        new = to_rest(summary, DECIDED).keys() - {rest.cell for rest in rests}
        rests += resting(last, *sorted(new))
    stops = {rest.cell: rest.after for rest in rests}
    assert stops[1] == stops[4] < stops[2] == stops[5]


def test_no_warning_of_effects_is_of_what_was_not_due() -> None:
    (found,) = summarise(*study(rests=resting(8, *SEQ)), ended=True).effects
    (then,) = summarise(*until(8, study()), ended=True).effects
    assert (found.rounds, found.trials, found.shares) == (8, 32, then.shares)
    assert said(found.warnings) == ("From the first 8 rounds only: in later ones some cells rested.",)
