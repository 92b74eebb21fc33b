"""The simulations of benchmarks/soundness are of the engine itself, and its peers are what they are called."""

import math
import re

import numpy as np
import pytest
from benchmarks.soundness import __main__ as soundness
from benchmarks.soundness import engine, families, mysql, noise, peers, schedule, series, trials
from benchmarks.soundness.page import Results, broken, page
from numpy.typing import NDArray
from scipy import stats

from storlab.analysis.stats import signed_rank
from storlab.analysis.stats.anytime import Floats
from storlab.analysis.stats.closed_testing import Hypothesis, thresholds
from storlab.analysis.verdict import Rules, judge

SHAPES = ("normal", "heavy tails", "ties")


def studies(shape: str, seed: int, effect: float = 0.0, rounds: int = 25) -> Floats:
    rng = np.random.default_rng(seed)
    size = (30, rounds)
    if shape == "ties":
        return np.round(rng.normal(size=size), 1) * 0.05 + effect
    return 0.05 * (rng.normal(size=size) if shape == "normal" else rng.standard_t(2, size=size)) + effect


@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_of_many_studies_miss_what_those_of_one_miss(shape: str) -> None:
    values = studies(shape, 1)
    missed = engine.missed(values, 0.0213, 0.1)  # on no step of the evidence, which only rounded values have
    for row in range(len(values)):
        for n in range(1, values.shape[1] + 1):
            low, high = signed_rank.interval(values[row, :n], math.log(2 / 0.1))
            assert missed[row, n - 1] == (not low <= 0.0213 <= high)


@pytest.mark.parametrize("shape", SHAPES)
def test_evidence_of_many_studies_is_that_of_one(shape: str) -> None:
    values = studies(shape, 2)
    found = engine.log_evidence(values, 0.02)
    for row in range(len(values)):
        for n in range(1, values.shape[1] + 1):
            one = [signed_rank.log_evidence(values[row, :n], 0.02, side) for side in (1, -1)]
            assert [side[row, n - 1] for side in found] == pytest.approx(one)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("effect", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("margin", [0.0, 0.05, 0.15])
def test_first_verdicts_are_those_of_somebody_who_asks_the_engine_after_every_round(
    shape: str, effect: float, margin: float
) -> None:
    values, rules = studies(shape, 3, effect), Rules(0.1, margin, "higher", 5)
    found = engine.first_verdicts(values, rules)
    for row in range(len(values)):
        assert (found.at[row], found.equivalent[row]) == _one_by_one(values[row], rules)


def _one_by_one(values: Floats, rules: Rules) -> tuple[int, bool]:
    for n in range(1, len(values) + 1):
        verdict = judge(values[:n], "a", "b", rules).verdict
        if verdict != "undecided":
            return n, verdict == "equivalent"
    return 0, False


def naive(truth: Floats, above: Floats, below: Floats, agrees: NDArray[np.bool_]) -> tuple[Floats, bool, bool]:
    """Closed testing asked of every comparison after every round."""
    claims = np.zeros(above.shape)
    most, both = np.exp(np.maximum(above, below)) / 2, np.logaddexp(above, below) - math.log(2)
    for n in range(trials.LEAST - 1, above.shape[1]):
        pairs = ([str(level) for level in families.PAIRS[i % 3]] for i in range(len(truth)))
        asked = [Hypothesis(i // 3, a, b, float(both[i, n])) for i, (a, b) in enumerate(pairs)]
        found = agrees[:, n] & (most[:, n] >= thresholds(asked, trials.ALPHA))
        claims[:, n] = found * np.where(above[:, n] > below[:, n], 1, -1)
    real, right = truth != 0, (claims == truth[:, None]) & (claims != 0)
    at = np.where(right.any(axis=1), right.argmax(axis=1) + 1.0, families.ROUNDS)
    return at[real], bool((claims[~real] != 0).any()), bool((claims[real] == -truth[real, None]).any())


@pytest.mark.parametrize("effect", [0.0, 0.02, 0.2])
def test_claims_of_many_comparisons_are_those_of_somebody_who_tests_all_after_every_round(effect: float) -> None:
    rng = np.random.default_rng(13)
    truth = np.array([0.0, -1, -1, 0, 0, 0])
    made_up = 0
    for _ in range(40):
        noise_of_levels = rng.normal(0, 0.05, size=(2, 3, families.ROUNDS))
        noise_of_levels[0, 2] += effect
        values = np.concatenate([[levels[a] - levels[b] for a, b in families.PAIRS] for levels in noise_of_levels])
        above, below = engine.log_evidence(values)
        agrees = np.sign(np.cumsum(values, axis=1)) == np.where(above > below, 1.0, -1.0)
        expected = naive(truth, above, below, agrees)
        found = families.Told(truth, above, below, agrees).by_closed_testing()
        assert found[0].tolist() == expected[0].tolist() and found[1:] == expected[1:]
        made_up += expected[1]
    assert made_up < 8


def test_settings_of_many_comparisons_are_each_there_once_and_too_many_false_verdicts_a_broken_bound() -> None:
    each = list(families.settings())
    assert len(each) == len(set(each))
    assert {setting.comparisons for setting in each} == {3, 9, 30}
    assert all(setting.families <= setting.comparisons // 3 for setting in each)
    setting = next(families.settings())
    row = families.Family(setting, trials.share(9, 50), trials.share(0, 50), *(60.0,) * 4)
    none = Results(0, 0, 0, 0, [], {}, {}, 50, [row], [], [], {}, {}, 0, [])
    assert broken(none) == [f"{setting}: any false verdict"]


def test_bets_round_by_round_are_those_of_somebody_who_sees_all_rounds_at_once() -> None:
    values = studies("heavy tails", 14).reshape(6, 5, -1)
    for centre in (0.0, 0.05):
        bets = schedule._Bets((6, 5), centre)
        for n in range(1, values.shape[2] + 1):
            bets.take(values[:, :, :n], np.full((6, 5), True))
        for side, found in ((1, bets.above()), (-1, bets.below())):
            each = [signed_rank.log_evidence(row, centre, side) for row in values.reshape(30, -1)]
            assert found.ravel().tolist() == pytest.approx(each)


def test_what_runs_next_to_each_other_shares_noise_that_lasts_and_loses_nothing_else() -> None:
    near = {kind: schedule.adjacency(kind, 4, 60, np.random.default_rng(15)).variance for kind in schedule.KINDS}
    assert near["AR(1)"] < 0.6 and near["recorded: fio"] < 0.95
    assert near["log-normal"] == pytest.approx(1.0, abs=0.05)


def test_resting_saves_trials_where_some_is_decided_and_none_where_nothing_is() -> None:
    rng = np.random.default_rng(16)
    some, none = (
        schedule.resting(schedule.Setting("log-normal", 3, differing, 0.2), 40, rng).trials for differing in (3, 0)
    )
    assert some < 0.85 < 0.95 < none <= 1.0


def test_the_t_test_is_scipys() -> None:
    a, b = studies("normal", 4), studies("normal", 5)
    looks = [stats.ttest_rel(a[:, :n], b[:, :n], axis=1).pvalue < 0.05 for n in range(5, a.shape[1] + 1)]
    assert (peers.peeked_t(a, b) == np.any(looks, axis=0)).all()


@pytest.mark.parametrize("n", [5, 10, 20])
def test_benchstats_rule_is_scipys_exact_test(n: int) -> None:
    a, b = studies("normal", 6), studies("normal", 7, 0.03)
    exact: NDArray[np.float64] = stats.mannwhitneyu(a[:, :n], b[:, :n], axis=1, method="exact").pvalue
    assert (peers.benchstat(a, b, n) == (exact <= 0.05)).all()


def test_lkp_asks_that_ranges_be_apart_and_rustc_perf_that_a_change_be_an_outlier() -> None:
    runs = np.log([[10.0, 11, 12, 13.6, 14, 15], [10.0, 11, 12, 13.4, 14, 15], [15.0, 14, 13.6, 10, 12, 11], [9.0] * 6])
    assert peers.lkp(runs).tolist() == [True, False, True, False]
    # Changes by 1, 1, 2, 2, 3, 3, 4, 4 %, the falling ones of a little less: quartiles are 1.480 and 3.423 %.
    commits = np.log([[100.0, 101, 100, 102, 100, 103, 100, 104, 100, x] for x in (104, 109.2, 109.3, 90.7)])
    assert peers.rustc_perf(commits, 9).tolist() == [False, False, True, True]


def test_the_fixed_design_finds_nine_of_ten() -> None:
    rng = np.random.default_rng(8)
    n = trials.rounds_of_t(0.05)
    values = rng.normal(math.log(1.05), math.sqrt(2) * noise.SPREAD, size=(4000, n))
    assert (stats.ttest_1samp(values, 0, axis=1).pvalue < 0.05).mean() == pytest.approx(0.9, abs=0.025)


@pytest.mark.parametrize("kind", noise.KINDS)
def test_machines_are_drawn_from_their_seed_alone(kind: str) -> None:
    once, twice = (noise.slots(kind, 3, 40, np.random.default_rng(9)) for _ in range(2))
    assert once.shape == (3, 40)
    assert (once == twice).all()


def test_drifts_of_the_12_hour_runs_are_named_and_one_run_per_side_never_gives_a_verdict() -> None:
    looks = mysql.prefixes()
    assert {look.verdict for look in looks} == {"undecided"}
    assert looks[0].low > 1 and looks[-1].high < 1, "a textbook is sure of one, then of the opposite"
    off, on = (mysql.told(side) for side in mysql.SIDES)
    assert "it falls by 1.2 % from start to end, in steps rather than gradually" in " ".join(off.sentences)
    assert off.slope[1] < off.slope[2] < 0
    assert "it ends 1.3 % higher than it began" in " ".join(on.sentences)
    assert on.slope[1] < 0 < on.slope[2]


@pytest.mark.parametrize("side", mysql.SIDES)
def test_what_is_said_of_the_12_hour_runs_is_what_a_user_is_told(side: str) -> None:
    told = mysql.told(side)
    assert told.found.changes
    assert any(re.search("the level (changes|falls|rises)", sentence) for sentence in told.sentences)


def test_a_short_run_breaks_no_bound_and_makes_a_page() -> None:
    found = soundness.run(100)
    assert broken(found) == [] and "| recorded: fio |" in page(found) and "| 20 % | 30 | 20 |" in page(found)


@pytest.mark.parametrize("kind", series.KINDS)
def test_a_series_without_a_trend_is_hardly_ever_said_to_drift_in_steps(kind: str) -> None:
    found = series.false_alarms(kind, 100, 60, np.random.default_rng(11))
    assert found.in_steps.count <= (9 if kind.startswith(series.LEVELS_CHANGE) else 2)
    if kind in series.NO_TREND:
        assert found.changes.count <= 5 and found.drift.count <= 6


def test_a_random_walk_cant_be_told_from_a_drift() -> None:
    assert series.false_alarms("random walk", 100, 60, np.random.default_rng(12)).drift.count > 3
