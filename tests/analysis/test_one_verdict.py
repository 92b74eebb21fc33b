"""Whatever is asked of a run, by its report or by a comparison of its levels, has one answer."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from storlab.analysis.compare import Question
from storlab.analysis.design import CompareSpec
from storlab.analysis.judging import answers, cases, parse_gate
from storlab.analysis.questions import Planned
from storlab.analysis.runs.across_runs import by_question, compare_runs
from storlab.analysis.runs.merged_runs import RunData
from storlab.analysis.stats.horizon import Bet
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.summarise import summarise
from storlab.analysis.summary import Comparison
from storlab.report.language.say import say

from .run_data import two_factors

BETS = (None, Bet("B", ((0, 20),)), Bet("A", ((0, 12), (12, 30))), Bet("B", ((0, 30), (4, 12))))
GATES = ("worse>3%", "better>10%", "differs", "undecided")


def made_up(seed: int) -> RunData:
    """Three file systems in two sizes; of some the speed differs, of some failures are rounds that nobody has."""
    draw = np.random.default_rng([20_261_130, seed])
    rounds = int(draw.integers(5, 20))
    effects = draw.choice([0.0, 0.03, 0.15], size=3)
    values = {
        (fs, size): [*np.exp(effects[at] + 0.05 * draw.standard_t(3, size=rounds)) * 1e6]
        for at, fs in enumerate(("ext4", "xfs", "btrfs"))
        for size in ("4k", "64k")
    }
    run = two_factors(f"made-{seed}", values)
    return replace(run, design=replace(run.design, bet=BETS[seed % len(BETS)]))


@pytest.mark.parametrize("seed", range(12))
def test_report_and_comparison_of_one_run_give_the_same_verdicts_intervals_and_gates(seed: int) -> None:
    run = made_up(seed)
    design = replace(run.design, comparisons=(CompareSpec("fs", margin=0.05), CompareSpec("bs")), gates=GATES)
    report = by_question(summarise(run.trials, run.metrics, design))
    found = compare_runs(
        [replace(run, design=replace(design, gates=()))], by="fs", gates=[parse_gate(gate) for gate in GATES]
    )
    turned = {"better": "worse", "worse": "better"}
    same = 0
    for each in found.comparisons:
        c = each.comparison
        key = (c.factor, c.b, c.a, tuple(c.within.items()), c.pooled, c.source, c.metric)
        asked = report[key]  # "ext4 against xfs" there, "xfs against ext4" here
        assert c.verdict == turned.get(asked.verdict, asked.verdict)
        assert c.confidence == pytest.approx(asked.confidence)
        if asked.low is not None and asked.high is not None and c.low is not None:
            assert (c.low, c.high) == pytest.approx((1 / asked.high, 1 / asked.low), rel=1e-6)
            same += 1
        (undecided,) = (gate.outcome for gate in each.gates if gate.gate == "undecided")
        assert undecided == next(gate.outcome for gate in asked.gates if gate.gate == "undecided")
    assert found.family == len(report) and (same or len(run.trials) < 60)


@pytest.mark.parametrize("seed", range(12))
def test_an_interval_and_its_verdict_never_contradict_each_other(seed: int) -> None:
    run = made_up(seed)
    design = replace(run.design, comparisons=(CompareSpec("fs", margin=0.05),))
    for c in summarise(run.trials, run.metrics, design).comparisons:
        excludes = c.low is not None and c.high is not None and not c.low <= 1 <= c.high
        if c.verdict in ("better", "worse"):
            assert excludes
        elif c.verdict == "equivalent":
            assert c.low is not None and c.high is not None
            assert -math.log(1.05) <= math.log(c.low) <= math.log(c.high) <= math.log(1.05)
        elif excludes:  # of what lies within the margin, or where the mean speaks against it, the reason says so
            assert any(said in say(c.reason) for said in ("margin", "the mean", "failed"))


def looks(levels: NDArray[np.float64], last: int) -> list[list[Comparison]]:
    """What is said of all pairs of some levels (shape ``(rounds, levels)``, logs) after each of the rounds."""
    found, bet = [], Bet("B", ((0, last),))
    for n in range(5, len(levels) + 1):
        asked = []
        for a, b in combinations(range(levels.shape[1]), 2):
            question = Question("fs", "abc"[a], "abc"[b], {}, False, "load", "iops", "1/s", "higher", 0.0)
            pairs = Pairs(np.arange(1, n + 1), levels[:n, a] - levels[:n, b])
            asked.append((Planned(question, ((a + 1, b + 1),)), pairs))
        found.append(answers(cases(asked, 0.05, {}, {}, bet), 0.95, 5, (), None, bet))
    return found


def test_what_was_shown_once_stays_shown_as_long_as_the_ratio_and_the_mean_do_not_turn() -> None:
    kept = 0
    for seed in range(25):
        levels = np.random.default_rng([26, seed]).normal(size=(12, 3)) * 0.05 + np.array([0.0, 0.0, 0.11])
        before: list[Comparison] = []
        for now in looks(levels, 12):
            for c, was in zip(now, before, strict=False):
                if was.verdict in ("better", "worse"):
                    assert c.verdict == was.verdict and c.low is not None and c.high is not None
                    assert not c.low <= 1 <= c.high
                    kept += "an earlier look" in say(c.reason)
            before = now
    assert kept


def test_a_difference_that_later_rounds_turn_is_no_longer_claimed() -> None:
    values = np.concatenate([np.linspace(0.05, 0.1, 8), -np.linspace(0.11, 0.2, 12)])
    verdicts = [c.verdict for (c,) in looks(np.stack([values, np.zeros(20)], axis=1), 30)]
    assert verdicts[3] == "better" and verdicts[-1] != "better"
