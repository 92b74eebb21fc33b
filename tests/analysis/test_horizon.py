"""Evidence that aims at a number of rounds: as it is written down, in every history, and never wrong too often."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storlab.analysis.stats.closed_testing import Hypothesis, tuned_thresholds
from storlab.analysis.stats.forecast import mostly_found
from storlab.analysis.stats.horizon import Bet, History, Preset, fewest_rounds, step
from storlab.analysis.stats.horizons import log_evidence, reaches

SIDES = (1, -1)
ALPHA = 0.05
PAIRS = (("a", "b"), ("a", "c"), ("b", "c"))
GOAL = math.log(2 / ALPHA)
NORMAL = NormalDist()


def upper(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def score(rank: float, of: int) -> float:
    return NORMAL.inv_cdf((1 + max(rank - 0.5, 0.0) / of) / 2)


def stake(odds: float) -> float:
    return 2 / (1 + math.exp(-2 * odds))


class Reference:
    """One side's capital, round by round, as the rule is written: a second implementation that shares no line."""

    def __init__(self, preset: Preset, goal: float, rounds: int) -> None:
        aimed, runs, others = {"A": (0.67, 0.17, 0.16), "B": (0.5, 0.33, 0.17)}[preset]
        self.goal, self.ends, self.k = goal, rounds, 0
        self.price = self.floor(aimed / goal, rounds)
        self.runs = runs if self.price > 0 else runs + aimed
        self.others = {bet: others * share / 0.38 for bet, share in {0.25: 0.1, 0.4: 0.1, 0.8: 0.11, 1.4: 0.07}.items()}
        self.seen: list[float] = []

    @staticmethod
    def floor(price: float, rounds: int) -> float:
        grid = 2.0 ** min(rounds, 50)
        return math.floor(price * grid + 1e-9) / grid

    @property
    def capital(self) -> float:
        return self.runs + sum(self.others.values()) + self.goal * self.price

    def aim(self, rounds: int) -> None:
        if self.k < self.ends:
            self.price, self.ends = self.floor(self.price, rounds - self.k), rounds
        elif rounds - self.k >= max(8, self.k):
            self.price += self.floor(0.75 * (self.runs + sum(self.others.values())) / self.goal, rounds - self.k)
            self.runs *= 0.25
            self.others = {bet: 0.25 * each for bet, each in self.others.items()}
            self.ends = rounds

    def ratio(self, off: float, side: int) -> None:
        self.seen.append(abs(off))
        rank, count = sum((each < abs(off)) + (each == abs(off)) / 2 for each in self.seen) + 0.5, len(self.seen)
        sign = side * ((off > 0) - (off < 0))
        self.bet(sign, rank, count)

    def lost(self) -> None:
        self.bet(-1, self.k + 1, self.k + 1)

    def bet(self, sign: int, rank: float, count: int) -> None:
        self.runs *= stake(20 * sign * rank / count)
        for bet in self.others:
            self.others[bet] *= stake(bet * sign * (rank / count if bet == 0.25 else score(rank, count)))
        self.step(sign * score(rank, count))

    def step(self, u: float) -> None:
        self.k += 1
        left = self.ends - self.k
        if left < 0 or not 0 < self.price < 1:
            return
        p, grid = self.price, 2.0 ** min(left, 50)
        if u == 0:
            self.price = math.floor(p * grid) / grid
            return
        up = min(1.0, 2 * p) if left == 0 else self.up(p, abs(u) / math.sqrt(self.spread(self.k, self.ends)))
        up = math.floor(up * grid + 0.5) / grid
        up = min(max(up, math.ceil(p * grid) / grid), math.floor(min(1.0, 2 * p) * grid) / grid)
        self.price = up if u > 0 else 2 * p - up

    @staticmethod
    @cache
    def spread(after: int, ends: int) -> float:
        if after == ends:
            return 0.0
        i = after + 1
        return sum(score(rank, i) ** 2 for rank in range(1, i + 1)) / i + Reference.spread(i, ends)

    @staticmethod
    def up(p: float, a: float) -> float:
        if p >= 0.5 + upper(2 * a):
            return 1.0
        y = a - NORMAL.inv_cdf(min(p, 0.5))
        for _ in range(6):
            y += (upper(y - a) + upper(y + a) - p) / (NORMAL.pdf(y - a) + NORMAL.pdf(y + a))
        return min(max(2 * upper(max(y - a, 0.0)), p), min(1.0, 2 * p))


def by_reference(
    values: Mapping[int, float], history: History, log_goal: float, centre: float, side: int
) -> list[float]:
    (_, first), *changes = history.bet.horizons
    known = Reference(history.bet.preset, math.exp(log_goal), first)
    found = []
    for number in range(1, history.last + 1):
        for after, rounds in changes:
            if after == number - 1:
                known.aim(rounds)
        if number in values:
            known.ratio(0.0 if abs(values[number] - centre) <= 1e-12 else round(values[number] - centre, 12), side)
        elif number in history.lost[0 if side > 0 else 1]:
            known.lost()
        else:
            known.step(0.0)
        found.append(math.log(known.capital))
    return found


def drawn(seed: int, most: int = 60) -> tuple[dict[int, float], History, float]:
    """A history with rounds without a ratio, failures of either side, ties, changes of N and extensions."""
    draw = np.random.default_rng([20_261_130, seed])
    rounds = int(draw.integers(1, most))
    changes, after = [(0, int(draw.integers(1, most)))], 0
    for _ in range(int(draw.integers(0, 4))):
        after += int(draw.integers(0, 20))
        changes.append((after, after + int(draw.integers(1, most))))
    kinds = draw.choice(["ratio", "a", "b", "none"], size=rounds, p=[0.85, 0.06, 0.04, 0.05])
    effect = draw.choice([0.0, 0.3, 1.0])
    values = np.round(effect + draw.standard_t(3, size=rounds), int(draw.choice([0, 1, 9])))
    known = {at + 1: float(values[at]) for at in np.nonzero(kinds == "ratio")[0].tolist()}
    lost = tuple(frozenset((np.nonzero(kinds == side)[0] + 1).tolist()) for side in ("a", "b"))
    bet = Bet(("A", "B")[seed % 2], tuple(changes))
    return known, History(bet, tuple(known), (lost[0], lost[1])), math.log(2 * int(draw.choice([1, 3, 12])) / ALPHA)


def test_in_any_history_the_capital_is_what_the_rule_says() -> None:
    for seed in range(300):
        values, history, goal = drawn(seed)
        ratios = np.array(list(values.values()))
        for side, centre in itertools.product(SIDES, (0.0, 0.5)):
            found = history.path(ratios, goal, centre, side)
            assert found == pytest.approx(by_reference(values, history, goal, centre, side), abs=1e-9), seed


SIZES = {"growing": np.arange(1.0, 15), "falling": np.arange(14.0, 0, -1), "tied": np.ones(14), "mixed": None}


@pytest.mark.parametrize("preset", ["A", "B"])
@pytest.mark.parametrize(
    ("horizons", "goals"), [(((0, 6),), 3), (((0, 14),), 1), (((0, 4), (4, 12)), 1), (((0, 12), (3, 7), (7, 14)), 1)]
)
def test_over_all_signs_a_difference_is_claimed_in_no_more_than_is_allowed(
    preset: Preset, horizons: tuple[tuple[int, int], ...], goals: int
) -> None:
    """Exactly: of 2^14 equally likely studies without a difference, with a look after every round."""
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=14)))
    sizes = np.random.default_rng(5).permutation(14) + 1.0
    for each in (*SIZES.values(),):
        values = signs * (sizes if each is None else each)
        above, below = reaches(values, Bet(preset, horizons), math.log(2 * goals / ALPHA))
        assert (above | below).any(axis=1).mean() <= ALPHA / goals
        capital = np.exp(log_evidence(values, Bet(preset, horizons), GOAL)[0]).mean(axis=0)
        assert (capital <= 1 + 1e-9).all(), "floors only lose"


def test_many_studies_at_once_have_the_same_evidence() -> None:
    draw = np.random.default_rng(3)
    for horizons in (((0, 30),), ((0, 10), (10, 30)), ((0, 60), (12, 25)), ((0, 80),)):
        values = draw.standard_t(3, size=(6, 40))
        bet = Bet("B", horizons)
        for side, found in zip(SIDES, log_evidence(values, bet, GOAL, 0.1), strict=True):
            for row, own in zip(values, found, strict=True):
                each = History(bet, tuple(range(1, 41))).path(row, GOAL, 0.1, side)
                assert own == pytest.approx(each, abs=1e-9)


@settings(max_examples=150)
@given(st.integers(300, 2**31), st.sampled_from([60, 200]))
def test_evidence_for_above_falls_with_what_it_is_above(seed: int, most: int) -> None:
    values, history, goal = drawn(seed, most)
    ratios = np.array(list(values.values()))
    means = np.unique(np.add.outer(ratios, ratios) / 2)
    if len(means) < 2:
        return
    draw = np.random.default_rng(seed)
    between = (means[:-1] + means[1:]) / 2
    at = np.sort(draw.choice(between, size=min(25, len(between)), replace=False))
    for side in SIDES:
        found = side * np.array([history.log_evidence(ratios, goal, c, side) for c in at])
        assert (np.diff(found) <= 1e-9).all()


@given(st.integers(0, 60), st.integers(1, 2**20), st.floats(0.0, 4.0), st.integers(1, 2**20))
def test_a_step_rises_with_the_price_and_with_the_score(left: int, units: int, size: float, other: int) -> None:
    unit = 2.0 ** -min(left + 1, 50)
    most = min(2**20, int(1 / unit) - 1)
    prices = sorted({min(units, most) * unit, min(other, most) * unit} - {0.0})
    scores = [-size, -size / 2, 0.0, size / 2, size]
    found = [[step(price, score, left, math.sqrt(left * 0.9)) for score in scores] for price in prices]
    assert all((np.diff(row) >= 0).all() for row in found)
    assert (np.diff(found, axis=0) >= 0).all()
    for row, price in zip(found, prices, strict=True):
        assert row[0] + row[-1] == pytest.approx(2 * price) or size == 0, "what a sign wins, the other loses"
        assert np.array(row) % (2 * unit) == pytest.approx(0), "rounded to what the rounds left can reach"


@pytest.mark.parametrize("n", [30, 200])
def test_the_interval_is_what_the_evidence_does_not_rule_out(n: int) -> None:
    values = np.random.default_rng(n).normal(0.1, 1, size=n)
    several = ((GOAL, GOAL), (GOAL + math.log(3), GOAL + math.log(2.5)), (GOAL + math.log(2), GOAL + math.log(2)))
    history = History(Bet("B", ((0, n),)), tuple(range(1, n + 1)), tuned=several if n < 100 else ())
    low, high = history.interval(values, GOAL)
    for side, end in zip(SIDES, (low, high), strict=True):
        inner, outer = (history.log_evidence(values, GOAL, end + side * by, side) for by in (1e-9, -1e-9))
        assert inner < GOAL <= outer


@pytest.mark.parametrize(("preset", "fewest"), [("A", [6, 6, 7, 7, 8]), ("B", [6, 6, 6, 7, 7])])
def test_so_many_rounds_are_the_fewest(preset: Preset, fewest: list[int]) -> None:
    assert [fewest_rounds(Bet(preset, ((0, most),)), GOAL) for most in (6, 10, 12, 30, 60)] == fewest


@pytest.mark.parametrize("rounds", [10, 30])
def test_four_of_five_studies_find_what_a_plan_says_that_they_do(rounds: int) -> None:
    bet = Bet("B", ((0, rounds),))
    values = np.random.default_rng(rounds).normal(size=(2000, rounds)) + mostly_found(bet, GOAL)
    assert reaches(values, bet, GOAL)[0].any(axis=1).mean() == pytest.approx(0.8, abs=0.04)


def test_a_bet_whose_horizons_are_in_no_order_is_refused() -> None:
    for horizons in ((), ((1, 5),), ((0, 5), (7, 6)), ((0, 5), (4, 9), (2, 9))):
        with pytest.raises(ValueError, match="horizons"):
            Bet("B", horizons)


WIDE = tuple(itertools.combinations("abcdefg", 2))[:7]  # too many levels to look at each set: then any may be true


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_each_set_of_hypotheses_that_may_be_true_is_tested_by_evidence_tuned_to_its_size(
    asked: list[tuple[int, int]], wide: bool, seed: int
) -> None:
    """Against every set, one by one."""
    each = [Hypothesis(family, *PAIRS[which]) for family, which in asked]
    each += [Hypothesis("wide", a, b) for a, b in WIDE] if wide else []
    draw = np.random.default_rng(seed)
    of_size = {size: np.exp(draw.normal(2.5, 2, size=len(each))) for size in (1, 2, 3, 4, 6, 8, 12, 16)}
    found = tuned_thresholds(each, lambda size: of_size[size][:, None], ALPHA)
    rejected = {
        at
        for at, needs in enumerate(found)
        if all((of_size[size][at] >= needed * (1 - 1e-9)).all() for size, needed in needs)
    }
    kept = set[int]()
    for blocks in itertools.product(itertools.product(range(3), repeat=3), repeat=2):
        level = [dict(zip("abc", block, strict=True)) for block in blocks]
        true = {at for at, (family, which) in enumerate(asked) if len({level[family][x] for x in PAIRS[which]}) == 1}
        others = range(len(asked), len(each))
        for more in itertools.chain.from_iterable(itertools.combinations(others, n) for n in range(len(others) + 1)):
            together = [*true, *more]
            size = next((size for size in of_size if size >= len(together)), 0)
            if together and of_size[size][together].sum() < len(together) / ALPHA * (1 - 1e-12):
                kept |= {*together}
    assert rejected == set(range(len(each))) - kept


@pytest.mark.parametrize("levels", ["abc", "abcdefgh"])
def test_where_nothing_is_known_as_much_is_needed_as_may_be_true_together(levels: str) -> None:
    each = [Hypothesis("one", a, b) for a, b in itertools.combinations(levels, 2)]
    for needs in tuned_thresholds(each, lambda _: np.zeros((len(each), 1)), ALPHA):
        found = [(size, *needed.tolist()) for size, needed in needs]
        assert found[0] == (1, 1 / ALPHA) and max(needed for _, needed in found) == pytest.approx(len(each) / ALPHA)
