"""Every figure in ``docs/explanation/statistics.md``, and false verdicts by simulation, from the seeds given here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import stdtrit

from storlab.analysis.compare import compare
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.stats.forecast import rounds_to_tell
from storlab.analysis.stats.pairing import Pairs
from storlab.analysis.stats.signed_rank import (
    STRENGTHS,
    fewest_rounds,
    interval,
    log_difference,
    log_evidence,
    log_growth,
)
from storlab.analysis.verdict import Failed, Rules, judge
from storlab.metrics import COUNT_MARGIN, RATE_MARGIN, TAIL_MARGIN
from storlab.report.language.say import say

from .simulate import MACHINES, at_most, ever, first_difference, log_ratios, running
from .test_compare import FASTER, question

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "statistics.md").read_text()


def row(table: str, first: str) -> list[float]:
    """The numbers of the row that begins with ``first`` in the table whose header begins with ``table``."""
    lines = PAGE[PAGE.index(f"| {table} |") :].split("\n\n")[0].splitlines()
    cells = next(line for line in lines if line.startswith(f"| {first} |")).strip("|").split("|")
    return [float(cell.replace("%", "")) for cell in cells[1:]]


def textbook_differs(values: Floats) -> float:
    """Share of rows in which a 95 % t interval excludes 0 at any look from the 5th round on."""
    mean, sd = running(values)
    rounds = np.arange(1, values.shape[1] + 1)
    half = np.asarray(stdtrit(np.maximum(rounds - 1, 1), 0.975)) * sd / np.sqrt(rounds)
    return float((np.abs(mean) > half)[:, 4:].any(axis=1).mean())


@pytest.mark.parametrize("kind", MACHINES)
def test_a_against_a_gives_as_many_verdicts_as_the_page_says_and_in_five_percent_of_studies_at_most(kind: str) -> None:
    values = log_ratios(kind, 1000, 100, np.random.default_rng(20_240_501))
    wrong = float((first_difference(values, Rules(0.05, 0.0, "higher", 5)) > 0).mean())
    assert row("machine", kind) == pytest.approx([100 * textbook_differs(values), 100 * wrong], abs=0.06)
    assert wrong <= at_most(0.05, 1000)


@pytest.mark.parametrize("rounds", [6, 10, 30, 100])
def test_the_table_of_widths(rounds: int) -> None:
    studies = np.random.default_rng(20_240_503).normal(size=(1000, rounds))
    ends = np.array([interval(values, math.log(2 / 0.05)) for values in studies])
    fixed = float(stdtrit(rounds - 1, 0.975)) / math.sqrt(rounds)
    found = [float(np.median(ends[:, 1] - ends[:, 0])) / 2, fixed]
    assert row("rounds", str(rounds)) == pytest.approx(found, abs=0.006)
    assert interval(np.arange(1.0, 6.0), math.log(2 / 0.05)) == (-math.inf, math.inf), "fewer rounds have none"


def fewest(threshold: Callable[[Floats], float], lost: int = 0) -> int:
    """Rounds that all point the same way until the evidence reaches ``threshold`` of them."""
    n = 1
    while log_evidence(np.arange(1.0, n + 1), lost=lost) < math.log(2 * threshold(np.arange(1.0, n + 1))):
        n += 1
    return n


@pytest.mark.parametrize("failed", [0, 1, 2, 3])
def test_the_table_of_failed_rounds(failed: int) -> None:
    assert row("failed rounds", str(failed)) == [fewest(lambda _: 20, failed)]


@pytest.mark.parametrize("comparisons", [1, 3, 10, 100])
def test_the_table_of_fewest_rounds(comparisons: int) -> None:
    def as_clear(values: Floats) -> float:
        evidence = log_difference(values)
        return float(thresholds([Hypothesis(k, "a", "b", evidence) for k in range(comparisons)], 0.05)[0])

    assert row("comparisons", str(comparisons)) == [fewest_rounds(0.05 / comparisons), fewest(as_clear)]


def test_the_least_effect_that_is_ever_found() -> None:
    named = float(re.search(r"below about\s+([\d.]+) standard deviations", PAGE)[1])  # type: ignore[index]
    assert rounds_to_tell(named - 0.005, 0.05) is None
    weakest = STRENGTHS.argmin()  # its log growth in a round is 0 where an effect is just too faint
    values = np.random.default_rng(20_240_504).normal(size=(20, 2000))
    for effect, sign in ((named - 0.02, -1), (named + 0.02, 1)):
        growth = [log_growth(study + effect, 0.0, 1)[weakest].sum() for study in values]
        assert np.sign(np.mean(growth)) == sign


@pytest.mark.parametrize("percent", [3, 5, 10, 20, 50])
def test_the_table_of_rounds_to_a_verdict(percent: int) -> None:
    rng = np.random.default_rng(20_240_502)
    values = log_ratios("normal", 300, 300, rng, effect=math.log1p(percent / 100))
    medians = []
    for alpha in (0.05, 0.005):
        found = first_difference(values, Rules(alpha, 0.0, "higher", 5))
        medians.append(float(np.median(np.where(found > 0, found, 300))))
    assert row("true difference", f"{percent} %") == pytest.approx(medians, abs=0.6)


def test_the_reason_and_the_margins_that_are_quoted_are_those_that_are_given() -> None:
    assert f"> {say(compare(question(), Pairs(np.arange(1, 13), FASTER), 0.05).reason)}\n" in PAGE
    assert (COUNT_MARGIN, RATE_MARGIN, TAIL_MARGIN) == (0.01, 0.10, 0.25)
    assert "1 % for counts, 10 % for rates, times and means, 25 % for tails" in " ".join(PAGE.split())


SEED = 20_240_501


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "AR(1)"])
def test_levels_that_differ_by_more_than_the_margin_are_hardly_ever_called_equivalent(kind: str) -> None:
    values = log_ratios(kind, 300, 60, np.random.default_rng(SEED + 2), effect=math.log(1.2) + 1e-9)
    assert ever({"equivalent"}, values, Rules(0.05, 0.2, "higher", 5)).mean() <= at_most(0.05, 300)


@pytest.mark.parametrize(
    ("kind", "rounds", "seed", "effect", "share", "median"),
    [
        pytest.param("normal", 60, 3, 1.1, 0.99, 15, id="10 % in noise of 5 %"),
        pytest.param("normal", 20, 4, 1.42, 1.0, 7, id="a large effect in hardly more than the fewest rounds"),
        pytest.param("bursts", 60, 5, 2.0, 0.6, 60, id="bursts widen the interval of the mean, and rightly so"),
    ],
)  # fmt: skip
def test_a_planted_effect_is_found(kind: str, rounds: int, seed: int, effect: float, share: float, median: int) -> None:
    values = log_ratios(kind, 300, rounds, np.random.default_rng(SEED + seed), effect=math.log(effect))
    found = first_difference(values, Rules(0.05, 0.05, "higher", 5))
    assert (found > 0).mean() >= share and np.median(found) <= median


def test_the_forecast_of_the_rounds_to_a_verdict_is_about_right() -> None:
    """Over many studies the forecast made after 8 rounds is neither dream nor nightmare."""
    values = log_ratios("normal", 300, 100, np.random.default_rng(SEED + 6), effect=math.log(1.1))
    rules = Rules(0.05, 0.0, "higher", 5)
    found = first_difference(values, rules)
    forecasts = [judge(row[:8], "a", "b", rules).rounds_to_decide for row in values[found > 8]]
    told = [8 + more for more in forecasts if more is not None]
    assert len(told) > 0.9 * len(forecasts)
    assert 0.5 < np.median(told) / np.median(found[found > 8]) < 2


def test_who_fails_in_slow_trials_is_not_called_faster_for_the_trials_that_are_left() -> None:
    """a and b are the same but that b is given up where it is slow: what is left of it is 4 % faster.

    Judged by those rounds alone, nearly all of these studies said so.
    """
    rng = np.random.default_rng(20_261_121)
    rules = Rules(0.05, 0.0, "higher", 5)
    wrong, tempted = 0, 0
    for _ in range(100):
        a, b = 0.05 * rng.normal(size=(2, 200))
        done = b > 0
        tempted += judge((a - b)[done], "a", "b", rules).verdict == "worse"
        wrong += judge((a - b)[done], "a", "b", rules, Failed(b=int((~done).sum()))).verdict == "worse"
    assert wrong == 0 and tempted > 90
